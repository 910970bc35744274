// Defines the pre-norm decoder with learned positions, LayerNorm and one module for q, k and v, which GPT-2 and
// GPT-BigCode share.
#pragma once

#include "models/model.h"

namespace fettle {

ModelConfig read_gpt_config(const ConfigReader& reader, const std::string& default_activation);
// Returns a Family without its `read`. With `fan_in_fan_out`, linear weights are [in, out] (Conv1D), and the outputs of
// the module for q, k and v are all of q, then k, then v. Otherwise weights are [out, in]; with several key heads, the
// outputs of this module are grouped by heads.
Family gpt_family(const std::string& model_type, const std::string& architecture, bool fan_in_fan_out);

}  // namespace fettle
