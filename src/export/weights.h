// Defines write_weights, which writes the tensors of a base to the exported model, and merges or converts the tensors.
#pragma once

#include <optional>

#include "checkpoint/model_writer.h"
#include "checkpoint/peft/adapter_merge.h"
#include "export/base_tensors.h"
#include "export/compressed_export.h"

namespace fettle {

// The changes that the merge made to the weights.
struct MergeCount {
  int64_t tensors = 0;            // tensors whose written bytes changed
  bool nonzero = false;           // at least one adapter changes a value
  DType narrowest = DType::kF64;  // narrowest dtype of the merged tensors, as written
};

// How the weights are written. `dtype` is the dtype of the written floats, except those of parameters with a dtype of
// their own (Param::written_dtype); nullopt keeps each tensor's dtype. If `compressed` is not null, the weights that it
// applies to become codes.
struct WrittenForm {
  std::optional<DType> dtype;
  const CompressedExport* compressed = nullptr;
};

// Throws an Error if a signal has asked the export to end (InterruptScope::check).
void check_signal();

// Returns the names and shapes that write_weights will write.
NamedShapes written_shapes(const BaseTensors& base, const WrittenForm& form);

// Writes all tensors of the base in their stored order. For the memory use, see run_export(). `merge` may be null.
// Throws UserError when the merge, or the conversion to `form`, makes a finite value infinite. Calls check_signal()
// before each tensor.
MergeCount write_weights(const BaseTensors& base, const AdapterMerge* merge, const WrittenForm& form,
                         ModelWriter& writer);

}  // namespace fettle
