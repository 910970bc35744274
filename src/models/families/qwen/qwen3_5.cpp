// Qwen 3.5, dense or with a mixture of experts: three layers of linear attention (a gated delta net), then one of full
// attention whose result has a gate. Norms of weight 1 + w, rope on a quarter of a head's dims. Most checkpoints also
// have a vision tower. Their rope has three positions per token; for text the three are equal, so this is the usual
// rope. Source: transformers/models/qwen3_5.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/delta_layers.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_5(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  c.num_key_value_heads = r.integer("num_key_value_heads", 4);
  return c;
}

void add_qwen3_5_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_gated_attention(list.in_layers(c.delta_net->other_layers().numbers), c);
  const SizedAxis d{c.hidden_size, "embed"};
  const DeltaNet& net = *c.delta_net;
  list.in_layers(net.layers.numbers);
  list.linear("linear_attn.in_proj_qkv", {net.channels(), "heads"}, d);
  list.linear("linear_attn.in_proj_z", {net.value_size(), "heads"}, d);
  list.linear("linear_attn.in_proj_b", {net.value_heads, ""}, d);
  list.linear("linear_attn.in_proj_a", {net.value_heads, ""}, d);
  add_delta_net(list, c);
  list.in_layers();
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor qwen3_5_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  Tensor mixed;
  if (layer.has("linear_attn.A_log")) {
    auto module = [&](const char* name) { return linear(d.f, layer, std::string("linear_attn.") + name, normal); };
    mixed = delta_net(d, layer, {module("in_proj_qkv"), module("in_proj_z"), module("in_proj_b"), module("in_proj_a")},
                      cache);
  } else {
    mixed = gated_attention(d, layer, normal, cache);
  }
  const Tensor y = x + mixed;
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

ModelConfig read_qwen3_5_moe(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  read_delta_experts(r, c,
                     {.router = "mlp.gate", .down = "mlp.experts.down_proj", .gate_up = "mlp.experts.gate_up_proj"});
  return c;
}

Family text_family(bool experts, const DecoderNames& names) {
  Family family = decoder_family(experts ? "qwen3_5_moe_text" : "qwen3_5_text",
                                 experts ? "Qwen3_5MoeForCausalLM" : "Qwen3_5ForCausalLM",
                                 experts ? read_qwen3_5_moe : read_qwen3_5, {add_qwen3_5_layer, qwen3_5_layer}, names);
  family.cache = delta_cache;
  // The weights of a head that predicts two tokens ahead, which Transformers does not load.
  family.ignored.push_back("mtp.*");
  family.classifier.architecture = "";
  return family;
}

}  // namespace

Family qwen3_5_text_family() {
  return text_family(false, {});
}

Family qwen3_5_moe_text_family() {
  return text_family(true, {});
}

Family qwen3_5_family() {
  Family family = wrapped_family(text_family(false, names_in_wrapped()), "qwen3_5", "Qwen3_5ForConditionalGeneration");
  family.carried = {"model.visual.", "visual.", "mtp."};
  return family;
}

Family qwen3_5_moe_family() {
  Family family =
      wrapped_family(text_family(true, names_in_wrapped()), "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration");
  family.carried = {"model.visual.", "visual.", "mtp."};
  return family;
}

}  // namespace fettle
