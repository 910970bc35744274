#include "models/blocks/decoder_layer.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "models/blocks/experts/moe.h"

namespace fettle {
namespace {

constexpr double kWiderThanAnyRow = 1 << 30;

}  // namespace

Decoder::Decoder(Forward& forward) : f(forward), config(forward.config) {
  const ModelConfig& c = config;
  if (!c.alibi) rope_ = rope_tables(c.rope, c.head_dim, f.positions, f.lengths);
  if (c.local_rope) local_rope_ = rope_tables(*c.local_rope, c.head_dim, f.positions, f.lengths);
  if (!c.uniform_window()) {
    std::vector<double> widths;
    for (int64_t w : c.window) widths.push_back(w > 0 ? static_cast<double>(w) : kWiderThanAnyRow);
    widths_ = literal(widths, {DType::kI32, {c.num_hidden_layers}});
  }
  if (std::ranges::find(c.rotates, false) != c.rotates.end())
    rotated_ = literal({c.rotates.begin(), c.rotates.end()}, {DType::kI32, {c.num_hidden_layers}});
}

Tensor Decoder::norm(const Layer& layer, const std::string& name, const Tensor& x) const {
  return fettle::norm(config, layer, name, x, &f.sharding);
}

Tensor Decoder::window_of(const Layer& layer) const {
  if (widths_) return reshape(dynamic_slice(widths_, {layer.index}, {1}), {});
  const int64_t window = *config.uniform_window();
  return window > 0 ? constant(static_cast<double>(window), DType::kI32) : Tensor{};
}

Tensor Decoder::rotates(const Layer& layer) const {
  if (!rotated_) return {};
  return compare(reshape(dynamic_slice(rotated_, {layer.index}, {1}), {}), Direction::kNE, constant(0, DType::kI32));
}

Rope Decoder::rope_of(const Layer& layer, const Tensor& window) const {
  Rope out = rope_;
  if (local_rope_ && window) {
    const Tensor local = compare(window, Direction::kLT, constant(kWiderThanAnyRow, DType::kI32));
    out = {select(local, local_rope_->cos, out.cos), select(local, local_rope_->sin, out.sin), out.interleaved};
  }
  if (const Tensor has = rotates(layer))
    out = {select(has, out.cos, full(1, out.cos.shape())), select(has, out.sin, zeros_like(out.sin)), out.interleaved};
  return out;
}

Heads Decoder::project(const Layer& layer, const Tensor& x_BTD) const {
  const ModelConfig& c = config;
  const int64_t n = c.num_attention_heads, k = c.num_key_value_heads, parts = n / k + 2;
  auto heads = [&](const Tensor& y, int64_t count, const char* axis) {
    const Tensor y_BTNH = reshape(y, {x_BTD.dim(0), x_BTD.dim(1), count, c.head_dim});
    return f.sharding.constrain(y_BTNH, {"batch", "length", axis, ""});
  };
  auto of_all = [&](const Tensor& q, const Tensor& key, const Tensor& value) -> Heads {
    return {heads(q, n, "act_heads"), heads(key, k, "act_kv_heads"), heads(value, k, "act_kv_heads")};
  };
  auto module = [&](const std::string& name) { return linear(f, layer, c.attention_module + "." + name, x_BTD); };
  if (c.fused_qkv.empty()) return of_all(module("q_proj"), module("k_proj"), module("v_proj"));
  const Tensor y_BTPO = module(c.fused_qkv);
  return of_all(slice(y_BTPO, 2, 0, parts - 2), slice(y_BTPO, 2, parts - 2, parts - 1),
                slice(y_BTPO, 2, parts - 1, parts));
}

Heads Decoder::rotate(const Layer& layer, const Heads& heads) const {
  if (config.alibi) return heads;
  const Rope rope = rope_of(layer, window_of(layer));
  return {apply_rope(rope, heads.q_BTNH), apply_rope(rope, heads.k_BTKH), heads.v_BTKH};
}

Tensor Decoder::norm_of_all_heads(const Layer& layer, const std::string& name, const Tensor& x) const {
  return reshape(norm(layer, name, reshape(x, {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)})), x.dims());
}

Tensor Decoder::seen_values(const Layer& layer, const Heads& heads, LayerCache* cache) const {
  const ModelConfig& c = config;
  AttentionOptions options{
      .scale = c.attention_scale, .softcap = c.attention_softcap, .causal = c.causal, .window = window_of(layer)};
  if (options.scale == 0) options.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (layer.has("self_attn.sinks")) options.sinks_N = layer["self_attn.sinks"];
  if (c.attention_chunk > 0) {
    const Tensor has_rope = rotates(layer), size = constant(static_cast<double>(c.attention_chunk), DType::kI32);
    options.chunk = has_rope ? select(has_rope, size, constant(kWiderThanAnyRow, DType::kI32)) : size;
  }
  if (c.alibi) options.slopes = alibi_slopes(c.num_attention_heads);
  const Tensor out = fettle::attention(f, heads.q_BTNH, heads.k_BTKH, heads.v_BTKH, options, cache);
  return reshape(out, {out.dim(0), out.dim(1), out.dim(2) * out.dim(3)});
}

Tensor Decoder::attend(const Layer& layer, const Heads& heads, LayerCache* cache, const std::string& output) const {
  return linear(f, layer, config.attention_module + "." + output, seen_values(layer, heads, cache));
}

Tensor Decoder::attention(const Layer& layer, const Tensor& x_BTD, LayerCache* cache) const {
  Heads heads = project(layer, x_BTD);
  if (config.qk_norm) {
    heads.q_BTNH = norm(layer, "self_attn.q_norm", heads.q_BTNH);
    heads.k_BTKH = norm(layer, "self_attn.k_norm", heads.k_BTKH);
  }
  return attend(layer, rotate(layer, heads), cache);
}

Tensor Decoder::gated(const Layer& layer, const MlpNames& names, const Tensor& x_BTD) const {
  const Tensor gate = linear(f, layer, names.gate, x_BTD), up = linear(f, layer, names.up, x_BTD);
  const Tensor hidden = fettle::gated(f.sharding, config.hidden_act, gate, up);
  return linear(f, layer, names.down, f.sharding.constrain(hidden, {"batch", "length", "act_mlp"}));
}

Tensor Decoder::shared_expert(const Layer& layer, const Tensor& x_BTD) const {
  const SharedExpert& shared = *config.shared_expert;
  const Tensor out = gated(layer, MlpNames::in(shared.module), x_BTD);
  return shared.gate.empty() ? out : out * logistic(linear(f, layer, shared.gate, x_BTD));
}

Tensor Decoder::mlp(const Layer& layer, const Tensor& x_BTD) const {
  const ModelConfig& c = config;
  if (c.mlp == Mlp::kExperts && layer.has(c.experts.router + ".weight")) {
    const Tensor routed = experts_mlp(f, layer, x_BTD);
    return c.shared_expert ? routed + shared_expert(layer, x_BTD) : routed;
  }
  const MlpNames& names = c.mlp_names;
  if (c.mlp == Mlp::kGated || c.mlp == Mlp::kExperts) return gated(layer, names, x_BTD);
  auto hold = [&](const Tensor& hidden) { return f.sharding.constrain(hidden, {"batch", "length", "act_mlp"}); };
  if (c.mlp == Mlp::kPlain)
    return linear(f, layer, names.down, hold(activation(c.hidden_act, linear(f, layer, names.up, x_BTD))));
  const Tensor y_BT2F = f.sharding.constrain(linear(f, layer, names.up, x_BTD), {"batch", "length", "", "act_mlp"});
  const Dims one{x_BTD.dim(0), x_BTD.dim(1), c.intermediate_size};
  const Tensor gate = reshape(slice(y_BT2F, 2, 0, 1), one), up = reshape(slice(y_BT2F, 2, 1, 2), one);
  return linear(f, layer, names.down, hold(fettle::gated(f.sharding, c.hidden_act, gate, up)));
}

void add_norm(ParamList& list, const ModelConfig& c, const std::string& module, int64_t size) {
  list.norm(module, size, c.norm == Norm::kRmsPlusOne ? Init::kZeros : Init::kOnes, c.norm == Norm::kLayer);
}

void add_attention(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * c.head_dim, "heads"},
      kv{c.num_key_value_heads * c.head_dim, "kv_heads"};
  const LinearOptions options{.bias = c.attention_bias}, heads{.bias = c.attention_bias, .head_rows = c.head_dim};
  const std::string module = c.attention_module + ".";
  if (!c.fused_qkv.empty()) {
    // All parts of the fused dim have the size of k. The first q.size / kv.size parts are q; the last two are k and v.
    list.linear(module + c.fused_qkv, kv, d, {.bias = c.attention_bias, .parts = q.size / kv.size + 2});
  } else {
    list.linear(module + "q_proj", q, d, heads);
    list.linear(module + "k_proj", kv, d, heads);
    list.linear(module + "v_proj", kv, d, options);
  }
  list.linear(module + "o_proj", d, q, {.bias = c.output_bias.value_or(c.attention_bias)});
  if (c.qk_norm) {
    add_norm(list, c, module + "q_norm", c.head_dim);
    add_norm(list, c, module + "k_norm", c.head_dim);
  }
}

void add_gated(ParamList& list, const ModelConfig& c, const MlpNames& names, int64_t size, bool bias) {
  const SizedAxis d{c.hidden_size, "embed"}, inner{size, "mlp"};
  list.linear(names.gate, inner, d, {.bias = bias});
  list.linear(names.up, inner, d, {.bias = bias});
  list.linear(names.down, d, inner, {.bias = bias});
}

void add_mlp(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, f{c.intermediate_size, "mlp"};
  if (c.mlp == Mlp::kExperts) {
    if (c.expert_layers) list.in_layers(c.expert_layers->numbers);
    add_expert_params(list, c);
    if (c.shared_expert) {
      add_gated(list, c, MlpNames::in(c.shared_expert->module), c.shared_expert->size);
      if (!c.shared_expert->gate.empty()) list.linear(c.shared_expert->gate, {1, ""}, d);
    }
    if (!c.expert_layers) return;
    list.in_layers(layers_without(*c.expert_layers, c.num_hidden_layers).numbers);
  }
  const LinearOptions options{.bias = c.mlp_bias};
  const MlpNames& names = c.mlp_names;
  if (c.mlp == Mlp::kGated || c.mlp == Mlp::kExperts) {
    add_gated(list, c, names, c.intermediate_size, c.mlp_bias);
  } else {
    list.linear(names.up, f, d, c.mlp == Mlp::kPlain ? options : LinearOptions{.bias = c.mlp_bias, .parts = 2});
    list.linear(names.down, d, f, options);
  }
  if (c.mlp == Mlp::kExperts) list.in_layers();
}

void add_pre_norm_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_attention(list, c);
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor pre_norm_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  auto added = [&](const Tensor& part) { return d.config.residual_scale == 1 ? part : part * d.config.residual_scale; };
  const Tensor y = x + added(d.attention(layer, d.norm(layer, "input_layernorm", x), cache));
  return y + added(d.mlp(layer, d.norm(layer, "post_attention_layernorm", y)));
}

}  // namespace fettle
