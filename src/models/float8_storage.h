// Defines Float8Storage: how a checkpoint stores weights as 8-bit floats and factors that multiply them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/module_rules.h"
#include "models/quantisation.h"

namespace fettle {

// How a checkpoint stores weights in 8-bit floats (e4m3). Each such weight <name> has a tensor <name> + `factors` with
// one float for each block of `rows` x `columns` values. The float multiplies the values. A tensor with a single float
// is for the whole weight; a tensor with one column and as many rows as the weight has one float for each row. Sources:
// transformers/integrations/finegrained_fp8.py, compressed-tensors.
struct Float8Storage {
  std::string factors = "_scale_inv";
  int64_t rows = 128, columns = 128;
  bool in_blocks = true;             // false: config.json says that a factor is for a row or for a whole weight
  std::vector<ModuleRule> excluded;  // modules that are not in 8-bit floats
  // Whether all modules that are not excluded have one format. If config.json names single modules or states several
  // formats (config_groups), it does not tell which modules are in 8-bit floats and how; only the files do.
  bool uniform = true;

  // Returns the format on the device, if `uniform`. A factor for a whole weight is stored for each row there.
  Quantisation format() const;
  // Returns the layers in which the checkpoint stores all of this weight in 8-bit floats, if `uniform`.
  std::vector<int64_t> covered_layers(const Param& param) const;
};
// Returns the storage that 'quantization_config' of config.json describes; nullopt when the weights are not 8-bit
// floats. Throws UserError when blocks or format differ from the description above.
std::optional<Float8Storage> stored_float8(const nlohmann::json& config, const std::string& file);

}  // namespace fettle
