// Defines only_thinking and where_they_differ, which handle the tags of thinking blocks in rendered texts. Also defines
// is_space_byte.
#pragma once

#include <cstddef>
#include <string_view>

namespace fettle {

inline bool is_space_byte(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Returns whether the text has only white space and tags of a thinking block.
bool only_thinking(std::string_view text);

// Returns where `prompt` and `full` begin to differ. If the rest of the prompt has only tags of a thinking block,
// returns where the first of these tags begins. This may be before the difference, because a tag of `full` may begin
// with the same characters: "<think>" and "</think>" both begin with "<".
size_t where_they_differ(std::string_view prompt, std::string_view full);

}  // namespace fettle
