// Defines what becomes of keys that other tools have and Fettle has not: translated, accepted, or refused by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fettle {

// A key whose value sets other keys. `value` "*" is any; "*" in `sets` stands for the value as it was given.
struct Translation {
  std::string_view key;
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string_view>> sets;
};

// A key that cannot change the result. A name ending in * covers all that begin so. An empty reason
// means that it steers other software's machinery.
struct WithoutEffect {
  std::string_view key;
  std::string_view reason = "";
};

// A key of a feature that does not exist here; `neutral` are the values that ask for nothing.
struct NotAvailable {
  std::string_view key;
  std::vector<std::string_view> neutral;
  std::string_view remedy = "";
};

const std::vector<Translation>& translations();
const WithoutEffect* find_without_effect(std::string_view key);
const NotAvailable* find_not_available(std::string_view key);

// Every name of the three tables, without patterns: for suggestions.
std::vector<std::string_view> foreign_names();

}  // namespace fettle
