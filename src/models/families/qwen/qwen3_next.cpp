// Qwen3-Next: the layers of Qwen 3.5 with a mixture of experts. The projections of linear attention are grouped by key
// head. Source: transformers/models/qwen3_next.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/delta_layers.h"
#include "models/families/qwen/experts.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_next(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  read_qwen_experts(r, c, ExpertNames::one_by_one(), {.size = 512, .count = 512, .per_token = 10, .normalised = true});
  read_shared_expert(r, c, 512);
  return c;
}

void add_grouped_projections(ParamList& list, const DeltaNet& net, const SizedAxis& embed) {
  list.linear("linear_attn.in_proj_qkvz", {net.channels() + net.value_size(), "heads"}, embed);
  list.linear("linear_attn.in_proj_ba", {2 * net.value_heads, ""}, embed);
}

// Divides the last dim of x [B, T, heads * (sum of `sizes`)] into parts. The dim has all parts of head 0, then all
// parts of head 1, and so on. `sizes` has the size of each part of a head. Returns each part for all heads: [B, T,
// heads * size].
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

DeltaInputs grouped_projections(const Decoder& d, const Layer& layer, const Tensor& x) {
  const DeltaNet& net = *d.config.delta_net;
  const int64_t values = net.value_heads / net.key_heads;
  const std::vector<Tensor> qkvz =
      parts_of_heads(linear(d.f, layer, "linear_attn.in_proj_qkvz", x), net.key_heads,
                     {net.key_dim, net.key_dim, values * net.value_dim, values * net.value_dim});
  const std::vector<Tensor> ba =
      parts_of_heads(linear(d.f, layer, "linear_attn.in_proj_ba", x), net.key_heads, {values, values});
  return {concatenate({qkvz[0], qkvz[1], qkvz[2]}, 2), qkvz[3], ba[0], ba[1]};
}

void add_qwen3_next_layer(ParamList& list, const ModelConfig& c) {
  add_delta_layer(list, c, add_grouped_projections);
}

Tensor qwen3_next_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  return delta_layer(d, layer, x, cache, grouped_projections);
}

}  // namespace

Family qwen3_next_family() {
  Family family =
      decoder_family("qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, {add_qwen3_next_layer, qwen3_next_layer});
  family.cache = delta_cache;
  family.carried = {"mtp."};
  family.mlp_is_experts_in_peft = true;
  return family;
}

}  // namespace fettle
