// Defines the pre-norm decoder: rotary attention and an MLP, with the variations that ModelConfig names.
#pragma once

#include "models/model.h"

namespace fettle {

std::vector<Param> decoder_params(const ModelConfig& config);
Tensor decoder_forward(Forward& f);
// Reads the fields that these families have in common.
ModelConfig read_decoder_config(const ConfigReader& reader, bool tied_by_default = false);
// Returns the Family of a decoder. Families differ only in their names and in how their config is read.
Family decoder_family(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader& reader));

}  // namespace fettle
