#include "data/example.h"

#include <algorithm>

namespace fettle {

int64_t Example::trained_tokens() const {
  if (!classes.empty()) return 1;
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(), [](int32_t label) { return label != kIgnore; });
}

}  // namespace fettle
