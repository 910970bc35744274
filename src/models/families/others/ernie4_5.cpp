// ERNIE 4.5: Llama, but rope rotates neighbouring dims together. Larger models have dense layers first and then layers
// with experts and shared experts; the router adds a correction to its softmax. Sources: transformers/models/ernie4_5,
// ernie4_5_moe.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_ernie4_5(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 128);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.rope = r.rope(500000);
  c.rope.interleaved = true;
  c.attention_bias = c.mlp_bias = r.flag("use_bias", false);
  return c;
}

// Returns the layers with experts. Their numbers are in [moe_layer_start_index, moe_layer_end_index]. For each of these
// layers, number + 1 is a multiple of moe_layer_interval.
LayerSet layers_with_experts(const ConfigReader& r, int64_t layers) {
  const int64_t interval = r.integer("moe_layer_interval", 1);
  const int64_t first = r.has("moe_layer_start_index") ? r.count("moe_layer_start_index") : 1;
  const double end = r.number("moe_layer_end_index", -1);  // -1: the last layer
  LayerSet out;
  for (int64_t layer = first; layer < layers && (end == -1 || static_cast<double>(layer) <= end); ++layer)
    if ((layer + 1) % interval == 0) out.numbers.push_back(layer);
  out.all = out.count();
  if (out.count() == 0)
    throw UserError("{}: moe_layer_start_index, moe_layer_end_index and moe_layer_interval leave no layer with experts",
                    r.file());
  return out;
}

ModelConfig read_ernie4_5_moe(const ConfigReader& r) {
  ModelConfig c = read_ernie4_5(r);
  c.head_dim = r.integer("head_dim", c.hidden_size / c.num_attention_heads);
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size", 1536);
  c.experts = ExpertNames::one_by_one();
  // Does not read moe_norm_min, a lower bound of the sum that divides the scores. The bound only prevents a
  // division by zero.
  c.routing = {.in_f32 = true, .correction = "mlp.moe_statics.e_score_correction_bias"};
  const int64_t experts = r.integer("moe_num_experts", r.integer("num_experts", 64));
  r.read_experts(c, experts, std::min<int64_t>(6, experts));
  c.experts_per_token = r.integer("moe_k", c.experts_per_token);
  if (c.experts_per_token > c.num_experts)
    throw UserError("{}: moe_k ({}) is more than the {} experts", r.file(), c.experts_per_token, c.num_experts);
  const LayerSet sparse = layers_with_experts(r, c.num_hidden_layers);
  if (sparse.count() < c.num_hidden_layers) c.expert_layers = sparse;
  const int64_t shared = r.has("moe_num_shared_experts") ? r.count("moe_num_shared_experts") : 2;
  if (shared > 0) c.shared_expert = {.module = "mlp.shared_experts", .size = c.expert_size * shared};
  r.refuse_unless("use_bias", false);
  // Transformers computes this loss from the router's scores without e_score_correction_bias, but the model chooses its
  // experts with that bias.
  c.has_balancing_loss = false;
  return c;
}

}  // namespace

Family ernie4_5_family() {
  return without_classifier(decoder_family("ernie4_5", "Ernie4_5ForCausalLM", read_ernie4_5));
}

Family ernie4_5_moe_family() {
  Family family = without_classifier(decoder_family("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", read_ernie4_5_moe));
  family.carried = {"model.mtp_"};
  family.mlp_is_experts_in_peft = true;
  // In checkpoints, the router's correction is [1, experts]. As in Transformers, the router's weight is always f32,
  // because rounding it to 16 bits would change which experts are chosen.
  family.params = [usual = family.params](const ModelConfig& c) {
    std::vector<Param> out = usual(c);
    for (Param& param : out) {
      if (param.role == Role::kBuffer) param.dims = {1, c.num_experts}, param.axes = {"", ""};
      if (param.role == Role::kRouter) param.dtype = DType::kF32;
    }
    return out;
  };
  return family;
}

}  // namespace fettle
