// Defines functions that read the columns of a row. They handle absent columns, null, and numbers instead of texts.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fettle {

// A row that cannot be used; what() says why. The caller adds file:line and follows on_bad_row.
class BadRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws BadRow with the formatted text.
template <typename... Args>
[[noreturn]] void bad_row(fmt::format_string<Args...> format, Args&&... args) {
  throw BadRow(fmt::format(format, std::forward<Args>(args)...));
}

// Return the value in `column`, or in the first of `columns` that has a value. Return a null pointer when the columns
// are absent or null.
const nlohmann::ordered_json* find_column(const nlohmann::ordered_json& row, const std::string& column);
const nlohmann::ordered_json* find_any_column(const nlohmann::ordered_json& row,
                                              const std::vector<std::string>& columns);

// Returns "the column 'chosen' is missing" and the columns that the row has instead.
std::string missing_column(const nlohmann::ordered_json& row, const std::string& column);

inline bool has_column(const nlohmann::ordered_json& row, const std::string& column) {
  return find_column(row, column) != nullptr;
}

// Returns whether the column has a value other than a blank text, an empty list or an empty object.
bool has_content(const nlohmann::ordered_json& row, const std::string& column);

// Returns the truth value of true, false, or a text that says `true` or `false` in letters of any case, as cells of CSV
// files do. Returns nullopt for other values, also for 0 and 1.
std::optional<bool> truth_of(const nlohmann::ordered_json& value);

// Returns a string, an integer, true or false as a text. Throws BadRow for other values; the message calls the value
// `what`. Refuses 4.5 and other floating-point numbers, because the JSON reader does not keep their spelling (4.50).
std::string text_of(const nlohmann::ordered_json& value, const std::string& what);
// Returns the text of a column like text_of(); "" when the column is absent or null.
std::string text_column(const nlohmann::ordered_json& row, const std::string& column);

// Parses JSON that a row has as text. Returns nlohmann's "discarded" value for a text that is not JSON. Throws BadRow
// for an integer with more than 64 bits; the message calls the text `what`.
nlohmann::ordered_json json_of_text(const std::string& text, const std::string& what);

// Returns a list that a row has as an array or as JSON text; a blank text stands for an empty list. Throws BadRow for a
// text that is not JSON; the message calls the value `what`. Returns other values as they are.
nlohmann::ordered_json list_of(const nlohmann::ordered_json& value, const std::string& what);

}  // namespace fettle
