#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/pattern.h"

#include <pcre2.h>

#include "base/error.h"

namespace fettle {
namespace {

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

PCRE2_SPTR bytes_of(const std::string& text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;

  ~Compiled() { pcre2_code_free(code); }

  // Returns the groups of the first match at or after `start`, and the offset at which the match ends; nullopt without
  // a match.
  std::optional<std::pair<Groups, size_t>> match_from(const std::string& text, size_t start, uint32_t options) const {
    const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
    const int count = pcre2_match(code, bytes_of(text), text.size(), start, options, data.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
    internal_check(count > 0, "a pattern failed on a text of {} bytes: PCRE2's error {}", text.size(), count);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data.get());
    Groups groups(pcre2_get_ovector_count(data.get()));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      if (offsets[2 * i] != PCRE2_UNSET) groups[i] = text.substr(offsets[2 * i], offsets[2 * i + 1] - offsets[2 * i]);
    return std::pair(std::move(groups), static_cast<size_t>(offsets[1]));
  }
};

Pattern::Pattern(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(bytes_of(expression), expression.size(), 0, &error, &at, nullptr);
  internal_check(code != nullptr, "the pattern '{}' is wrong at byte {}: PCRE2's error {}", expression, at, error);
  compiled_.reset(new Compiled{code});
}
Pattern::~Pattern() = default;

std::optional<Pattern::Groups> Pattern::match(const std::string& text) const {
  const auto found = compiled_->match_from(text, 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
  return found ? std::optional(found->first) : std::nullopt;
}

std::vector<Pattern::Groups> Pattern::find_all(const std::string& text) const {
  std::vector<Groups> all;
  for (size_t start = 0; start <= text.size();) {
    const auto found = compiled_->match_from(text, start, 0);
    if (!found) break;
    start = found->second + (found->first[0].empty() ? 1 : 0);
    all.push_back(found->first);
  }
  return all;
}

std::string Pattern::replace_all(const std::string& text, const std::string& replacement) const {
  std::string out(text.size() + replacement.size() + 64, '\0');
  for (;;) {
    PCRE2_SIZE length = out.size();
    const int count = pcre2_substitute(compiled_->code, bytes_of(text), text.size(), 0,
                                       PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH, nullptr, nullptr,
                                       bytes_of(replacement), replacement.size(),
                                       reinterpret_cast<PCRE2_UCHAR*>(out.data()), &length);
    if (count == PCRE2_ERROR_NOMEMORY) {
      out.resize(length);  // `length` is now the size that the text needs, with the final zero
      continue;
    }
    internal_check(count >= 0, "a pattern failed on a text of {} bytes: PCRE2's error {}", text.size(), count);
    out.resize(length);
    return out;
  }
}

}  // namespace fettle
