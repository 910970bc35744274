// Defines check_expressible, which checks that the config read back from a GGUF file equals the model's config.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checkpoint/gguf/write/config_metadata.h"

namespace fettle {

struct GgufFamily;

// Reads a config back from the metadata, the tables and `tensors` (the tensors of the file), and compares it with
// `config`. Throws UserError, which names `model` and the first setting that GGUF cannot express. If only the sliding
// window is lost, because llama.cpp has none in this family, warns instead.
void check_expressible(const GgufFamily& family, const GgufMetadata& metadata, const std::vector<GgufTable>& tables,
                       std::vector<GgufTensor> tensors, const ModelConfig& config, const std::string& model);

}  // namespace fettle
