#include "data/chat/thinking_tags.h"

#include <algorithm>

namespace fettle {

bool only_thinking(std::string_view text) {
  static constexpr std::string_view kTags[] = {"<think>",      "</think>",      "[THINK]",           "[/THINK]",
                                               "<seed:think>", "</seed:think>", "<|channel>thought", "<channel|>"};
  while (!text.empty()) {
    if (is_space_byte(text[0])) {
      text.remove_prefix(1);
      continue;
    }
    const auto tag = std::find_if(std::begin(kTags), std::end(kTags), [&](auto one) { return text.starts_with(one); });
    if (tag == std::end(kTags)) return false;
    text.remove_prefix(tag->size());
  }
  return true;
}

size_t where_they_differ(std::string_view prompt, std::string_view full) {
  constexpr size_t kLongestTag = 17;
  const size_t common = static_cast<size_t>(std::ranges::mismatch(prompt, full).in1 - prompt.begin());
  for (size_t at = common; at + kLongestTag > common; --at) {
    if (only_thinking(prompt.substr(at))) return at;
    if (at == 0) break;
  }
  return common;
}

}  // namespace fettle
