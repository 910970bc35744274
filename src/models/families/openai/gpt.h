// Defines the decoder that GPT-2 and GPT-BigCode share: pre-norm, with LayerNorm, learned positions, and one module for
// q, k and v.
#pragma once

#include "models/model.h"

namespace fettle {

ModelConfig read_gpt_config(const ConfigReader& reader, const std::string& default_activation);
// Returns a Family without its `read`. If `fan_in_fan_out` is true, linear weights are [in, out] (Conv1D), and the
// module for q, k and v has all outputs for q first, then those for k, then those for v. If it is false, linear weights
// are [out, in], and this module has all outputs of a head together, unless there is only one key head.
Family gpt_family(const std::string& model_type, const std::string& architecture, bool fan_in_fan_out);

}  // namespace fettle
