// Defines the pre-norm decoder with learned positions, LayerNorm and one module for q, k and v: what GPT-2 and
// GPT-BigCode share.
#pragma once

#include "models/model.h"

namespace fettle {

ModelConfig read_gpt_config(const ConfigReader& reader, const std::string& default_activation);
// A Family that lacks its `read`. With `fan_in_fan_out` linear weights are [in, out] (Conv1D) and q|k|v lie one after
// the other; else they are a Linear's, and q|k|v of many key heads lie by heads.
Family gpt_family(const std::string& model_type, const std::string& architecture, bool fan_in_fan_out);

}  // namespace fettle
