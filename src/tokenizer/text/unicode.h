// Defines the functions on Unicode text that the tokenizer needs: stepping through UTF-8, character classes, and the
// byte alphabet.
//
// The stepping functions require valid UTF-8 (see replace_invalid_utf8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fettle {

// U+FFFD in UTF-8. It replaces invalid bytes.
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

// Returns the character at text[at] and moves `at` past it.
inline char32_t next_char(std::string_view text, size_t& at) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(at);
  if (lead < 0x80) return at += 1, lead;
  if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  if (lead < 0xF0) return at += 3, (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
}

// Returns the character that ends before text[at] and moves `at` to its start.
inline char32_t previous_char(std::string_view text, size_t& at) {
  do --at;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  size_t from = at;
  return next_char(text, from);
}

bool is_valid_utf8(std::string_view text);
// Replaces each maximal invalid sequence of bytes by one U+FFFD, as WHATWG and Python do.
std::string replace_invalid_utf8(std::string_view text);

// Character classes as in the libraries that Hugging Face's tokenizers use. Each library has the tables of one version
// of Unicode. The functions for Unicode 8 and 9 leave out later characters. The other functions add characters that are
// missing in the linked ICU. Nd, M, P and so on are general categories of Unicode.
bool is_white_space(char32_t c);      // property White_Space
bool is_word(char32_t c);             // \w: Alphabetic, M, Nd, Pc, Join_Control
bool is_numeric(char32_t c);          // Nd, Nl, No
bool is_punctuation(char32_t c);      // P in Unicode 8, and all ASCII punctuation
bool is_mark(char32_t c);             // Mn, Mc, Me in Unicode 9
bool is_nonspacing_mark(char32_t c);  // Mn in Unicode 8
bool is_other(char32_t c);            // Cc, Cf, Co in Unicode 8
// Appends the small letter of a character: one character, except for U+0130, which becomes two.
void append_lowercase(std::string& text, char32_t c);

// GPT-2's byte alphabet has a printable character for each of the 256 bytes.
char32_t alphabet_char(uint8_t byte);
// Returns the byte of character `c`; -1 when c is not in the alphabet.
int alphabet_byte(char32_t c);
// Replaces each byte by its character in the alphabet.
std::string to_alphabet(std::string_view bytes);
// Reverses to_alphabet: sets `bytes` and returns true, or returns false when a character is not in the alphabet.
bool from_alphabet(std::string_view text, std::string& bytes);

}  // namespace fettle
