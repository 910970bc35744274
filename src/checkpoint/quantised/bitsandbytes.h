// Defines how to read weights that a checkpoint stores in bitsandbytes' 4-bit and 8-bit formats.
//
// A 4-bit weight has its codes in "<weight>", and also "<weight>.absmax", ".quant_map" and
// ".quant_state.bitsandbytes__nf4" or "__fp4" (JSON in bytes); nested weights also have ".nested_absmax" and
// ".nested_quant_map". An 8-bit weight has "<module>.SCB" and "<module>.weight_format".
#pragma once

#include <set>
#include <string>

#include "checkpoint/load.h"
#include "models/quantisation.h"

namespace fettle {

struct StoredQuantised {
  StoredTensor codes, absmax;
  StoredTensor nested_absmax{};  // null pointers unless nested
  float nested_offset = 0;
  std::set<std::string> names;  // names of all tensors of the weight, as in the files
};

// Finds the tensors of the weight `name` with these dims. Throws UserError when a tensor is missing, or when its dtype,
// shape, block size or quant_map does not agree with `format`.
StoredQuantised find_quantised(const FindTensor& find, const std::string& name, const Dims& dims,
                               const Quantisation& format);

// Returns the dims of the weight `name` as the checkpoint states them. Throws UserError when a tensor is missing, or
// when the settings have no shape.
Dims dims_of_quantised(const FindTensor& find, const std::string& name, const Quantisation& format);

}  // namespace fettle
