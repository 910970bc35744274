// Defines the search for the largest batch or sequence that fits, by compiling.
#pragma once

#include <functional>

#include "plan/step_plan.h"

namespace fettle {

// What a size needs, of one device.
struct SizeTried {
  int64_t size;
  int64_t needed_bytes, limit_bytes;
  bool fits() const { return needed_bytes <= limit_bytes; }
};

// The largest size up to `most` that fits, among those that are multiples of grain(size) (a power of two that grows
// with the size); nothing when the smallest does not fit. `try_size` is called a few times: memory grows almost in a
// line, so the next size tried is where the line through the last two meets the limit. Starts at `start`.
std::optional<int64_t> largest_size(const std::function<SizeTried(int64_t)>& try_size, int64_t start,
                                    const std::function<int64_t(int64_t)>& grain, int64_t most);

enum class FitBy { kBatch, kSequence };

// The request's step with the largest per_device_train_batch_size, or cutoff_len (up to max_position_embeddings, within
// 1/64), that fits `machine`; the smallest one's plan, which does not fit, when none does. Says on stderr what was
// tried. Throws UserError when the machine's memory is not known.
StepPlan largest_fit(const Request& request, const Variant& variant, const Machine& machine, FitBy by);

}  // namespace fettle
