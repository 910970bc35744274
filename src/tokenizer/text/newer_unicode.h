// Defines the code points that Unicode 15.0 to 16.0 added, with their general categories. Hugging Face's tokenizers
// know them, but older releases of PCRE2 and ICU have Unicode 14. With newer releases a code point occurs twice in a
// class, which is harmless.
#pragma once

#include <string_view>

namespace fettle {

struct NewerRange {
  char32_t first;
  char32_t last;
  char category[3];
};

inline constexpr NewerRange kNewerRanges[] = {
    {0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},     {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},   {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"},   {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},   {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
    {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
    {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x1171E, 0x1171E, "Mc"}, {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"},
    {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"},
    {0x11F04, 0x11F10, "Lo"}, {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"},
    {0x11F3E, 0x11F3F, "Mc"}, {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"},
    {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"},
    {0x13439, 0x1343F, "Cf"}, {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"},
    {0x13460, 0x143FA, "Lo"}, {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"},
    {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"},
    {0x16D6B, 0x16D6C, "Lm"}, {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"},
    {0x1B132, 0x1B132, "Lo"}, {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"},
    {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"},
    {0x1E08F, 0x1E08F, "Mn"}, {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"},
    {0x1E4F0, 0x1E4F9, "Nd"}, {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"},
    {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"},
    {0x1F77B, 0x1F77F, "So"}, {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"},
    {0x1FA75, 0x1FA77, "So"}, {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"},
    {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"},
    {0x1FADF, 0x1FADF, "So"}, {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"},
    {0x2B739, 0x2B739, "Lo"}, {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
};

// Capital letters that Unicode 15.1 to 17.0 added. The code point of a capital letter plus `delta` is its small letter.
struct NewerCapital {
  char32_t first;
  char32_t last;
  int32_t delta;
};

inline constexpr NewerCapital kNewerCapitals[] = {
    {0x1C89, 0x1C89, 1},    {0xA7CB, 0xA7CB, -42343}, {0xA7CC, 0xA7CC, 1}, {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},    {0xA7D4, 0xA7D4, 1},      {0xA7DA, 0xA7DA, 1}, {0xA7DC, 0xA7DC, -42561},
    {0x10D50, 0x10D65, 32}, {0x16EA0, 0x16EB8, 27},
};

// Characters that are alphabetic, lower case, upper case or emoji in newer versions of Unicode but not in Unicode 14,
// as items of a class in brackets.
inline constexpr std::string_view kNewerAlphabetic =
    "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1c89}-\\x{1c8a}\\x{1dd3}-\\x{1de6}"
    "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d69}"
    "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}\\x{11080}-\\x{11081}\\x{1123f}-\\x{11241}"
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}\\x{113c5}"
    "\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f00}-\\x{11f10}"
    "\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}"
    "\\x{16100}-\\x{1612e}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"
    "\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";
inline constexpr std::string_view kNewerLowercase =
    "\\x{10fc}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"
    "\\x{1e030}-\\x{1e06d}";
inline constexpr std::string_view kNewerUppercase =
    "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}";

inline constexpr std::string_view kNewerEmoji =
    "\\x{1f6dc}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}"
    "\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}";

// A script, and the characters that Unicode versions after 14 have added to it, as items of a class in brackets.
struct NewerScript {
  std::string_view name;
  std::string_view items;
};

inline constexpr NewerScript kNewerScripts[] = {
    {"Arabic", "\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"},
    {"Balinese", "\\x{1b4e}-\\x{1b4f}\\x{1b7f}"},
    {"Cyrillic", "\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}"},
    {"Devanagari", "\\x{11b00}-\\x{11b09}"},
    {"Egyptian_Hieroglyphs", "\\x{1342f}\\x{13439}-\\x{13455}\\x{13460}-\\x{143fa}"},
    {"Han", "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"Hiragana", "\\x{1b132}"},
    {"Katakana", "\\x{1b155}"},
    {"Khojki", "\\x{1123f}-\\x{11241}"},
    {"Khitan_Small_Script", "\\x{18cff}"},
    {"Kannada", "\\x{cf3}"},
    {"Lao", "\\x{ece}"},
    {"Latin", "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}"},
    {"Myanmar", "\\x{116d0}-\\x{116e3}"},
    {"Common",
     "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccf9}\\x{1cd00}-\\x{1ceb3}"
     "\\x{1d2c0}-\\x{1d2d3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
     "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"
     "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}"
     "\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"},
};

}  // namespace fettle
