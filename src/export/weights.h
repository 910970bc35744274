// Defines write_weights: a base's tensors as they are exported, changed or converted on the way.
#pragma once

#include <optional>

#include "checkpoint/model_writer.h"
#include "checkpoint/peft/adapter_merge.h"
#include "export/base_tensors.h"

namespace fettle {

// What the merge did to the weights.
struct MergeCount {
  int64_t tensors = 0;            // changed on disk
  bool nonzero = false;           // the adapters change something
  DType narrowest = DType::kF64;  // of what was merged, as written
};

// Names and shapes of what write_weights will write. `dtype`: of floats; nothing keeps each tensor's own.
NamedShapes written_shapes(const BaseTensors& base, std::optional<DType> dtype);

// Writes all tensors of the base in the order they are stored in, in memory what run_export says; `merge` may be
// null. Throws UserError for a value that was finite and that merging, or its dtype, makes infinite.
MergeCount write_weights(const BaseTensors& base, const AdapterMerge* merge, std::optional<DType> dtype,
                         ModelWriter& writer);

}  // namespace fettle
