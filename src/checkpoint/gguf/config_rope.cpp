#include "checkpoint/gguf/config_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "checkpoint/gguf/fields.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

}  // namespace

Json llama3_rope(const GgufFields& fields, const Json& config, const std::vector<double>& factors) {
  const double theta = config["rope_theta"];
  double factor = 1;
  for (double each : factors) factor = std::max(factor, each);
  const double low = 1, original = 8192;
  for (const double high : {4.0, 1.0}) {  // high_freq_factor of Llama 3 and of Llama 4
    bool same = true;
    for (size_t i = 0; i < factors.size(); ++i) {
      const double turn =
          2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(factors.size()));
      const double smooth = high > low ? (original / turn - low) / (high - low) : 1;
      const double wanted = turn < original / high  ? 1
                            : turn > original / low ? factor
                                                    : 1 / ((1 - smooth) / factor + smooth);
      same = same && std::abs(factors[i] - wanted) <= 1e-4 * wanted;
    }
    if (same)
      return {{"rope_type", "llama3"},
              {"factor", factor},
              {"low_freq_factor", low},
              {"high_freq_factor", high},
              {"original_max_position_embeddings", static_cast<int64_t>(original)}};
  }
  return {{"rope_type", "longrope"}, {"factor", 1.0},
          {"attention_factor", 1.0}, {"short_factor", factors},
          {"long_factor", factors},  {"original_max_position_embeddings", fields.integer(".context_length")}};
}

Json rope_scaling(const GgufFields& fields) {
  const double linear = fields.number(".rope.scale_linear", 1);
  const std::string type = fields.text(".rope.scaling.type", linear == 1 ? "none" : "linear");
  if (type == "none") return nullptr;
  const double factor = fields.number(".rope.scaling.factor", linear);
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type == "yarn") {
    Json out{{"rope_type", "yarn"},
             {"factor", factor},
             {"original_max_position_embeddings", fields.integer(".rope.scaling.original_context_length")}};
    for (const auto& [key, field] : {std::pair{".rope.scaling.yarn_beta_fast", "beta_fast"},
                                     {".rope.scaling.yarn_beta_slow", "beta_slow"},
                                     {".rope.scaling.yarn_attn_factor", "attention_factor"}})
      if (fields.has(key)) out[field] = fields.number(key, 0);
    return out;
  }
  if (type == "longrope") return nullptr;  // the factors of longrope are in tensors
  throw UserError(
      "{}: '{}.rope.scaling.type' is '{}', which Fettle does not support; use the model's safetensors files",
      fields.file(), fields.architecture(), type);
}

}  // namespace fettle
