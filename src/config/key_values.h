// Defines KeyValues: the values of recipe keys by name, for code that does not depend on Recipe.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/key_places.h"

namespace fettle {

struct Recipe;

// A copy of a recipe's values. Stages read their own keys from here. To add a stage, only its own files and the table
// of keys need changes.
class KeyValues {
 public:
  KeyValues() = default;
  explicit KeyValues(const Recipe& recipe);
  // Returns a copy that has only these keys.
  KeyValues only(const std::vector<std::string_view>& keys) const;

  // Return the value. Throw InternalError when there is no such key, or when the key has another type. number() does
  // not return optional numbers (std::optional); yaml() does.
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::string>& list(std::string_view key) const;

  // Returns the value of a number, a flag, a text or a list as JSON; null for keys of other types (optional numbers and
  // maps).
  nlohmann::json json(std::string_view key) const;
  // Returns the value as YAML text, such as "0.1" or "sigmoid"; "" when the value is empty.
  const std::string& yaml(std::string_view key) const;
  // Returns an object with the keys that a copy of the recipe needs (must_be_said). Leaves secret keys out.
  nlohmann::json changed_values() const;
  // Returns whether the value differs from the key's default.
  bool changed(std::string_view key) const;
  // Returns where the key was set, for messages (KeyPlaces::of).
  std::string where(std::string_view key) const;

 private:
  struct Value {
    std::variant<std::monostate, bool, double, std::string, std::vector<std::string>> value;
    std::string yaml;
    bool changed = false, secret = false;
  };
  const Value& at(std::string_view key) const;

  std::map<std::string, Value, std::less<>> values_;
  KeyPlaces places_;
};

}  // namespace fettle
