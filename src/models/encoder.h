// Defines the encoder that BERT and RoBERTa share: post-norm, with learned positions. Every token of a document attends
// to the whole document. Source: transformers/models/{bert,roberta}. Dropout is not applied.
#pragma once

#include "models/model.h"

namespace fettle {

// Returns a config with the sizes that all encoders have. Throws UserError when the heads do not divide the hidden
// size.
ModelConfig read_encoder_sizes(const ConfigReader& reader, int64_t default_positions);
// Returns the config of BERT and RoBERTa.
ModelConfig read_encoder_config(const ConfigReader& reader);
// Returns a Family without its classifier head. The names of its parameters begin with `prefix`, which is "bert." or
// "roberta."; a checkpoint of the encoder alone omits this prefix.
Family encoder_family(const std::string& model_type, const std::string& architecture, const std::string& prefix,
                      std::vector<Param> (*params)(const ModelConfig& config), Tensor (*forward)(Forward& f));
std::vector<Param> encoder_params(const ModelConfig& config, const std::string& prefix);
Tensor encoder_forward(Forward& f, const std::string& prefix);

}  // namespace fettle
