// Defines the pre-norm decoder with learned positions, LayerNorm and one module for q, k and v: what GPT-2 and
// GPT-BigCode share.
#pragma once

#include "models/model.h"

namespace fettle {

ModelConfig read_gpt_config(const ConfigReader& reader, const std::string& default_activation);
// `conv1d`: linear weights are [in, out]. q|k|v lie one after the other, but by heads in a Linear of many key heads.
std::vector<WeightRow> gpt_weights(const ModelConfig& config, bool conv1d);
Tensor gpt_forward(Forward& f, bool conv1d);
// A Family that lacks its config, weights and forward.
Family gpt_family(const std::string& model_type, const std::string& architecture);

}  // namespace fettle
