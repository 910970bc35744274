// Defines nearest, which finds the known name that a misspelt name most likely means.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fettle {

// Returns the item of `names` that needs the fewest single-letter edits (insert, delete, replace, swap of neighbours)
// to become `name`; if several need the fewest, the first of them. Returns nullopt when more than max(2, name.size() /
// 3) edits are needed, or when `name` has more than 64 letters.
std::optional<std::string_view> nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace fettle
