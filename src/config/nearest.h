// Defines nearest: the known name that a misspelt one most likely meant.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fettle {

// The name with the fewest single-letter edits (insert, delete, replace, swap of neighbours) from `name`;
// none when even that takes more than a third of its letters. The first of equals wins.
std::optional<std::string_view> nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace fettle
