// Declares the families; model.cpp lists them in its table.
#pragma once

#include "models/model.h"

namespace fettle {

Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_moe_family();
Family qwen2_moe_family();
Family glm4_moe_family();
Family deepseek_v3_family();
Family kimi_k2_family();
Family qwen3_5_text_family();
Family qwen3_5_moe_text_family();
Family qwen3_5_moe_family();
Family qwen3_next_family();
Family glm4_moe_lite_family();
Family deepseek_v2_family();
Family minimax_m2_family();
Family qwen3_5_family();
Family mixtral_family();
Family gemma_family();
Family ministral3_family();
Family mistral3_family();
Family gemma3_wrapped_family();
Family gemma2_family();
Family gemma3_family();
Family gemma4_text_family();
Family gemma4_family();
Family gemma4_unified_text_family();
Family gemma4_unified_family();
Family olmo2_family();
Family olmo3_family();
Family exaone4_family();
Family smollm3_family();
Family granite_family();
Family granitemoe_family();
Family seed_oss_family();
Family ernie4_5_family();
Family ernie4_5_moe_family();
Family glm_family();
Family glm4_family();
Family cohere2_family();
Family gpt_neox_family();
Family gpt_oss_family();
Family phi3_family();
Family phi_family();
Family llama4_text_family();
Family llama4_family();
Family lfm2_family();
Family lfm2_moe_family();
Family granite4_family();
Family falcon_h1_family();
Family nemotron_h_family();
Family starcoder2_family();
Family baichuan_family();
Family gpt2_family();
Family gpt_bigcode_family();
Family bert_family();
Family roberta_family();
Family xlm_roberta_family();
Family modernbert_family();

}  // namespace fettle
