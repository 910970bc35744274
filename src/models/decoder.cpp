#include "models/decoder.h"

#include <cmath>

#include "base/error.h"
#include "graph/ops.h"
#include "models/attention.h"
#include "models/layers.h"

namespace fettle {

ModelConfig read_decoder_config(const ConfigReader& r) {
  ModelConfig c;
  r.read_common(c, false);
  c.hidden_size = r.integer("hidden_size");
  c.intermediate_size = r.integer("intermediate_size");
  c.num_hidden_layers = r.integer("num_hidden_layers");
  c.num_attention_heads = r.integer("num_attention_heads");
  c.num_key_value_heads = r.integer("num_key_value_heads", c.num_attention_heads);
  c.head_dim = r.integer("head_dim", c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings = r.integer("max_position_embeddings", 2048);
  c.norm_eps = r.number("rms_norm_eps", 1e-6);
  c.hidden_act = r.text("hidden_act", "silu");
  c.rope = r.rope();
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw UserError("{}: num_attention_heads ({}) does not divide by num_key_value_heads ({})", r.file(),
                    c.num_attention_heads, c.num_key_value_heads);
  if (c.head_dim % 2 != 0)
    throw UserError("{}: head_dim {} is odd; rotary embedding needs pairs", r.file(), c.head_dim);
  return c;
}

std::vector<WeightRow> decoder_weights(const ModelConfig& c) {
  const int64_t d = c.hidden_size, f = c.intermediate_size;
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const std::string layer = "model.layers.{}.", attn = layer + "self_attn.", mlp = layer + "mlp.";
  std::vector<WeightRow> rows{
      {"model.embed_tokens.weight", {c.vocab_size, d}, {"vocab", "embed"}},
      {layer + "input_layernorm.weight", {d}, {"norm"}, Init::kOnes},
      {attn + "q_proj.weight", {q, d}, {"heads", "embed"}},
      {attn + "k_proj.weight", {kv, d}, {"kv_heads", "embed"}},
      {attn + "v_proj.weight", {kv, d}, {"kv_heads", "embed"}},
      {attn + "o_proj.weight", {d, q}, {"embed", "heads"}},
      {layer + "post_attention_layernorm.weight", {d}, {"norm"}, Init::kOnes},
      {mlp + "gate_proj.weight", {f, d}, {"mlp", "embed"}},
      {mlp + "up_proj.weight", {f, d}, {"mlp", "embed"}},
      {mlp + "down_proj.weight", {d, f}, {"embed", "mlp"}},
      {"model.norm.weight", {d}, {"norm"}, Init::kOnes},
  };
  if (c.attention_bias) {
    rows.push_back({attn + "q_proj.bias", {q}, {"heads"}, Init::kZeros});
    rows.push_back({attn + "k_proj.bias", {kv}, {"kv_heads"}, Init::kZeros});
    rows.push_back({attn + "v_proj.bias", {kv}, {"kv_heads"}, Init::kZeros});
    if (!c.qkv_bias_only) rows.push_back({attn + "o_proj.bias", {d}, {"norm"}, Init::kZeros});
  }
  if (c.qk_norm) {
    rows.push_back({attn + "q_norm.weight", {c.head_dim}, {"norm"}, Init::kOnes});
    rows.push_back({attn + "k_norm.weight", {c.head_dim}, {"norm"}, Init::kOnes});
  }
  if (c.mlp_bias) {
    rows.push_back({mlp + "gate_proj.bias", {f}, {"mlp"}, Init::kZeros});
    rows.push_back({mlp + "up_proj.bias", {f}, {"mlp"}, Init::kZeros});
    rows.push_back({mlp + "down_proj.bias", {d}, {"norm"}, Init::kZeros});
  }
  if (!c.tie_word_embeddings) rows.push_back({"lm_head.weight", {c.vocab_size, d}, {"vocab", "embed"}});
  return rows;
}

Tensor decoder_forward(Forward& f) {
  const ModelConfig& c = f.config;
  const int64_t b = f.tokens.dim(0), t = f.tokens.dim(1);
  const Rope rope = rope_tables(c, f.positions);
  const std::optional<int64_t> window = c.uniform_window();
  constexpr double kWiderThanAnyRow = 1 << 30;
  std::vector<double> widths;
  for (int64_t w : c.window) widths.push_back(w > 0 ? static_cast<double>(w) : kWiderThanAnyRow);
  const Tensor windows = window ? Tensor{} : literal(widths, {DType::kI32, {c.num_hidden_layers}});

  auto self_attention = [&](const Layer& layer, const Tensor& x_BTD, LayerCache* cache) {
    auto heads = [&](const char* module, int64_t count, const char* axis) {
      const Tensor y = reshape(linear(f, layer, module, x_BTD), {b, t, count, c.head_dim});
      return f.sharding.constrain(y, {"batch", "length", axis, ""});
    };
    Tensor q = heads("self_attn.q_proj", c.num_attention_heads, "act_heads");
    Tensor k = heads("self_attn.k_proj", c.num_key_value_heads, "act_kv_heads");
    const Tensor v = heads("self_attn.v_proj", c.num_key_value_heads, "act_kv_heads");
    if (c.qk_norm) {
      q = rms_norm(q, layer["self_attn.q_norm.weight"], c.norm_eps);
      k = rms_norm(k, layer["self_attn.k_norm.weight"], c.norm_eps);
    }
    AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim))};
    if (!window) options.window = reshape(dynamic_slice(windows, {layer.index}, {1}), {});
    if (window && *window > 0) options.window = constant(static_cast<double>(*window), DType::kI32);
    const Tensor out = attention(f, apply_rope(rope, q), apply_rope(rope, k), v, options, cache);
    return linear(f, layer, "self_attn.o_proj", reshape(out, {b, t, c.num_attention_heads * c.head_dim}));
  };
  auto mlp = [&](const Layer& layer, const Tensor& x_BTD) {
    const Tensor gate = activation(c.hidden_act, linear(f, layer, "mlp.gate_proj", x_BTD));
    const Tensor hidden =
        f.sharding.constrain(gate * linear(f, layer, "mlp.up_proj", x_BTD), {"batch", "length", "act_mlp"});
    return linear(f, layer, "mlp.down_proj", hidden);
  };

  const Tensor x_BTD = embed(f, f.weights.at("model.embed_tokens.weight"), f.tokens);
  const Tensor out_BTD =
      run_layers(f, "model.layers.{}.", x_BTD, [&](const Layer& layer, const Tensor& x, LayerCache* cache) {
        const Tensor y = x + self_attention(layer, rms_norm(x, layer["input_layernorm.weight"], c.norm_eps), cache);
        return y + mlp(layer, rms_norm(y, layer["post_attention_layernorm.weight"], c.norm_eps));
      });
  return rms_norm(out_BTD, f.weights.at("model.norm.weight"), c.norm_eps);
}

Family decoder_family(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader& reader)) {
  return {.model_type = model_type,
          .architecture = architecture,
          .layer_prefix = "model.layers.{}.",
          .embedding = "model.embed_tokens.weight",
          .head = "lm_head.weight",
          .fan_in_fan_out = false,
          .read = read,
          .weights = decoder_weights,
          .forward = decoder_forward,
          .linears = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                      "mlp.up_proj", "mlp.down_proj"}};
}

}  // namespace fettle
