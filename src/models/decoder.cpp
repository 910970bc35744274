#include "models/decoder.h"

#include <cmath>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/attention.h"
#include "models/blocks/layers.h"
#include "models/blocks/moe.h"
#include "models/blocks/rope.h"

namespace fettle {

ModelConfig read_decoder_config(const ConfigReader& r, bool tied_by_default) {
  ModelConfig c;
  r.read_common(c, tied_by_default);
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
  c.local_rope = r.local_rope();
  r.note_dropouts(c, {"attention_dropout"});
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw UserError("{}: num_attention_heads ({}) does not divide by num_key_value_heads ({})", r.file(),
                    c.num_attention_heads, c.num_key_value_heads);
  const int64_t rotated = c.rope.rotary_dim(c.head_dim);
  if (c.head_dim % 2 != 0)
    throw UserError("{}: head_dim {} is odd; rotary embedding needs an even number", r.file(), c.head_dim);
  if (rotated % 2 != 0 || rotated <= 0 || rotated > c.head_dim)
    throw UserError("{}: partial_rotary_factor {} makes {} of {} dims rotated; rotary embedding needs an even number",
                    r.file(), c.rope.partial_rotary_factor, rotated, c.head_dim);
  if (c.rope.rope_type == "longrope")
    for (const auto& [key, factors] :
         {std::pair{"short_factor", &c.rope.short_factor}, std::pair{"long_factor", &c.rope.long_factor}})
      if (factors->size() != static_cast<size_t>(rotated / 2))
        throw UserError("{}: '{}' of longrope has {} values, wanted {}, one for each two rotated dims", r.file(), key,
                        factors->size(), rotated / 2);
  return c;
}

namespace {

const std::string kLayer = "model.layers.{}.";

void add_norm(ParamList& list, const ModelConfig& c, const std::string& module, int64_t size) {
  list.norm(module, size, c.norm == Norm::kRmsPlusOne ? Init::kZeros : Init::kOnes, c.norm == Norm::kLayer);
}

void add_attention(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * c.head_dim, "heads"},
      kv{c.num_key_value_heads * c.head_dim, "kv_heads"};
  const LinearOptions options{.bias = c.attention_bias};
  if (!c.fused_qkv.empty()) {
    // All parts have the size of k and v; q takes q / kv of them.
    list.linear("self_attn." + c.fused_qkv, kv, d, {.bias = c.attention_bias, .parts = q.size / kv.size + 2});
  } else {
    list.linear("self_attn.q_proj", q, d, options);
    list.linear("self_attn.k_proj", kv, d, options);
    list.linear("self_attn.v_proj", kv, d, options);
  }
  list.linear("self_attn.o_proj", d, q, {.bias = c.attention_bias && !c.qkv_bias_only});
  if (c.qk_norm) {
    add_norm(list, c, "self_attn.q_norm", c.head_dim);
    add_norm(list, c, "self_attn.k_norm", c.head_dim);
  }
}

void add_mlp(ParamList& list, const ModelConfig& c) {
  if (c.mlp == Mlp::kExperts) return add_expert_params(list, c);
  const SizedAxis d{c.hidden_size, "embed"}, f{c.intermediate_size, "mlp"};
  const LinearOptions options{.bias = c.mlp_bias};
  if (c.mlp == Mlp::kFusedGated) list.linear("mlp.gate_up_proj", f, d, {.bias = c.mlp_bias, .parts = 2});
  if (c.mlp == Mlp::kGated) {
    list.linear("mlp.gate_proj", f, d, options);
    list.linear("mlp.up_proj", f, d, options);
  }
  if (c.mlp == Mlp::kPlain) list.linear("mlp.c_fc", f, d, options);
  list.linear(c.mlp == Mlp::kPlain ? "mlp.c_proj" : "mlp.down_proj", d, f, options);
}

// The settings that differ from layer to layer, chosen inside the loop over the layers.
class LayerKinds {
 public:
  LayerKinds(const Forward& f) : config_(f.config), window_(f.config.uniform_window()) {
    const ModelConfig& c = config_;
    if (!c.alibi) rope_ = rope_tables(c.rope, c.head_dim, f.positions, f.lengths);
    if (c.local_rope) local_rope_ = rope_tables(*c.local_rope, c.head_dim, f.positions, f.lengths);
    std::vector<double> widths;
    for (int64_t w : c.window) widths.push_back(w > 0 ? static_cast<double>(w) : kWiderThanAnyRow);
    if (!window_) widths_ = literal(widths, {DType::kI32, {c.num_hidden_layers}});
  }

  // Returns null when no layer has a window.
  Tensor window(const Layer& layer) const {
    if (!window_) return reshape(dynamic_slice(widths_, {layer.index}, {1}), {});
    return *window_ > 0 ? constant(static_cast<double>(*window_), DType::kI32) : Tensor{};
  }
  Rope rope(const Tensor& window) const {
    if (!local_rope_ || !window) return rope_;
    const Tensor local = compare(window, "LT", constant(kWiderThanAnyRow, DType::kI32));
    return {select(local, local_rope_->cos, rope_.cos), select(local, local_rope_->sin, rope_.sin)};
  }

 private:
  static constexpr double kWiderThanAnyRow = 1 << 30;
  const ModelConfig& config_;
  std::optional<int64_t> window_;
  Tensor widths_;
  Rope rope_;
  std::optional<Rope> local_rope_;
};

struct Heads {
  Tensor q_BTNH, k_BTKH, v_BTKH;
};

Heads project(const Forward& f, const Layer& layer, const Tensor& x_BTD) {
  const ModelConfig& c = f.config;
  const int64_t n = c.num_attention_heads, k = c.num_key_value_heads, parts = n / k + 2;
  auto heads = [&](const Tensor& y, int64_t count, const char* axis) {
    const Tensor y_BTNH = reshape(y, {x_BTD.dim(0), x_BTD.dim(1), count, c.head_dim});
    return f.sharding.constrain(y_BTNH, {"batch", "length", axis, ""});
  };
  auto of_all = [&](const Tensor& q, const Tensor& key, const Tensor& value) -> Heads {
    return {heads(q, n, "act_heads"), heads(key, k, "act_kv_heads"), heads(value, k, "act_kv_heads")};
  };
  auto module = [&](const std::string& name) { return linear(f, layer, "self_attn." + name, x_BTD); };
  if (c.fused_qkv.empty()) return of_all(module("q_proj"), module("k_proj"), module("v_proj"));
  const Tensor y_BTPO = module(c.fused_qkv);
  return of_all(slice(y_BTPO, 2, 0, parts - 2), slice(y_BTPO, 2, parts - 2, parts - 1),
                slice(y_BTPO, 2, parts - 1, parts));
}

Tensor self_attention(const Forward& f, const LayerKinds& kinds, const Layer& layer, const Tensor& x_BTD,
                      LayerCache* cache) {
  const ModelConfig& c = f.config;
  auto [q, k, v] = project(f, layer, x_BTD);
  if (c.qk_norm) {
    q = norm(c, layer, "self_attn.q_norm", q);
    k = norm(c, layer, "self_attn.k_norm", k);
  }
  AttentionOptions options{.scale = c.attention_scale, .softcap = c.attention_softcap, .window = kinds.window(layer)};
  if (options.scale == 0) options.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (c.alibi) {
    options.slopes = alibi_slopes(c.num_attention_heads);
  } else {
    const Rope rope = kinds.rope(options.window);
    q = apply_rope(rope, q);
    k = apply_rope(rope, k);
  }
  const Tensor out = attention(f, q, k, v, options, cache);
  const Tensor out_BTO = reshape(out, {x_BTD.dim(0), x_BTD.dim(1), c.num_attention_heads * c.head_dim});
  return linear(f, layer, "self_attn.o_proj", out_BTO);
}

Tensor mlp(Forward& f, const Layer& layer, const Tensor& x_BTD) {
  const ModelConfig& c = f.config;
  if (c.mlp == Mlp::kExperts) return experts_mlp(f, layer, x_BTD);
  auto hold = [&](const Tensor& hidden) { return f.sharding.constrain(hidden, {"batch", "length", "act_mlp"}); };
  if (c.mlp == Mlp::kPlain)
    return linear(f, layer, "mlp.c_proj", hold(activation(c.hidden_act, linear(f, layer, "mlp.c_fc", x_BTD))));
  Tensor gate, up;
  if (c.mlp == Mlp::kFusedGated) {
    const Tensor y_BT2F =
        f.sharding.constrain(linear(f, layer, "mlp.gate_up_proj", x_BTD), {"batch", "length", "", "act_mlp"});
    const Dims one{x_BTD.dim(0), x_BTD.dim(1), c.intermediate_size};
    gate = reshape(slice(y_BT2F, 2, 0, 1), one);
    up = reshape(slice(y_BT2F, 2, 1, 2), one);
  } else {
    gate = linear(f, layer, "mlp.gate_proj", x_BTD);
    up = linear(f, layer, "mlp.up_proj", x_BTD);
  }
  return linear(f, layer, "mlp.down_proj", hold(activation(c.hidden_act, gate) * up));
}

}  // namespace

std::vector<Param> decoder_params(const ModelConfig& c) {
  const int64_t d = c.hidden_size;
  ParamList list(kLayer, c.num_hidden_layers);
  list.embedding("model.embed_tokens", c.vocab_size, d);
  list.in_layers();
  add_norm(list, c, "input_layernorm", d);
  add_attention(list, c);
  add_norm(list, c, "post_attention_layernorm", d);
  if (c.post_norms) {
    add_norm(list, c, "pre_feedforward_layernorm", d);
    add_norm(list, c, "post_feedforward_layernorm", d);
  }
  add_mlp(list, c);
  list.outside();
  add_norm(list, c, "model.norm", d);
  if (!c.tie_word_embeddings) list.head("lm_head", c.vocab_size, d);
  return list.take();
}

Tensor decoder_forward(Forward& f) {
  const ModelConfig& c = f.config;
  const LayerKinds kinds(f);
  const Tensor x_BTD = embed(f, f.weights.at("model.embed_tokens.weight"), f.tokens);
  const Tensor out_BTD = run_layers(f, kLayer, x_BTD, [&](const Layer& layer, const Tensor& x, LayerCache* cache) {
    auto normal = [&](const std::string& name, const Tensor& value) { return norm(c, layer, name, value); };
    const Tensor mixed = self_attention(f, kinds, layer, normal("input_layernorm", x), cache);
    if (!c.post_norms) {
      const Tensor y = x + mixed;
      return y + mlp(f, layer, normal("post_attention_layernorm", y));
    }
    const Tensor y = x + normal("post_attention_layernorm", mixed);
    return y + normal("post_feedforward_layernorm", mlp(f, layer, normal("pre_feedforward_layernorm", y)));
  });
  return norm(c, f.weights, "model.norm", out_BTD);
}

Family decoder_family(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader& reader)) {
  const std::string name = architecture.substr(0, architecture.find("ForCausalLM"));
  return {.model_type = model_type,
          .architecture = architecture,
          .layer_prefix = kLayer,
          .fan_in_fan_out = false,
          .read = read,
          .params = decoder_params,
          .forward = decoder_forward,
          .ignored = {"*rotary_emb.inv_freq", "lm_head.weight"},
          .classifier = {.architecture = name + "ForSequenceClassification"}};
}

}  // namespace fettle
