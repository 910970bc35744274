// Defines llama3_rope and rope_scaling, which derive config.json's settings of scaled positions from a GGUF file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace fettle {

class GgufFields;

// Llama 3.1 scales frequencies by a formula, but the file has only the resulting factors. Returns the settings of the
// formula that give these factors. If no settings give them, returns longrope with the same factors for every length.
// `config` has the field rope_theta.
nlohmann::json llama3_rope(const GgufFields& fields, const nlohmann::json& config, const std::vector<double>& factors);

// Returns the value of rope_scaling in config.json. Returns null when positions are not scaled, and for longrope, whose
// factors are in tensors. Throws UserError for a kind that Fettle does not support.
nlohmann::json rope_scaling(const GgufFields& fields);

}  // namespace fettle
