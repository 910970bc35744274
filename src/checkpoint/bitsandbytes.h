// Defines the reading of weights that a checkpoint holds in bitsandbytes' few-bit forms.
//
// Beside "<weight>" (codes) there are, in 4 bits, "<weight>.absmax", ".quant_map", ".quant_state.bitsandbytes__nf4"
// (JSON in bytes) and, nested, ".nested_absmax" and ".nested_quant_map"; in 8 bits "<module>.SCB" and
// "<module>.weight_format".
#pragma once

#include <set>
#include <string>

#include "checkpoint/load.h"
#include "models/quantisation.h"

namespace fettle {

struct StoredQuantised {
  StoredTensor codes, absmax;
  StoredTensor nested_absmax{};  // nullptrs unless nested
  float nested_offset = 0;
  std::set<std::string> names;  // of all its tensors
};

// The tensors of the weight `name`, which has param.stored_dims(). Throws UserError when one is missing or is not of
// the format: another type, block size, map or shape.
StoredQuantised find_quantised(const FindTensor& find, const std::string& name, const Param& param,
                               const Quantisation& format);

}  // namespace fettle
