#include "serve/stop_texts.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fettle {

std::string StopTexts::push(const std::string& text) {
  if (found_) return "";
  held_ += text;
  size_t first = std::string::npos, kept = 0;
  for (const std::string& stop : texts_) {
    first = std::min(first, held_.find(stop));
    size_t length = std::min(stop.size() - 1, held_.size());
    while (length > kept && !held_.ends_with(std::string_view(stop).substr(0, length))) --length;
    kept = std::max(kept, length);
  }
  found_ = first != std::string::npos;
  std::string certain = held_.substr(0, found_ ? first : held_.size() - kept);
  held_.erase(0, found_ ? held_.size() : certain.size());
  return certain;
}

std::string StopTexts::finish() {
  return std::exchange(held_, "");
}

}  // namespace fettle
