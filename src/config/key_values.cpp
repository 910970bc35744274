#include "config/key_values.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "config/keys.h"
#include "config/recipe.h"

namespace fettle {

KeyValues::KeyValues(const Recipe& recipe) : places_(recipe.places) {
  static const Recipe defaults;
  for (const Key& key : recipe_keys()) {
    Value& out = values_[std::string(key.name)];
    out.yaml = value_text(recipe, key);
    out.changed = out.yaml != value_text(defaults, key);
    out.secret = key.secret;
    std::visit(
        [&](auto member) {
          using Type = std::remove_cvref_t<decltype(recipe.*member)>;
          if constexpr (std::is_same_v<Type, bool> || std::is_same_v<Type, std::string> ||
                        std::is_same_v<Type, std::vector<std::string>>)
            out.value = recipe.*member;
          else if constexpr (std::is_arithmetic_v<Type>)
            out.value = static_cast<double>(recipe.*member);
        },
        key.member);
  }
}

KeyValues KeyValues::only(const std::vector<std::string_view>& keys) const {
  KeyValues out;
  out.places_ = places_;
  for (const std::string_view key : keys) out.values_.emplace(key, at(key));
  return out;
}

const KeyValues::Value& KeyValues::at(std::string_view key) const {
  const auto found = values_.find(key);
  internal_check(found != values_.end(), "there is no recipe key {}", key);
  return found->second;
}

double KeyValues::number(std::string_view key) const {
  const double* value = std::get_if<double>(&at(key).value);
  internal_check(value != nullptr, "recipe key {} is not a number", key);
  return *value;
}

bool KeyValues::flag(std::string_view key) const {
  const bool* value = std::get_if<bool>(&at(key).value);
  internal_check(value != nullptr, "recipe key {} is not a flag", key);
  return *value;
}

const std::string& KeyValues::text(std::string_view key) const {
  const std::string* value = std::get_if<std::string>(&at(key).value);
  internal_check(value != nullptr, "recipe key {} is not a text", key);
  return *value;
}

const std::vector<std::string>& KeyValues::list(std::string_view key) const {
  const auto* value = std::get_if<std::vector<std::string>>(&at(key).value);
  internal_check(value != nullptr, "recipe key {} is not a list", key);
  return *value;
}

nlohmann::json KeyValues::json(std::string_view key) const {
  return std::visit(
      [](const auto& value) -> nlohmann::json {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      at(key).value);
}

nlohmann::json KeyValues::changed_values() const {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : values_)
    if (!value.secret && must_be_said(*find_key(key), value.changed, places_)) {
      nlohmann::json one = json(key).is_null() ? nlohmann::json(value.yaml) : json(key);
      if (one.is_number_float() && std::floor(one.get<double>()) == one.get<double>() &&
          std::abs(one.get<double>()) < 1e15)
        one = one.get<int64_t>();
      out[key] = std::move(one);
    }
  return out;
}

const std::string& KeyValues::yaml(std::string_view key) const {
  return at(key).yaml;
}

bool KeyValues::changed(std::string_view key) const {
  return at(key).changed;
}

std::string KeyValues::where(std::string_view key) const {
  at(key);  // checks that there is such a key
  return places_.of(key);
}

}  // namespace fettle
