// Defines Float8Storage: how a checkpoint stores weights in 8-bit floats with factors.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fettle {

// How a checkpoint stores weights in 8-bit floats (e4m3). Beside each such weight <name> lies <name> + `factors`: one
// float for each block of rows x columns values, which multiplies them. A single float is for the whole weight, and
// [rows, 1] are for its rows. Sources: transformers/integrations/finegrained_fp8.py, compressed-tensors.
struct Float8Storage {
  std::string factors = "_scale_inv";
  int64_t rows = 128, columns = 128;
};
// Returns what 'quantization_config' of config.json says about this; nullopt when the weights are stored otherwise.
// Throws UserError when blocks or format are not as described above.
std::optional<Float8Storage> stored_float8(const nlohmann::json& config, const std::string& file);

}  // namespace fettle
