// Declares the functions that add a family's own fields to config.json (GgufFamily::config).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace fettle {

class GgufFields;

void no_fields(const GgufFields& fields, nlohmann::json& config);
void bias_fields(const GgufFields& fields, nlohmann::json& config);
void llama_fields(const GgufFields& fields, nlohmann::json& config);
void mistral_fields(const GgufFields& fields, nlohmann::json& config);
void mixtral_fields(const GgufFields& fields, nlohmann::json& config);
void ministral3_fields(const GgufFields& fields, nlohmann::json& config);
void qwen3_moe_fields(const GgufFields& fields, nlohmann::json& config);
void qwen2_moe_fields(const GgufFields& fields, nlohmann::json& config);
void qwen3_5_fields(const GgufFields& fields, nlohmann::json& config);
void qwen3_next_fields(const GgufFields& fields, nlohmann::json& config);
void gemma_fields(const GgufFields& fields, nlohmann::json& config);
void gemma2_fields(const GgufFields& fields, nlohmann::json& config);
void gemma3_fields(const GgufFields& fields, nlohmann::json& config);
void phi2_fields(const GgufFields& fields, nlohmann::json& config);
void phi3_fields(const GgufFields& fields, nlohmann::json& config);
void starcoder2_fields(const GgufFields& fields, nlohmann::json& config);
void gpt_bigcode_fields(const GgufFields& fields, nlohmann::json& config);
void gpt2_fields(const GgufFields& fields, nlohmann::json& config);
void gpt_neox_fields(const GgufFields& fields, nlohmann::json& config);
void olmo3_fields(const GgufFields& fields, nlohmann::json& config);
void smollm3_fields(const GgufFields& fields, nlohmann::json& config);
void granite_fields(const GgufFields& fields, nlohmann::json& config);
void seed_oss_fields(const GgufFields& fields, nlohmann::json& config);
void ernie4_5_fields(const GgufFields& fields, nlohmann::json& config);
void glm_fields(const GgufFields& fields, nlohmann::json& config);
void lfm2_fields(const GgufFields& fields, nlohmann::json& config);
void lfm2_moe_fields(const GgufFields& fields, nlohmann::json& config);
void minimax_m2_fields(const GgufFields& fields, nlohmann::json& config);
void deepseek_fields(const GgufFields& fields, nlohmann::json& config);
void glm4_moe_fields(const GgufFields& fields, nlohmann::json& config);
void nemotron_h_fields(const GgufFields& fields, nlohmann::json& config);
void falcon_h1_fields(const GgufFields& fields, nlohmann::json& config);
void gemma4_fields(const GgufFields& fields, nlohmann::json& config);
void llama4_fields(const GgufFields& fields, nlohmann::json& config);
void granite4_fields(const GgufFields& fields, nlohmann::json& config);
void baichuan_fields(const GgufFields& fields, nlohmann::json& config);
void gpt_oss_fields(const GgufFields& fields, nlohmann::json& config);
void cohere2_fields(const GgufFields& fields, nlohmann::json& config);

}  // namespace fettle
