// Defines how the columns of a row are read, including absent and null columns, and numbers where a text is expected.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace fettle {

// A row that cannot be used; what() says why. The caller adds file:line and follows on_bad_row.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The value in `column`, or in the first of `columns` that has one. Null when the column is absent or holds null.
const nlohmann::ordered_json* find_column(const nlohmann::ordered_json& row, const std::string& column);
const nlohmann::ordered_json* find_any_column(const nlohmann::ordered_json& row,
                                              const std::vector<std::string>& columns);

inline bool has_column(const nlohmann::ordered_json& row, const std::string& column) {
  return find_column(row, column) != nullptr;
}

// The value as a text: a string, an integer, true or false. Throws BadRow for other values; its message calls the value
// `what`. A number with a fraction is refused, because its spelling in the row (4.50) is lost when the row is read.
std::string text_of(const nlohmann::ordered_json& value, const std::string& what);

}  // namespace fettle
