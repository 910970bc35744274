#include "base/json_place.h"

#include <fmt/format.h>

#include <algorithm>

namespace fettle {

std::string json_place(std::string_view text, size_t byte) {
  constexpr size_t kShown = 20;
  if (byte > text.size()) return "its end";
  const size_t at = byte == 0 ? 0 : byte - 1;
  const std::string_view before = text.substr(0, at);
  const size_t last_end = before.rfind('\n');
  const size_t line_start = last_end == std::string_view::npos ? 0 : last_end + 1;
  std::string_view near = text.substr(at, kShown);
  near = near.substr(0, near.find_first_of("\r\n"));
  // A cut never leaves part of a character.
  while (!near.empty() && at + near.size() < text.size() &&
         (static_cast<unsigned char>(text[at + near.size()]) & 0xc0) == 0x80)
    near.remove_suffix(1);
  std::string place = fmt::format("column {}", at - line_start + 1);
  if (text.find('\n') < text.size() - 1)
    place = fmt::format("line {}, {}", std::count(before.begin(), before.end(), '\n') + 1, place);
  return near.empty() ? place : fmt::format("{}, at `{}`", place, near);
}

}  // namespace fettle
