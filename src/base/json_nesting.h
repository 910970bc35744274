// Defines nests_too_deeply: whether a JSON text is to be refused unread, as copying the parsed value would overflow
// the stack.
#pragma once

#include <cstddef>
#include <string_view>

namespace fettle {

inline constexpr int kDeepestJson = 100;

// Whether brackets outside of strings stand more than kDeepestJson deep; `text` need not be JSON.
inline bool nests_too_deeply(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepestJson) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace fettle
