// Llama 4: in layers with rope, queries see only the keys of their chunk, and the heads of q and k have norms. Every
// fourth layer has no rope: its queries see all keys, and are multiplied by a factor that grows with the position. All
// layers, some or none have experts; the router's weights multiply the experts' inputs. Published checkpoints also have
// a vision tower. Source: transformers/models/llama4.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

// Returns whether all layers are named full_attention (MobileLLM-R1).
bool has_no_chunks(const std::vector<std::string>& types) {
  return !types.empty() && std::ranges::count(types, "full_attention") == std::ssize(types);
}

// Reads which layers have rope. `no_rope_layers` is a list in which 1 means rope; an empty list means the default.
std::vector<bool> layers_with_rope(const ConfigReader& r, int64_t layers, const std::vector<std::string>& types) {
  std::vector<bool> out;
  if (!r.has("no_rope_layers") || !r.json().at("no_rope_layers").empty())
    out = r.flags_by_layer("no_rope_layers", layers);
  const int64_t interval = r.integer("no_rope_layer_interval", 4);
  for (int64_t layer = 0; out.size() < static_cast<size_t>(layers); ++layer) out.push_back((layer + 1) % interval != 0);
  for (size_t layer = 0; layer < types.size() && !has_no_chunks(types); ++layer)
    if (types[layer] != (out[layer] ? "chunked_attention" : "full_attention"))
      throw UserError(
          "{}: layer {} has the type '{}' and {} rope; layers with rope must be chunked_attention and others "
          "full_attention, or all layers full_attention",
          r.file(), layer, types[layer], out[layer] ? "has" : "lacks");
  return out;
}

// Reads which layers have experts: those in the list `moe_layers`, or every interleave_moe_layer_step-th layer. There
// may be none (MobileLLM-R1).
LayerSet read_expert_layers(const ConfigReader& r, int64_t count) {
  LayerSet layers;
  const std::vector<double> listed = r.numbers("moe_layers");
  for (const double layer : listed)
    if (!(layer >= 0 && layer < static_cast<double>(count) && layer == std::floor(layer)))
      throw UserError("{}: 'moe_layers' contains {}; the model has the layers 0 to {}", r.file(), layer, count - 1);
  for (int64_t layer = 0; layer < count; ++layer)
    if (std::ranges::find(listed, static_cast<double>(layer)) != listed.end()) layers.numbers.push_back(layer);
  if (!r.has("moe_layers")) {
    const int64_t step = r.integer("interleave_moe_layer_step", 1);
    for (int64_t layer = step - 1; layer < count; layer += step) layers.numbers.push_back(layer);
  }
  layers.all = layers.count();
  return layers;
}

// The oldest published configs have a number where later ones have true or false.
bool flag_or_number(const ConfigReader& r, const std::string& key, bool otherwise) {
  return r.has(key) && r.json().at(key).is_number() ? r.json().at(key) != 0 : r.flag(key, otherwise);
}

ModelConfig read_llama4(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.rope = r.rope(500000);
  c.rope.interleaved = true;
  c.attention_bias = r.flag("attention_bias", false);
  const std::vector<std::string> types = r.texts_by_layer("layer_types", c.num_hidden_layers);
  c.rotates = layers_with_rope(r, c.num_hidden_layers, types);
  if (!has_no_chunks(types))
    c.attention_chunk = r.integer("attention_chunk_size", r.given("attention_chunk_size") ? 0 : 8192);
  c.llama4 = {.qk_norm = r.flag("use_qk_norm", true),
              .growth = flag_or_number(r, "attn_temperature_tuning", true) ? r.number("attn_scale", 0.1) : 0,
              .unit = positive_number(r, "floor_scale", 8192)};
  c.mlp_names = MlpNames::in("feed_forward");
  const int64_t expert_size = std::exchange(c.intermediate_size, r.integer("intermediate_size_mlp", 16384));
  const LayerSet with_experts = read_expert_layers(r, c.num_hidden_layers);
  if (with_experts.count() == 0) return c;
  if (with_experts.count() < c.num_hidden_layers) c.expert_layers = with_experts;
  c.mlp = Mlp::kExperts;
  c.expert_size = expert_size;
  c.experts = {.router = "feed_forward.router",
               .down = "feed_forward.experts.down_proj",
               .gate_up = "feed_forward.experts.gate_up_proj",
               .in_first = true,
               .swapped_lora = true};
  c.routing = {.sigmoid = true, .normalised = false, .on_inputs = true};
  r.read_experts(c, r.integer("num_local_experts", 16), 1);
  c.has_balancing_loss = false;  // Transformers computes no balancing loss
  c.shared_expert = {.module = "feed_forward.shared_expert", .size = c.expert_size};
  return c;
}

Tensor llama4_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const ModelConfig& c = d.config;
  Heads heads = d.rotate(layer, d.project(layer, d.norm(layer, "input_layernorm", x)));
  const Tensor rotates = d.rotates(layer);
  if (c.llama4->qk_norm)
    for (Tensor* each : {&heads.q_BTNH, &heads.k_BTKH}) {
      const Tensor normal = rms_norm(*each, {}, c.norm_eps);
      *each = rotates ? select(rotates, normal, *each) : normal;
    }
  if (rotates && c.llama4->growth != 0) {
    const Tensor units = floor((convert(d.f.positions, DType::kF32) + 1.0) / c.llama4->unit);
    const Tensor factor = expand(expand(log(units + 1.0) * c.llama4->growth + 1.0, 2), 3);
    heads.q_BTNH = select(rotates, heads.q_BTNH, heads.q_BTNH * convert(factor, heads.q_BTNH.dtype()));
  }
  const Tensor y = x + d.attend(layer, heads, cache);
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

}  // namespace

Family llama4_text_family() {
  return without_classifier(
      decoder_family("llama4_text", "Llama4ForCausalLM", read_llama4, {add_pre_norm_layer, llama4_layer}));
}

Family llama4_family() {
  const Family text = decoder_family("llama4", "", read_llama4, {add_pre_norm_layer, llama4_layer},
                                     {.layer = "language_model.model.layers.{}.",
                                      .embedding = "language_model.model.embed_tokens",
                                      .norm = "language_model.model.norm",
                                      .head = "language_model.lm_head"});
  Family family = wrapped_family(text, "llama4", "Llama4ForConditionalGeneration");
  family.carried = {"vision_model.", "multi_modal_projector."};
  return family;
}

}  // namespace fettle
