// Defines small functions on texts: trimmed, is_blank, digits_value, lower_case, replace_all, append_utf8 and
// count_characters.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fettle {

inline constexpr std::string_view kSpaces = " \t\r\n";

// Removes the white space at both ends. The result points into `text`.
inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Returns whether the text has only white space.
inline bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

// Returns the number that the digits 0 to 9 stand for. Returns nullopt when the text is empty, has another character,
// or stands for a number that does not fit into an int64_t.
inline std::optional<int64_t> digits_value(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// Returns the text with its ASCII letters in lower case.
inline std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Returns the text with `to` in place of each `from`. An empty `from` replaces nothing.
inline std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Appends the character (code point), which is at most U+10FFFF, in UTF-8.
inline void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

// Returns the number of characters (code points) of UTF-8 text.
inline int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](unsigned char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace fettle
