#include "config/known_keys.h"

#include <algorithm>
#include <string>

#include "config/foreign/tables.h"
#include "config/keys.h"

namespace fettle {

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  for (const Key& key : recipe_keys()) {
    names.push_back(key.name);
    names.insert(names.end(), key.aliases.begin(), key.aliases.end());
  }
  const std::vector<std::string_view> others = foreign_names();
  names.insert(names.end(), others.begin(), others.end());
  return names;
}

bool begins_known_key(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  if (find_without_effect(prefix) != nullptr || find_not_available(prefix) != nullptr) return true;
  return std::ranges::any_of(known_names(), [&](std::string_view known) { return known.starts_with(prefix); });
}

bool takes_text_or_list(std::string_view name_or_alias) {
  const Key* key = find_key(name_or_alias);
  return name_or_alias == "loss_type" || (key != nullptr && key->one_or_two);
}

}  // namespace fettle
