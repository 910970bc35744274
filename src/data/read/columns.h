// Defines the reading of a row's columns: what a null, an absent column and a number that stands for a text are.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace fettle {

// A row that cannot be used, and why; the caller adds file:line and decides by on_bad_row.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The row's value of `column`, or of the first of `columns` that has one; null when it is absent or null.
const nlohmann::ordered_json* find_column(const nlohmann::ordered_json& row, const std::string& column);
const nlohmann::ordered_json* find_any_column(const nlohmann::ordered_json& row,
                                              const std::vector<std::string>& columns);

inline bool has_column(const nlohmann::ordered_json& row, const std::string& column) {
  return find_column(row, column) != nullptr;
}

// The value as a text: a string, an integer, true or false. Throws BadRow, with `what` it is, for anything else: of a
// number with a fraction the row's own spelling (4.50) is lost when it is read.
std::string text_of(const nlohmann::ordered_json& value, const std::string& what);

}  // namespace fettle
