// Defines what the tokenizer needs to know of Unicode text: UTF-8 steps, character classes, the byte alphabet.
//
// Texts given to the stepping functions must be valid UTF-8 (see replace_invalid_utf8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fettle {

// U+FFFD in UTF-8: stands where bytes are no character.
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

// The character at text[at]; moves `at` past it.
inline char32_t next_char(std::string_view text, size_t& at) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(at);
  if (lead < 0x80) return at += 1, lead;
  if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  if (lead < 0xF0) return at += 3, (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
}

// The character that ends before text[at]; moves `at` to its start.
inline char32_t previous_char(std::string_view text, size_t& at) {
  do --at;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  size_t from = at;
  return next_char(text, from);
}

void append_utf8(std::string& text, char32_t character);

bool is_valid_utf8(std::string_view text);
// Each longest run of bytes that begins no valid character becomes one U+FFFD (as the WHATWG and Python do).
std::string replace_invalid_utf8(std::string_view text);

// Character classes as the reference's libraries have them, each with the Unicode version of its own tables: what
// those call Unicode 8 or 9 leaves out later characters, and what is newer than the linked ICU is added.
bool is_white_space(char32_t c);      // property White_Space
bool is_word(char32_t c);             // \w: Alphabetic, M, Nd, Pc, Join_Control
bool is_numeric(char32_t c);          // Nd, Nl, No
bool is_punctuation(char32_t c);      // P of Unicode 8, and all of ASCII's
bool is_mark(char32_t c);             // Mn, Mc, Me of Unicode 9
bool is_nonspacing_mark(char32_t c);  // Mn of Unicode 8
bool is_other(char32_t c);            // Cc, Cf, Co of Unicode 8
// One character for one, but for U+0130, which becomes two.
void append_lowercase(std::string& text, char32_t c);

// GPT-2's alphabet: every byte has one printable character, so that any text is a string of 256 characters.
char32_t alphabet_char(uint8_t byte);
// The byte that `c` stands for; -1 when c is not of the alphabet.
int alphabet_byte(char32_t c);
// Each byte of `bytes` as its character.
std::string to_alphabet(std::string_view bytes);
// Sets `bytes` and returns true, or returns false when a character is not of the alphabet.
bool from_alphabet(std::string_view text, std::string& bytes);

}  // namespace fettle
