// Defines set_config_metadata, which sets the keys of a GGUF file that describe the model, from the model's
// config.json.
//
// set_config_metadata is the inverse of gguf_config(). For each model that is written, check_expressible()
// (config_check.h) reads the config back from the keys and compares it with the model's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/gguf/write/metadata.h"
#include "models/config.h"

namespace fettle {

constexpr int64_t kSoftmaxGating = 1, kSigmoidGating = 2;  // values of expert_gating_func

struct GgufFamily;

// A small f32 vector that is stored as a tensor although it belongs to the config: factors of rope.
struct GgufTable {
  std::string tensor;
  std::vector<float> values;
};

// Sets the keys that describe the model, and returns the model's tables of rope factors. `json` is the object in
// config.json that has the text model's fields.
std::vector<GgufTable> set_config_metadata(const GgufFamily& family, const ModelConfig& config,
                                           const nlohmann::json& json, GgufMetadata& metadata);

// These functions set the keys that only some families have (GgufFamily::metadata).
using SetMetadata = void (*)(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void no_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void ministral3_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void qwen3_moe_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void qwen2_moe_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void qwen3_5_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void qwen3_5_moe_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void qwen3_next_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void gemma2_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void gemma3_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void phi3_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void gpt_neox_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void olmo3_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void granite_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void lfm2_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void lfm2_moe_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void minimax_m2_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
// Sets the keys of models whose first layers are dense and whose other layers have experts and a shared expert
// (GLM-4.5, DeepSeek).
void routed_experts_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void deepseek_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void nemotron_h_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void falcon_h1_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void gemma4_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void llama4_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void granite4_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void baichuan_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void gpt_oss_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);
void cohere2_metadata(const ModelConfig& config, const nlohmann::json& json, GgufMetadata& metadata);

}  // namespace fettle
