// Defines nearest, which finds the known name that a misspelt name most likely means.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fettle {

// Returns the known name that needs the fewest single-letter edits (insert, delete, replace, swap of neighbours) to
// become `name`; with equal numbers, the first one. Returns nothing when it needs more edits than a third of the
// letters.
std::optional<std::string_view> nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace fettle
