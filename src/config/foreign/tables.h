// Defines the tables of other tools' keys: keys that are translated, keys without effect, and keys of features that
// Fettle does not have. Each table has a file of its own.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace fettle {

// The value of keys that other tools' recipes may leave off.
inline constexpr std::string_view kFalse = "false";

// A key whose value sets other keys. If `value` is "*", the row covers any value. If `value` ends in *, the row covers
// all values with that prefix. In `sets`, "*" is the part of the user's value that the * in `value` stands for.
struct Translation {
  std::string_view key;
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string_view>> sets;
  bool if_unset = false;  // true: keys that the recipe sets keep their values
};

// A key that cannot change the result. A key that ends in * stands for all keys with that prefix. An empty reason means
// that the key configures other software.
struct WithoutEffect {
  std::string_view key;
  std::string_view reason = "";
  std::string_view neutral = "";  // the value that turns the feature off; it gives no warning
};

// A key of a feature that Fettle does not have. A key that ends in * stands for all keys with that prefix. Values in
// `neutral` do not turn the feature on, so they are accepted. An empty remedy means "remove the key".
struct NotAvailable {
  std::string_view key;
  std::vector<std::string_view> neutral;
  std::string_view remedy = "";
};

const std::vector<Translation>& translations();
const std::vector<WithoutEffect>& without_effect();
const std::vector<NotAvailable>& not_available();

// Return the table row that covers the key; null when there is none.
const WithoutEffect* find_without_effect(std::string_view key);
const NotAvailable* find_not_available(std::string_view key);

// Returns every name in the three tables except names that end in *.
std::vector<std::string_view> foreign_names();

}  // namespace fettle
