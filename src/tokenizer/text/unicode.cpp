#include "tokenizer/text/unicode.h"

#include <unicode/uchar.h>

#include <array>
#include <utility>

#include "base/text.h"
#include "tokenizer/text/newer_unicode.h"

namespace fettle {
namespace {

// Returns the length of the valid character at text[at]. If the bytes there are invalid, returns 0 and sets `bad` to
// the length of the invalid sequence.
size_t valid_length(std::string_view text, size_t at, size_t& bad) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const uint8_t lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(at + 1) < low || byte(at + 1) > high) return 0;
  for (bad = 2; bad < length; ++bad) {
    if ((byte(at + bad) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// Returns ICU's bit mask of the general category with this short name. The table has the categories in kNewerRanges.
uint32_t mask_of(std::string_view name) {
  constexpr std::pair<std::string_view, uint32_t> kMasks[] = {
      {"Lu", U_GC_LU_MASK}, {"Ll", U_GC_LL_MASK}, {"Lm", U_GC_LM_MASK}, {"Lo", U_GC_LO_MASK}, {"Mn", U_GC_MN_MASK},
      {"Mc", U_GC_MC_MASK}, {"Nd", U_GC_ND_MASK}, {"No", U_GC_NO_MASK}, {"Pd", U_GC_PD_MASK}, {"Po", U_GC_PO_MASK},
      {"Sm", U_GC_SM_MASK}, {"So", U_GC_SO_MASK}, {"Cf", U_GC_CF_MASK}};
  for (const auto& [known, mask] : kMasks) {
    if (known == name) return mask;
  }
  return U_GC_CN_MASK;
}

uint32_t category(char32_t c) {
  const uint32_t mask = U_GET_GC_MASK(c);
  if ((mask & U_GC_CN_MASK) == 0) return mask;
  for (const NewerRange& range : kNewerRanges) {
    if (c >= range.first && c <= range.last) return mask_of(range.category);
  }
  return mask;
}

// Returns true when version `version`.0 of Unicode has the character.
bool is_of_version(char32_t c, uint8_t version) {
  UVersionInfo age;
  u_charAge(c, age);
  return age[0] != 0 && (age[0] < version || (age[0] == version && age[1] == 0));
}

struct Alphabet {
  std::array<char32_t, 256> to_char;
  std::array<int16_t, 0x144> to_byte;

  Alphabet() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      to_char[byte] = printable ? static_cast<char32_t>(byte) : next++;
      to_byte[to_char[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : valid_length(text, at, bad);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0, bad = 0; at < text.size();) {
    if (const size_t length = valid_length(text, at, bad)) {
      result.append(text, at, length);
      at += length;
    } else {
      result += kReplacementText;
      at += bad;
    }
  }
  return result;
}

bool is_white_space(char32_t c) {
  return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) : u_isUWhiteSpace(c);
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  constexpr uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_NL_MASK | U_GC_PC_MASK;
  return (category(c) & kWord) != 0 || u_isUAlphabetic(c) || c == 0x200C || c == 0x200D;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c == '_' || (c > 0x20 && c < 0x7F && !is_word(c));
  return ((category(c) & U_GC_P_MASK) != 0 && is_of_version(c, 8)) || c == 0x166D || c == 0x111C9;
}

bool is_numeric(char32_t c) {
  return (category(c) & U_GC_N_MASK) != 0 || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

bool is_mark(char32_t c) {
  return (category(c) & U_GC_M_MASK) != 0 && is_of_version(c, 9);
}

bool is_nonspacing_mark(char32_t c) {
  if (c < 0x300 || c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;
  return ((category(c) & U_GC_MN_MASK) != 0 && is_of_version(c, 8)) || c == 0x1734;
}

bool is_other(char32_t c) {
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  constexpr uint32_t kOther = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK;
  return (category(c) & kOther) != 0 && is_of_version(c, 8);
}

void append_lowercase(std::string& text, char32_t c) {
  if (c < 0x80) {
    text.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 0x20 : c));
    return;
  }
  if (c == 0x130) {
    text += "i\xCC\x87";
    return;
  }
  for (const NewerCapital& range : kNewerCapitals) {
    if (c >= range.first && c <= range.last) return append_utf8(text, c + range.delta);
  }
  append_utf8(text, u_tolower(c));
}

char32_t alphabet_char(uint8_t byte) {
  return alphabet().to_char[byte];
}

int alphabet_byte(char32_t c) {
  return c < alphabet().to_byte.size() ? alphabet().to_byte[c] : -1;
}

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char byte : bytes) append_utf8(text, alphabet_char(static_cast<uint8_t>(byte)));
  return text;
}

bool from_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const int byte = alphabet_byte(next_char(text, at));
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace fettle
