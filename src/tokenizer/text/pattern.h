// Defines translate_pattern, which rewrites a pattern from Oniguruma's syntax (Ruby's syntax, which tokenizer files
// use) for PCRE2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fettle {

// The texts for which the translated pattern must be right: ASCII texts, texts without characters of kNewerRanges, or
// all texts. A pattern for ASCII texts needs no Unicode properties, and a pattern for usual texts need not list the
// characters of kNewerRanges.
enum class Texts { kAscii, kUsual, kAll };

// Returns the pattern for PCRE2. For Texts::kAscii, returns nullopt when a part of the pattern cannot be written for
// ASCII texts. Invalid parts stay unchanged, so that PCRE2 reports them.
std::optional<std::string> translate_pattern(std::string_view pattern, Texts texts);

}  // namespace fettle
