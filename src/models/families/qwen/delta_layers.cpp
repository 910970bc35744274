#include "models/families/qwen/delta_layers.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/delta_net.h"
#include "models/blocks/short_convolution.h"
#include "models/decoder.h"

namespace fettle {
namespace {

constexpr int64_t kChunk = 64;

// Returns x / sqrt(sum(x^2) + 1e-6) along the last dim.
Tensor to_length_one(const Tensor& x) {
  return x * rsqrt(expand(reduce_sum(x * x, {-1}), -1) + 1e-6);
}

// Adds the parameters of full attention. q_proj has a query and a gate for each head. The result of attention is
// multiplied by sigmoid(gate).
void add_gated_attention(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * c.head_dim, "heads"},
      kv{c.num_key_value_heads * c.head_dim, "kv_heads"};
  const LinearOptions options{.bias = c.attention_bias}, heads{.bias = c.attention_bias, .head_rows = c.head_dim};
  list.linear("self_attn.q_proj", {2 * q.size, "heads"}, d, heads);
  list.linear("self_attn.k_proj", kv, d, heads);
  list.linear("self_attn.v_proj", kv, d, options);
  list.linear("self_attn.o_proj", d, q, options);
  add_norm(list, c, "self_attn.q_norm", c.head_dim);
  add_norm(list, c, "self_attn.k_norm", c.head_dim);
}

Tensor gated_attention(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const ModelConfig& c = d.config;
  const int64_t b = x.dim(0), t = x.dim(1), h = c.head_dim;
  auto heads = [&](const char* name, int64_t count, int64_t size, const char* axis) {
    const Tensor y = linear(d.f, layer, std::string("self_attn.") + name, x);
    return d.f.sharding.constrain(reshape(y, {b, t, count, size}), {"batch", "length", axis, ""});
  };
  const Tensor q_and_gate = heads("q_proj", c.num_attention_heads, 2 * h, "act_heads");
  const Tensor gate = logistic(reshape(slice(q_and_gate, 3, h, 2 * h), {b, t, c.num_attention_heads * h}));
  const Heads rotated =
      d.rotate(layer, {d.norm(layer, "self_attn.q_norm", slice(q_and_gate, 3, 0, h)),
                       d.norm(layer, "self_attn.k_norm", heads("k_proj", c.num_key_value_heads, h, "act_kv_heads")),
                       heads("v_proj", c.num_key_value_heads, h, "act_kv_heads")});
  return linear(d.f, layer, "self_attn.o_proj", d.seen_values(layer, rotated, cache) * gate);
}

// Adds the parameters of linear attention other than its projections: convolution, decays, norm and out_proj.
void add_delta_net(ParamList& list, const ModelConfig& c) {
  const DeltaNet& net = *c.delta_net;
  list.add("linear_attn.conv1d.weight", {net.channels(), 1, net.width}, {"heads", "", ""}, Role::kCoefficients);
  list.add("linear_attn.dt_bias", {net.value_heads}, {"norm"}, Role::kBias, Init::kOnes);
  list.add("linear_attn.A_log", {net.value_heads}, {"norm"}, Role::kCoefficients, Init::kOnes);
  list.norm("linear_attn.norm", net.value_dim, Init::kOnes, false);
  list.linear("linear_attn.out_proj", {c.hidden_size, "embed"}, {net.value_size(), "heads"});
}

Tensor delta_net(const Decoder& d, const Layer& layer, const DeltaInputs& inputs, LayerCache* cache) {
  const ModelConfig& c = d.config;
  const DeltaNet& net = *c.delta_net;
  const Forward& f = d.f;
  const int64_t b = inputs.qkv.dim(0), t = inputs.qkv.dim(1), n = net.value_heads, groups = n / net.key_heads;
  auto f32 = [](const Tensor& x) { return convert(x, DType::kF32); };
  const Tensor segments = documents_of(f, inputs.qkv);
  const Tensor weight = reshape(layer["linear_attn.conv1d.weight"], {net.channels(), net.width});
  const Tensor mixed = activation("silu", short_convolution(f, inputs.qkv, weight, cache));
  auto heads = [&](int64_t first, int64_t count, int64_t size) {
    return f32(reshape(slice(mixed, 2, first, first + count * size), {b, t, count, size}));
  };
  // Each key head is used by several neighbouring value heads.
  auto repeated = [&](const Tensor& x) {
    const Tensor all = broadcast_to(expand(x, 3), {b, t, net.key_heads, groups, net.key_dim});
    return f.sharding.constrain(reshape(all, {b, t, n, net.key_dim}), {"batch", "", "act_heads", ""});
  };
  const Tensor q =
      repeated(to_length_one(heads(0, net.key_heads, net.key_dim))) * (1 / std::sqrt(static_cast<double>(net.key_dim)));
  const Tensor k = repeated(to_length_one(heads(net.key_size(), net.key_heads, net.key_dim)));
  const Tensor v = f.sharding.constrain(heads(2 * net.key_size(), n, net.value_dim), {"batch", "", "act_heads", ""});
  Tensor rate = f32(logistic(inputs.b));
  Tensor decay = -(exp(f32(layer["linear_attn.A_log"])) * softplus(f32(inputs.a) + f32(layer["linear_attn.dt_bias"])));
  if (cache != nullptr) {
    const Tensor real_BT1 = real_positions(f, inputs.qkv);
    rate = rate * real_BT1, decay = decay * real_BT1;
  }
  int64_t chunk = 1;  // a power of two, so that the triangular inverse has whole blocks
  while (2 * chunk <= std::min({kChunk, f.attention_block, 2 * t - 1})) chunk *= 2;
  const DeltaRule rule =
      gated_delta_rule(q, k, v, decay, rate, segments, chunk, cache != nullptr ? cache->at("state") : Tensor{});
  if (cache != nullptr) cache->replace("state", rule.state_BNKH);
  const Tensor normal = rms_norm(convert(rule.out_BTNH, f.compute), layer["linear_attn.norm.weight"], c.norm_eps);
  const Tensor gate = f32(reshape(inputs.z, {b, t, n, net.value_dim}));
  const Tensor out = convert(f32(normal) * activation("silu", gate), f.compute);
  return linear(f, layer, "linear_attn.out_proj", reshape(out, {b, t, net.value_size()}));
}

}  // namespace

ModelConfig read_delta_config(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", 256);
  c.num_key_value_heads = r.integer("num_key_value_heads", 2);
  c.norm = Norm::kRmsPlusOne;
  c.rope = r.rope(10000, 0.25);
  c.attention_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  DeltaNet net{.key_heads = r.integer("linear_num_key_heads", 16),
               .value_heads = r.integer("linear_num_value_heads", 32),
               .key_dim = r.integer("linear_key_head_dim", 128),
               .value_dim = r.integer("linear_value_head_dim", 128),
               .width = r.integer("linear_conv_kernel_dim", 4)};
  if (net.value_heads % net.key_heads != 0)
    throw UserError("{}: linear_num_value_heads ({}) is not divisible by linear_num_key_heads ({})", r.file(),
                    net.value_heads, net.key_heads);
  const int64_t interval = r.integer("full_attention_interval", 4);
  net.all = c.num_hidden_layers;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    if ((layer + 1) % interval != 0) net.layers.numbers.push_back(layer);
  if (const std::vector<std::string> types = r.texts_by_layer("layer_types", c.num_hidden_layers); !types.empty()) {
    net.layers.numbers.clear();
    for (size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "linear_attention") net.layers.numbers.push_back(static_cast<int64_t>(layer));
      if (types[layer] != "linear_attention" && types[layer] != "full_attention")
        throw UserError("{}: 'layer_types' contains '{}'; linear_attention and full_attention are implemented",
                        r.file(), types[layer]);
    }
  }
  net.layers.all = net.layers.count();
  c.delta_net = net;
  r.refuse_unless("hidden_act", "silu");
  return c;
}

void add_delta_layer(ParamList& list, const ModelConfig& c,
                     void (*add_projections)(ParamList& list, const DeltaNet& net, const SizedAxis& embed)) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_gated_attention(list.in_layers(c.delta_net->other_layers().numbers), c);
  list.in_layers(c.delta_net->layers.numbers);
  add_projections(list, *c.delta_net, {c.hidden_size, "embed"});
  add_delta_net(list, c);
  list.in_layers();
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor delta_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache,
                   DeltaInputs (*project)(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD)) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  const bool is_linear = layer.has("linear_attn.A_log");
  const Tensor y = x + (is_linear ? delta_net(d, layer, project(d, layer, normal), cache)
                                  : gated_attention(d, layer, normal, cache));
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

std::vector<CacheArray> delta_cache(const ModelConfig& c) {
  const DeltaNet& net = *c.delta_net;
  std::vector<CacheArray> out = keys_and_values(c, net.other_layers());
  out.push_back(convolution_cache(net.layers, net.width, net.channels()));
  out.push_back({"state",
                 net.layers,
                 {1, net.value_heads, net.key_dim, net.value_dim},
                 {"batch", "act_heads", "", ""},
                 DType::kF32});
  return out;
}

}  // namespace fettle
