#include "tokenizer/text/intervals.h"

#include <algorithm>
#include <vector>

namespace fettle {
namespace {

// Returns the end of the escape at `at`, such as \d, \p{L} or \u0041.
size_t escape_end(std::string_view pattern, size_t at) {
  const char kind = at + 1 < pattern.size() ? pattern[at + 1] : '\0';
  size_t end = at + 2;
  if (std::string_view("pPx").find(kind) != std::string_view::npos && pattern.substr(end).starts_with('{'))
    end = std::min(pattern.find('}', end), pattern.size() - 1) + 1;
  else if (kind == 'x')
    end += std::min<size_t>(2, pattern.substr(end).find_first_not_of("0123456789abcdefABCDEF"));
  if (kind == 'u') end += 4;
  return std::min(end, pattern.size());
}

// Returns the end of the class in brackets at `at`. Classes nest, and a closing bracket at the start is a character.
size_t class_end(std::string_view pattern, size_t at) {
  size_t next = at + 1;
  if (pattern.substr(next).starts_with('^')) ++next;
  if (pattern.substr(next).starts_with(']')) ++next;
  while (next < pattern.size() && pattern[next] != ']')
    next = pattern[next] == '\\'  ? escape_end(pattern, next)
           : pattern[next] == '[' ? class_end(pattern, next)
                                  : next + 1;
  return std::min(next + 1, pattern.size());
}

// Returns the end of the quantifier {n}, {n,}, {,m} or {n,m} at `at`; `at` if there is none.
size_t interval_end(std::string_view pattern, size_t at) {
  const size_t end = pattern.find('}', at);
  if (!pattern.substr(at).starts_with('{') || end == std::string_view::npos) return at;
  const std::string_view inner = pattern.substr(at + 1, end - at - 1);
  const bool valid = inner.find_first_of("0123456789") != std::string_view::npos &&
                     inner.find_first_not_of("0123456789,") == std::string_view::npos &&
                     std::ranges::count(inner, ',') <= 1;
  return valid ? end + 1 : at;
}

}  // namespace

std::string regroup_intervals(std::string_view pattern, IntervalPlus meaning) {
  const bool repeats = meaning == IntervalPlus::kRepeats;
  std::string out;
  size_t repeated = 0;         // where the part begins to which a quantifier here would apply
  std::vector<size_t> groups;  // where each open group begins
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at];
    if (const size_t end = interval_end(pattern, at); end != at) {
      out += pattern.substr(at, end - at);
      at = end;
      if (!pattern.substr(at).starts_with('+')) continue;
      out.insert(repeated, repeats ? "(?:" : "(?>");
      out += repeats ? ")+" : ")";
      ++at;
      continue;
    }
    size_t end = at + 1;
    if (c == '\\')
      end = escape_end(pattern, at);
    else if (c == '[')
      end = class_end(pattern, at);
    else
      while (end < pattern.size() && (static_cast<unsigned char>(pattern[end]) & 0xc0) == 0x80) ++end;
    if (c == ')' && !groups.empty()) {
      repeated = groups.back();
      groups.pop_back();
    } else if (std::string_view("*+?").find(c) == std::string_view::npos) {
      repeated = out.size();
      if (c == '(') groups.push_back(out.size());
    }
    out += pattern.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace fettle
