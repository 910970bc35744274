#include "base/arrays/box.h"

#include <fmt/format.h>

namespace fettle {

std::string Box::to_string() const {
  std::string out = "[";
  for (size_t d = 0; d < start.size(); ++d)
    out += fmt::format("{}{}:{}", d == 0 ? "" : ", ", start[d], start[d] + size[d]);
  return out + "]";
}

}  // namespace fettle
