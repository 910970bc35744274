// Defines what tests need to read the GGUF files that tests/reference/gguf_files.py made with llama.cpp's converter.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/gguf/gguf_folder.h"
#include "environment.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {

inline const std::filesystem::path kGgufFiles = source_folder() / "tests/reference/gguf";

// The families in tests/reference/models that GGUF supports and Fettle reads from GGUF.
inline const std::vector<std::string> kGgufFamilies{"llama",
                                                    "llama2",
                                                    "mistral",
                                                    "mixtral",
                                                    "qwen2",
                                                    "qwen3",
                                                    "qwen3_moe",
                                                    "gemma",
                                                    "gemma2",
                                                    "gemma3",
                                                    "phi3",
                                                    "starcoder2",
                                                    "gpt_bigcode",
                                                    "gpt2",
                                                    "gpt_neox",
                                                    "olmo2",
                                                    "olmo3",
                                                    "smollm3",
                                                    "granite",
                                                    "seed_oss",
                                                    "ernie4_5",
                                                    "glm",
                                                    "glm4",
                                                    "cohere2",
                                                    "ministral3",
                                                    "phi",
                                                    "lfm2",
                                                    "nemotron_h",
                                                    "nemotron_h_moe",
                                                    "falcon_h1",
                                                    "falcon_h1_gated",
                                                    "qwen2_moe_sparse",
                                                    "lfm2_moe",
                                                    "minimax_m2",
                                                    "glm4_moe",
                                                    "qwen3_5_small",
                                                    "deepseek_r1",
                                                    "glm4_moe_lite",
                                                    "qwen3_next_sparse",
                                                    "qwen3_5_moe_small",
                                                    "gpt_oss",
                                                    "gpt_oss_mxfp4",
                                                    "gemma4",
                                                    "gemma4_e2b",
                                                    "gemma4_moe",
                                                    "gemma4_unified",
                                                    "llama4",
                                                    "granite4",
                                                    "granite4_dense",
                                                    "baichuan7b"};

// Returns the model folder that Fettle makes from a GGUF file. The folder is in a cache that is deleted when the
// process ends.
inline std::filesystem::path unpacked(const std::filesystem::path& file) {
  static const TempFolder cache;
  const Environment place("FETTLE_CACHE", cache.path().string());
  return gguf_folder(file);
}

// Returns the config.json of a recorded model as a GGUF file of llama.cpp's converter states it. Fields that GGUF does
// not store, or that the converter reads differently (GLM), get the value that the file implies, or are removed so that
// the family's default applies.
inline nlohmann::json config_known_to_gguf(const std::string& family, nlohmann::json config) {
  if (family == "gemma2" || family == "gemma3") config["query_pre_attn_scalar"] = config["head_dim"];
  for (const char* name : {"gemma2", "gemma3", "cohere2"})
    if (family == name) config.erase("layer_types"), config.erase("_sliding_window_pattern");
  if (family == "gemma3") config["sliding_window_pattern"] = 6;
  if (family == "mistral" || family == "starcoder2") config["sliding_window"] = nullptr;
  if (family == "smollm3")
    for (const char* key : {"no_rope_layers", "no_rope_layer_interval"}) config.erase(key);
  if (family == "qwen3_moe") config["norm_topk_prob"] = true;
  // For GLM, llama.cpp's converter takes partial_rotary_factor as a share of hidden_size / heads instead of head_dim,
  // and reads the norms' epsilon from a field with another name.
  if (family == "glm") config["rope_parameters"]["partial_rotary_factor"] = 0.25, config["rms_norm_eps"] = 1e-5;
  // For Falcon-H1, the converter multiplied the weights by these factors.
  for (const char* key :
       {"attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier", "key_multiplier",
        "lm_head_multiplier", "mlp_multipliers", "ssm_in_multiplier", "ssm_multipliers", "ssm_out_multiplier"})
    if (family.starts_with("falcon_h1")) config.erase(key);
  if (family == "llama4") {  // llama.cpp has constants for these fields
    nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
    text["attention_chunk_size"] = text["floor_scale"] = 8192;
    text["rope_parameters"]["original_max_position_embeddings"] = 8192;
  }
  if (family == "gpt_bigcode") config["activation_function"] = "gelu_pytorch_tanh";
  return config;
}

}  // namespace fettle
