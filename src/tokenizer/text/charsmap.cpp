#include "tokenizer/text/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

// The next four functions read the fields of a unit of the double array.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200) >> 6);
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& origin) {
  uint32_t size = 0;
  if (bytes.size() < sizeof size) throw UserError("{}: the charsmap is incomplete; fetch the file again", origin);
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size % sizeof(uint32_t) != 0 || size == 0 || size > bytes.size() - sizeof size) {
    throw UserError("{}: the charsmap claims a trie of {} bytes, wanted a multiple of 4 from 4 to {}", origin, size,
                    bytes.size() - sizeof size);
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof size, size);
  replacements_ = bytes.substr(sizeof size + size);
  if (!is_valid_utf8(replacements_))
    throw UserError("{}: the charsmap's replacements are not UTF-8; fetch the file again", origin);
}

Charsmap::Match Charsmap::find(std::string_view text, bool shortest) const {
  Match match;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const bool leaf = has_leaf(units_[node]);
    node ^= offset_of(units_[node]);
    if (!leaf || node >= units_.size()) continue;
    const uint32_t at = value_of(units_[node]);
    // In an invalid table, a value may point beyond the replacements or into a character.
    const bool within = at < replacements_.size() && (static_cast<uint8_t>(replacements_[at]) & 0xC0) == 0x80;
    if (at >= replacements_.size() || within) continue;
    match = {i + 1, std::string_view(replacements_).substr(at, replacements_.find('\0', at) - at)};
    if (shortest) break;
  }
  return match;
}

}  // namespace fettle
