// Defines nearest, which finds the known name that a misspelt name most likely means.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fettle {

// Returns the item of `names` that needs the fewest single-letter edits (insert, delete, replace, swap of neighbours)
// to become `name`; if several need the fewest, the first of them. Returns nullopt when more than a third of the
// letters would be edited, except that one edit is always allowed, and two from 5 letters on. Also returns nullopt when
// `name` has more than 64 letters.
std::optional<std::string_view> nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace fettle
