// Qwen3-Next: the layers of Qwen 3.5 with a mixture of experts. The projections of linear attention are grouped by key
// head. Source: transformers/models/qwen3_next.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/delta_layers.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_next(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  read_delta_experts(r, c,
                     {.router = "mlp.gate",
                      .gate = "mlp.experts.{}.gate_proj",
                      .up = "mlp.experts.{}.up_proj",
                      .down = "mlp.experts.{}.down_proj"});
  return c;
}

void add_qwen3_next_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_gated_attention(list.in_layers(c.delta_net->other_layers().numbers), c);
  const SizedAxis d{c.hidden_size, "embed"};
  const DeltaNet& net = *c.delta_net;
  list.in_layers(net.layers.numbers);
  list.linear("linear_attn.in_proj_qkvz", {net.channels() + net.value_size(), "heads"}, d);
  list.linear("linear_attn.in_proj_ba", {2 * net.value_heads, ""}, d);
  add_delta_net(list, c);
  list.in_layers();
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
}

// Cuts the projections of each key head, [B, T, key heads, all], into parts of these sizes, [B, T, key heads * size].
std::vector<Tensor> parts_of_heads(const Tensor& x, int64_t heads, const Dims& sizes) {
  const int64_t b = x.dim(0), t = x.dim(1);
  const Tensor by_head = reshape(x, {b, t, heads, x.dim(2) / heads});
  std::vector<Tensor> out;
  int64_t first = 0;
  for (const int64_t size : sizes) {
    out.push_back(reshape(slice(by_head, 3, first, first + size), {b, t, heads * size}));
    first += size;
  }
  return out;
}

Tensor grouped_delta_net(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const DeltaNet& net = *d.config.delta_net;
  const int64_t values = net.value_heads / net.key_heads;
  const std::vector<Tensor> qkvz =
      parts_of_heads(linear(d.f, layer, "linear_attn.in_proj_qkvz", x), net.key_heads,
                     {net.key_dim, net.key_dim, values * net.value_dim, values * net.value_dim});
  const std::vector<Tensor> ba =
      parts_of_heads(linear(d.f, layer, "linear_attn.in_proj_ba", x), net.key_heads, {values, values});
  return delta_net(d, layer, {concatenate({qkvz[0], qkvz[1], qkvz[2]}, 2), qkvz[3], ba[0], ba[1]}, cache);
}

Tensor qwen3_next_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  const bool is_linear = layer.has("linear_attn.A_log");
  const Tensor y =
      x + (is_linear ? grouped_delta_net(d, layer, normal, cache) : gated_attention(d, layer, normal, cache));
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

}  // namespace

Family qwen3_next_family() {
  Family family =
      decoder_family("qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, {add_qwen3_next_layer, qwen3_next_layer});
  family.cache = delta_cache;
  family.carried = {"mtp."};
  return family;
}

}  // namespace fettle
