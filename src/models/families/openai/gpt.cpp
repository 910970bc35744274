#include "models/families/openai/gpt.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/attention.h"
#include "models/blocks/layers.h"
#include "models/blocks/run_layers.h"

namespace fettle {
namespace {

const std::string kGptLayer = "transformer.h.{}.";

// Adds the module that computes q, k and v: three parts for Conv1D, else one matrix.
void add_qkv(ParamList& list, const ModelConfig& c, bool conv1d) {
  const SizedAxis d{c.hidden_size, "embed"};
  const std::string name = "attn.c_attn";
  if (conv1d) return list.linear(name, {d.size, "heads"}, d, {.bias = true, .in_first = true, .parts = 3});
  // A single key head cannot be split. So no mesh axis splits the outputs of this module, although q's outputs could be
  // split.
  if (c.num_key_value_heads == 1) return list.linear(name, {d.size + 2 * c.head_dim, ""}, d, {.bias = true});
  list.linear(name, {3 * d.size, "heads"}, d, {.bias = true});
}

struct GptHeads {
  Tensor q_BTNH, k_BTKH, v_BTKH;
};

GptHeads split_heads(const Forward& f, const Tensor& qkv, bool conv1d) {
  const ModelConfig& c = f.config;
  const int64_t b = qkv.dim(0), t = qkv.dim(1), n = c.num_attention_heads, k = c.num_key_value_heads, h = c.head_dim;
  auto hold = [&](const Tensor& x, const char* axis) { return f.sharding.constrain(x, {"batch", "length", axis, ""}); };
  if (conv1d) {
    auto heads = [&](int64_t part) { return hold(reshape(slice(qkv, 2, part, part + 1), {b, t, n, h}), "act_heads"); };
    return {heads(0), heads(1), heads(2)};
  }
  if (k == 1) {
    auto heads = [&](int64_t from, int64_t count, const char* axis) {
      return hold(reshape(slice(qkv, 2, from * h, (from + count) * h), {b, t, count, h}), axis);
    };
    return {heads(0, n, "act_heads"), heads(n, 1, "act_kv_heads"), heads(n + 1, 1, "act_kv_heads")};
  }
  const Tensor by_head = hold(reshape(qkv, {b, t, n, 3 * h}), "act_heads");
  return {slice(by_head, 3, 0, h), slice(by_head, 3, h, 2 * h), slice(by_head, 3, 2 * h, 3 * h)};
}

}  // namespace

ModelConfig read_gpt_config(const ConfigReader& r, const std::string& default_activation) {
  ModelConfig c;
  r.read_common(c, true);
  c.hidden_size = r.integer("n_embd");
  c.intermediate_size = r.integer("n_inner", 4 * c.hidden_size);
  c.num_hidden_layers = r.integer("n_layer");
  c.num_attention_heads = c.num_key_value_heads = r.integer("n_head");
  c.max_position_embeddings = r.integer("n_positions", 1024);
  c.norm = Norm::kLayer;
  c.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  c.hidden_act = r.text("activation_function", default_activation);
  r.refuse_unless("scale_attn_weights", true);
  r.refuse_unless("add_cross_attention", false);
  r.note_dropouts(c, {"attn_pdrop", "embd_pdrop", "resid_pdrop"});
  if (c.hidden_size % c.num_attention_heads != 0)
    throw UserError("{}: n_embd ({}) is not divisible by n_head ({})", r.file(), c.hidden_size, c.num_attention_heads);
  c.head_dim = c.hidden_size / c.num_attention_heads;
  return c;
}

namespace {

template <bool kConv1d>
std::vector<Param> gpt_params(const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, heads{c.hidden_size, "heads"}, f{c.intermediate_size, "mlp"};
  const LinearOptions options{.bias = true, .in_first = kConv1d};
  ParamList list(kGptLayer, c.num_hidden_layers);
  list.embedding("transformer.wte", c.vocab_size, d.size);
  list.embedding("transformer.wpe", c.max_position_embeddings, d.size, Role::kPositionEmbedding);
  list.in_layers();
  list.norm("ln_1", d.size, Init::kOnes, true);
  add_qkv(list, c, kConv1d);
  list.linear("attn.c_proj", d, heads, options);
  list.norm("ln_2", d.size, Init::kOnes, true);
  list.linear("mlp.c_fc", f, d, options);
  list.linear("mlp.c_proj", d, f, options);
  list.outside();
  list.norm("transformer.ln_f", d.size, Init::kOnes, true);
  if (!c.tie_word_embeddings) list.head("lm_head", c.vocab_size, d.size);
  return list.take();
}

template <bool kConv1d>
Tensor gpt_layer(const Forward& f, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const ModelConfig& c = f.config;
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim))};
  const Tensor qkv = linear(f, layer, "attn.c_attn", norm(c, layer, "ln_1", x), {.transposed = kConv1d});
  const auto [q, k, v] = split_heads(f, qkv, kConv1d);
  const Tensor mixed = reshape(attention(f, q, k, v, options, cache), x.dims());
  const Tensor y = x + linear(f, layer, "attn.c_proj", mixed, {.transposed = kConv1d});
  const Tensor inner = linear(f, layer, "mlp.c_fc", norm(c, layer, "ln_2", y), {.transposed = kConv1d});
  const Tensor hidden = f.sharding.constrain(activation(c.hidden_act, inner), {"batch", "length", "act_mlp"});
  return y + linear(f, layer, "mlp.c_proj", hidden, {.transposed = kConv1d});
}

template <bool kConv1d>
Tensor gpt_forward(Forward& f) {
  const Tensor places = convert(take(f.weights.at("transformer.wpe.weight"), f.positions), f.compute);
  const Tensor x_BTD = embed(f, f.weights.at("transformer.wte.weight"), f.tokens) + places;
  const Tensor out_BTD = run_layers(f, kGptLayer, x_BTD, [](Forward& rows) -> LayerBody {
    return [&rows](const Layer& layer, const Tensor& x, LayerCache* cache) {
      return gpt_layer<kConv1d>(rows, layer, x, cache);
    };
  });
  return norm(f.config, f.weights, "transformer.ln_f", out_BTD);
}

}  // namespace

Family gpt_family(const std::string& model_type, const std::string& architecture, bool fan_in_fan_out) {
  Family family;
  family.fan_in_fan_out = fan_in_fan_out;
  family.params = fan_in_fan_out ? gpt_params<true> : gpt_params<false>;
  family.forward = fan_in_fan_out ? gpt_forward<true> : gpt_forward<false>;
  family.model_type = model_type;
  family.architecture = architecture;
  const size_t end = std::min(architecture.find("LMHead"), architecture.find("For"));
  family.classifier.architecture = architecture.substr(0, end) + "ForSequenceClassification";
  family.layer_prefix = kGptLayer;
  family.ignored = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"};
  return family;
}

}  // namespace fettle
