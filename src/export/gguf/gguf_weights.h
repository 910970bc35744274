// Defines write_gguf_weights and check_gguf_weights, which write the weights of GGUF files and compare them with the
// merged values.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/gguf/write/gguf_parts.h"
#include "export/gguf/gguf_plan.h"
#include "export/weights.h"

namespace fettle {

// A model that is being written in one type.
struct GgufOutput {
  const GgufFileType* type;
  GgufParts writer;
};

// Writes all tensors to all files, a block of rows at a time. Memory holds one such block. If the file stores the
// rows in another order, rows move only within groups, and a block consists of whole groups. A tensor that the file
// stores transposed is one block. `merge` may be null. Throws UserError when a value is not finite, or when the type of
// a file cannot represent a value.
MergeCount write_gguf_weights(const GgufPlan& plan, const BaseTensors& base, const AdapterMerge* merge,
                              std::vector<GgufOutput>& files);

// The tensor of a file that has the largest error. `error` is the root mean square of the errors of its values, divided
// by the root mean square of the values. `bound` is the largest error that the check allows for this tensor.
struct GgufError {
  double error = 0, bound = 0;
  std::string tensor;
};

// Reads the model back under Hugging Face's names and compares each tensor with the merged values. `file` is the
// model's first file. Values in F32 must be equal. Only norms stored as 1 + w, and A_log, which is stored as
// -exp(A_log), may differ by rounding. Returns the tensor with the largest error. Throws InternalError when an error is
// above its bound, and UserError when the type cannot represent a tensor.
GgufError check_gguf_weights(const GgufPlan& plan, const BaseTensors& base, const AdapterMerge* merge,
                             const GgufFileType& type, const std::filesystem::path& file);

}  // namespace fettle
