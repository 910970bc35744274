// Defines not_stored, the error of a weight in floats that quantization_config does not leave out.
#pragma once

#include <string_view>

#include "base/error.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// `stored` completes the message: "in 8-bit floats".
inline UserError not_stored(const TensorFile& file, const TensorEntry& entry, std::string_view stored) {
  return UserError(
      "{}: '{}' is not stored {}, although quantization_config in config.json says so; add its module to "
      "modules_to_not_convert in quantization_config (compressed-tensors: to ignore)",
      file.path().string(), entry.name, stored);
}

}  // namespace fettle
