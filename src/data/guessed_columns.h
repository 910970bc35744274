// Defines functions that guess from the names of columns what the columns have. They help with rows of no known format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace fettle {

// Returns whether a column of this name is about the row, so that neither a prompt nor a reply needs it.
bool is_about_the_row(std::string_view column);

// Throws BadRow for a row of no known format. The message has an entry that describes the row's columns, with "..."
// where the names do not tell which column is meant.
[[noreturn]] void refuse_columns(const nlohmann::ordered_json& row);

}  // namespace fettle
