#include "step/memory/shard_bytes.h"

#include "programs/layouts.h"

namespace fettle {

int64_t shard_elements(const Run& run, const Param& param) {
  const Dims dims = stacked_shape(param, DType::kF32).dims;
  return layout_of(run.partition(param), dims, run.sharding.mesh()).boxes[0].elements();
}

int64_t shard_bytes(const Run& run, const std::vector<Param>& params, DType dtype,
                    const std::function<bool(const Param&)>& wanted) {
  int64_t total = 0;
  for (const Param& param : params)
    if (wanted(param)) total += shard_elements(run, param) * byte_size(run.dtype_of(param, dtype));
  return total;
}

}  // namespace fettle
