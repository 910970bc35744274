// Qwen 3.5, dense or with a mixture of experts: three layers of linear attention (a gated delta net), then one of full
// attention whose result has a gate. Norms multiply by 1 + weight; rope is on a quarter of a head's dims. Most
// checkpoints also have a vision tower. The rope of Qwen 3.5 has three positions per token; for text the three are
// equal, so the usual rope gives the same. Source: transformers/models/qwen3_5.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/delta_layers.h"
#include "models/families/qwen/experts.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_5(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  c.num_key_value_heads = r.integer("num_key_value_heads", 4);
  return c;
}

void add_separate_projections(ParamList& list, const DeltaNet& net, const SizedAxis& embed) {
  list.linear("linear_attn.in_proj_qkv", {net.channels(), "heads"}, embed);
  list.linear("linear_attn.in_proj_z", {net.value_size(), "heads"}, embed);
  list.linear("linear_attn.in_proj_b", {net.value_heads, ""}, embed);
  list.linear("linear_attn.in_proj_a", {net.value_heads, ""}, embed);
}

DeltaInputs separate_projections(const Decoder& d, const Layer& layer, const Tensor& x) {
  auto module = [&](const char* name) { return linear(d.f, layer, std::string("linear_attn.") + name, x); };
  return {module("in_proj_qkv"), module("in_proj_z"), module("in_proj_b"), module("in_proj_a")};
}

void add_qwen3_5_layer(ParamList& list, const ModelConfig& c) {
  add_delta_layer(list, c, add_separate_projections);
}

Tensor qwen3_5_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  return delta_layer(d, layer, x, cache, separate_projections);
}

ModelConfig read_qwen3_5_moe(const ConfigReader& r) {
  ModelConfig c = read_delta_config(r);
  const ExpertNames names{.router = "mlp.gate", .down = "mlp.experts.down_proj", .gate_up = "mlp.experts.gate_up_proj"};
  read_qwen_experts(r, c, names, {.size = 512, .count = 256, .per_token = 8, .normalised = true});
  read_shared_expert(r, c, 512);
  return c;
}

Family text_family(bool experts, const DecoderNames& names) {
  Family family = decoder_family(experts ? "qwen3_5_moe_text" : "qwen3_5_text",
                                 experts ? "Qwen3_5MoeForCausalLM" : "Qwen3_5ForCausalLM",
                                 experts ? read_qwen3_5_moe : read_qwen3_5, {add_qwen3_5_layer, qwen3_5_layer}, names);
  family.cache = delta_cache;
  family.carried = {"mtp."};  // a head that predicts two tokens ahead, which Transformers does not load
  return without_classifier(family);
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
