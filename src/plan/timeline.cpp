#include "plan/timeline.h"

#include "base/error.h"

namespace fettle {

std::vector<std::string> describe(const Assumptions&) {
  return {};
}

Timeline estimate(const HloModule&, const MeshAxes&, const Target&, int64_t, const Assumptions&) {
  throw InternalError("plan: no timeline yet");
}

}  // namespace fettle
