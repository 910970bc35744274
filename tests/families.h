// Defines kFamilies: the models of tests/reference/models that the tests of all families use.
#pragma once

#include <string>
#include <vector>

namespace fettle {

inline const std::vector<std::string> kFamilies{"llama",
                                                "llama2",
                                                "mistral",
                                                "qwen2",
                                                "qwen3",
                                                "gpt2",
                                                "gemma2",
                                                "gemma3",
                                                "phi3",
                                                "starcoder2",
                                                "gpt_bigcode",
                                                "baichuan7b",
                                                "baichuan13b",
                                                "mixtral",
                                                "qwen3_moe",
                                                "gemma",
                                                "olmo2",
                                                "olmo3",
                                                "smollm3",
                                                "granite",
                                                "seed_oss",
                                                "ernie4_5",
                                                "glm",
                                                "glm4",
                                                "cohere2",
                                                "gpt_neox",
                                                "ministral3",
                                                "gemma3_wrapped",
                                                "mistral3",
                                                "gpt_oss",
                                                "qwen3_5_text",
                                                "qwen3_5",
                                                "qwen2_moe",
                                                "glm4_moe",
                                                "deepseek_v3",
                                                "qwen3_next",
                                                "qwen3_5_moe",
                                                "gpt_oss_mxfp4",
                                                "deepseek_v2",
                                                "glm4_moe_lite",
                                                "minimax_m2",
                                                "gemma4",
                                                "gemma4_moe",
                                                "gemma4_e2b",
                                                "gemma4_unified",
                                                "qwen3_fp8",
                                                "llama4",
                                                "lfm2",
                                                "lfm2_moe",
                                                "granite4",
                                                "granite4_dense",
                                                "falcon_h1",
                                                "falcon_h1_gated",
                                                "nemotron_h",
                                                "nemotron_h_moe",
                                                "phi",
                                                "phi_normed",
                                                "qwen3_gptq",
                                                "qwen2_awq",
                                                "qwen3_moe_packed"};

// Encoders, which can only classify. classifiers.py makes their folders.
inline const std::vector<std::string> kEncoders{"bert", "roberta", "modernbert", "modernbert_mean"};

}  // namespace fettle
