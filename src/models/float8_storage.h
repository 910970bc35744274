// Defines Float8Storage: how a checkpoint stores weights as 8-bit floats and factors that multiply them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/module_rules.h"
#include "models/quantisation.h"

namespace fettle {

class QuantizationSettings;

// How a checkpoint stores weights in 8-bit floats (e4m3). Each such weight <name> has a tensor <name> + `factors`. This
// tensor has one float for each block of `rows` x `columns` values, which multiplies these values. If it has a single
// float, the float is for the whole weight. If it has one column and as many rows as the weight, each float is for one
// row. Sources: transformers/integrations/finegrained_fp8.py, compressed-tensors.
struct Float8Storage {
  std::string factors = "_scale_inv";
  int64_t rows = 128, columns = 128;
  bool in_blocks = true;             // false: config.json says that a factor is for a row or for a whole weight
  std::vector<ModuleRule> excluded;  // modules that are not in 8-bit floats
  // Whether all modules that are not excluded have the same format. If config.json names single modules or states
  // several formats (config_groups), `uniform` is false. Then only the tensor files tell which modules are in 8-bit
  // floats, and in which format.
  bool uniform = true;

  // Returns the format on the device. Call it only if `uniform` is true. On the device, a factor for a whole weight is
  // stored once for each row.
  Quantisation format() const;
  // Returns the layers in which the checkpoint stores the whole weight in 8-bit floats. Call it only if `uniform` is
  // true.
  std::vector<int64_t> covered_layers(const Param& param) const;
};

// Read quantization_config of the method fp8, and that of compressed-tensors with floats. They throw UserError when a
// Float8Storage cannot describe the blocks or the format. Others use stored_form (quantization_config.h).
Float8Storage read_fp8(const QuantizationSettings& settings);
Float8Storage read_compressed_floats(const QuantizationSettings& settings);

}  // namespace fettle
