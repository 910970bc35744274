#include "checkpoint/gguf/write/folded_factors.h"

#include <algorithm>
#include <limits>

namespace fettle {
namespace {

constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

bool folds_tables(const ModelConfig& config) {
  return !config.tie_word_embeddings || config.embedding_scale == config.logit_scale;
}

}  // namespace

std::vector<RowFactors> folded_factors(const ModelConfig& config, const std::string& tensor) {
  if (!config.falcon_h1) return {};
  const FalconH1& h = *config.falcon_h1;
  const auto rows = [](int64_t count, double first, double second = 1) {
    return RowFactors{count, static_cast<float>(first), static_cast<float>(second)};
  };
  const auto is = [&](const char* module) { return tensor.ends_with(std::string(module) + ".weight"); };
  if (is("feed_forward.gate_proj")) return {rows(kAllRows, h.mlp_gate)};
  if (is("feed_forward.down_proj")) return {rows(kAllRows, h.mlp_out)};
  if (is("self_attn.q_proj") || is("self_attn.v_proj")) return {rows(kAllRows, h.attention_in)};
  if (is("self_attn.k_proj")) return {rows(kAllRows, h.keys, h.attention_in)};
  if (is("self_attn.o_proj")) return {rows(kAllRows, h.attention_out)};
  if (is("mamba.out_proj")) return {rows(kAllRows, h.mamba_out)};
  if (is("embed_tokens") && folds_tables(config)) return {rows(kAllRows, config.embedding_scale)};
  if (is("lm_head") && folds_tables(config)) return {rows(kAllRows, config.logit_scale)};
  if (!is("mamba.in_proj")) return {};
  const int64_t inner = config.mamba2->inner(), grouped = config.mamba2->groups * config.mamba2->state;
  const auto& parts = h.mamba_parts;
  return {rows(inner, h.mamba_in, parts[0]), rows(inner, h.mamba_in, parts[1]), rows(grouped, h.mamba_in, parts[2]),
          rows(grouped, h.mamba_in, parts[3]), rows(kAllRows, h.mamba_in, parts[4])};
}

ModelConfig without_folded_factors(ModelConfig config) {
  if (!config.falcon_h1) return config;
  config.falcon_h1 = FalconH1{};
  if (folds_tables(config)) config.embedding_scale = config.logit_scale = 1;
  return config;
}

void apply_factors(const std::vector<RowFactors>& factors, int64_t first_row, int64_t columns,
                   std::vector<float>& values) {
  if (factors.empty()) return;
  size_t range = 0;
  int64_t end = factors[0].rows;
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  for (int64_t row = 0; row < rows; ++row) {
    while (first_row + row >= end) end += std::min(factors[++range].rows, kAllRows - end);
    for (int64_t column = 0; column < columns; ++column) {
      float& value = values[static_cast<size_t>(row * columns + column)];
      value = value * factors[range].first * factors[range].second;
    }
  }
}

}  // namespace fettle
