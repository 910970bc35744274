// Defines KeyValues: the values of recipe keys by name, for code that must not know the Recipe.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fettle {

struct Recipe;

// A copy of a recipe's values. A stage reads its own keys from here, so that a new stage changes only its own files and
// the table of keys.
class KeyValues {
 public:
  KeyValues() = default;
  explicit KeyValues(const Recipe& recipe);
  // Returns the values of these keys alone.
  KeyValues only(const std::vector<std::string_view>& keys) const;

  // Throw InternalError when there is no such key, or when it has another type.
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::string>& list(std::string_view key) const;

  // The value of a number, a flag, a text or a list.
  nlohmann::json json(std::string_view key) const;
  // The value as yaml text: "0.1", "sigmoid"; empty when nothing is set.
  const std::string& yaml(std::string_view key) const;
  // The keys whose values differ from their defaults, with their values. Secret keys are left out.
  nlohmann::json changed_values() const;
  // Whether the value differs from the key's default.
  bool changed(std::string_view key) const;
  // Where the key was set, for messages ("recipe.yaml:12"); the recipe's file when it was not set.
  std::string where(std::string_view key) const;

 private:
  struct Value {
    std::variant<std::monostate, bool, double, std::string, std::vector<std::string>> value;
    std::string yaml;
    bool changed = false, secret = false;
    std::string where;
  };
  const Value& at(std::string_view key) const;

  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace fettle
