#include "config/foreign/tables.h"

#include <algorithm>

namespace fettle {
namespace {

bool covers(std::string_view pattern, std::string_view key) {
  if (!pattern.ends_with('*')) return pattern == key;
  return key.starts_with(pattern.substr(0, pattern.size() - 1));
}

template <typename Row>
const Row* find(const std::vector<Row>& rows, std::string_view key) {
  auto row = std::ranges::find_if(rows, [&](const Row& r) { return covers(r.key, key); });
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

const WithoutEffect* find_without_effect(std::string_view key) {
  return find(without_effect(), key);
}
const NotAvailable* find_not_available(std::string_view key) {
  return find(not_available(), key);
}

std::vector<std::string_view> foreign_names() {
  std::vector<std::string_view> names;
  for (const auto& row : translations()) names.push_back(row.key);
  for (const auto& row : without_effect()) names.push_back(row.key);
  for (const auto& row : not_available()) names.push_back(row.key);
  std::erase_if(names, [](std::string_view name) { return name.ends_with('*'); });
  return names;
}

}  // namespace fettle
