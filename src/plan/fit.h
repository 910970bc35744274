// Defines the search for the largest batch or sequence that fits. The search compiles the step for each size that it
// tries.
#pragma once

#include <functional>

#include "plan/step_plan.h"

namespace fettle {

// The memory that a size needs, per device.
struct SizeTried {
  int64_t size;
  int64_t needed_bytes, limit_bytes;
  bool fits() const { return needed_bytes <= limit_bytes; }
};

// Returns the largest size up to `most` that fits. Tries only multiples of grain(size). The grain is a power of two
// that does not fall as the size grows. Returns nullopt when the smallest size does not fit. Starts at `start` and
// calls `try_size` a few times. Memory grows almost linearly, so the next size to try is where the line through the
// last two results reaches the limit.
std::optional<int64_t> largest_size(const std::function<SizeTried(int64_t)>& try_size, int64_t start,
                                    const std::function<int64_t(int64_t)>& grain, int64_t most);

enum class FitBy { kBatch, kSequence };

// Returns the plan with the largest per_device_train_batch_size or cutoff_len that fits `machine`. The search for
// cutoff_len has a precision of 1/64. It ends at max_position_embeddings, or at the recipe's cutoff_len if that is
// larger. If `mesh: auto` chose the variant's mesh, a plan of the largest batch is that of a recipe with this mesh, so
// it has the recipe's own per_device_eval_batch_size. If no size fits, returns the plan of the smallest size. Treats
// `gradient_checkpointing: auto` as full, with which the largest sizes fit. Prints the sizes that it tries to stderr.
// Throws UserError when the machine's memory is not known.
StepPlan largest_fit(const Request& request, Variant variant, const Machine& machine, FitBy by);

}  // namespace fettle
