// Defines translate_pattern: a pattern in Oniguruma's syntax (Ruby's, as tokenizer files have it) as PCRE2 takes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fettle {

// The texts that a translation serves: those of ASCII need no Unicode properties, and those without characters of
// kNewerRanges need not ask for them.
enum class Texts { kAscii, kUsual, kAll };

// Nothing where the pattern asks for something that texts of ASCII alone do not tell. What is no pattern at all stays
// as it is, for PCRE2 to refuse.
std::optional<std::string> translate_pattern(std::string_view pattern, Texts texts);

}  // namespace fettle
