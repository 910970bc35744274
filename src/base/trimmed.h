// Defines trimmed(), which removes the white space at both ends of a text.
#pragma once

#include <string_view>

namespace fettle {

inline constexpr std::string_view kSpaces = " \t\r\n";

// The result points into `text`.
inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

}  // namespace fettle
