// Defines ModelConfig: what a model's config.json says, under Hugging Face's names.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/shape.h"

namespace fettle {

// Source: transformers/modeling_rope_utils.py.
struct RopeParameters {
  std::string rope_type = "default";  // default, linear, llama3
  double rope_theta = 10000;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;
};

// Fields of all families; a family reads those it has. Lengths in tokens, sizes in elements.
struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double norm_eps = 1e-6;  // rms_norm_eps, layer_norm_epsilon
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  bool attention_bias = false;  // on q, k, v (and o unless qkv_bias_only)
  bool qkv_bias_only = false;   // qwen2
  bool qk_norm = false;         // qwen3
  bool mlp_bias = false;
  double initializer_range = 0.02;
  RopeParameters rope;
  std::vector<int64_t> window;  // by layer: keys a query sees, itself included; 0 = all before it
  DType dtype = DType::kF32;    // of the weights in the checkpoint
  std::vector<int32_t> eos_token_id;
  std::optional<int32_t> bos_token_id, pad_token_id;

  // The window of all layers when they agree (0 = none), else null.
  std::optional<int64_t> uniform_window() const;
};

// Reads fields of config.json with the error messages users see.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string file) : json_(json), file_(std::move(file)) {}

  int64_t integer(const std::string& key) const;                     // > 0; throws UserError when missing
  int64_t integer(const std::string& key, int64_t otherwise) const;  // null counts as missing
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool has(const std::string& key) const;  // there and not null
  // Throws UserError unless the field is absent, null or equal to `value`: the rest is not implemented.
  void refuse_unless(const std::string& key, const nlohmann::json& value) const;
  // The fields that all families share: ids, dtype, initializer_range, vocab_size, tie_word_embeddings.
  void read_common(ModelConfig& config, bool tied_by_default) const;
  // rope_theta + rope_scaling (Transformers 4) or rope_parameters (5).
  RopeParameters rope() const;

  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* find(const std::string& key) const;
  const nlohmann::json& json_;
  std::string file_;
};

}  // namespace fettle
