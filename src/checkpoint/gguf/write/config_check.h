// Defines check_expressible: whether a GGUF file says the same about a model as its config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checkpoint/gguf/write/config_metadata.h"

namespace fettle {

struct GgufFamily;

// Reads the metadata and the tables back and compares the config with the model's. `tensors` are those of the file.
// `model` names the model in messages. Throws UserError that names the first setting which GGUF cannot express. Warns
// when only the window of attention is lost, which llama.cpp does not have in this family.
void check_expressible(const GgufFamily& family, const GgufMetadata& metadata, const std::vector<GgufTable>& tables,
                       std::vector<GgufTensor> tensors, const ModelConfig& config, const std::string& model);

}  // namespace fettle
