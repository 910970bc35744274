// Nemotron-H (Nemotron Nano 2, Nemotron 3): each layer is one of Mamba2, attention without rope, an MLP, or experts.
// MLPs and experts have no gate; the router uses sigmoids and a correction of the scores. Source:
// transformers/models/nemotron_h.
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/experts/moe.h"
#include "models/blocks/mamba2.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/hybrid/mamba_config.h"

namespace fettle {
namespace {

// Returns the kinds of layers as letters: M (Mamba2), * (attention), - (MLP), E (experts).
std::string pattern_of(const ConfigReader& r) {
  const std::map<std::string, char> letters{{"mamba", 'M'},     {"linear_attention", 'M'},
                                            {"attention", '*'}, {"full_attention", '*'},
                                            {"mlp", '-'},       {"moe", 'E'}};
  const char* key = r.has("layer_types") ? "layer_types" : "layers_block_type";
  std::string out;
  for (const std::string& type : r.texts(key)) {
    if (!letters.contains(type))
      throw UserError(
          "{}: '{}' contains '{}'; mamba (or linear_attention), attention (or full_attention), mlp and moe are "
          "implemented",
          r.file(), key, type);
    out += letters.at(type);
  }
  if (out.empty() && !r.has("hybrid_override_pattern"))
    throw UserError(
        "{}: found no kinds of layers; wanted a list in 'layer_types' or 'layers_block_type', or letters in "
        "'hybrid_override_pattern'",
        r.file());
  if (out.empty()) out = r.text("hybrid_override_pattern", "");
  if (out.empty() || out.find_first_not_of("M*-E") != std::string::npos)
    throw UserError("{}: 'hybrid_override_pattern' is '{}', wanted a letter for each layer: M, *, - or E", r.file(),
                    out);
  return out;
}

LayerSet layers_of_kind(const std::string& pattern, char kind) {
  LayerSet out;
  for (size_t layer = 0; layer < pattern.size(); ++layer)
    if (pattern[layer] == kind) out.numbers.push_back(static_cast<int64_t>(layer));
  out.all = out.count();
  return out;
}

ModelConfig read_nemotron_h(const ConfigReader& outer) {
  const std::string pattern = pattern_of(outer);
  nlohmann::json json = outer.json();
  json["num_hidden_layers"] = pattern.size();
  // As in Transformers, the older names win.
  for (const auto& [old, key] : {std::pair{"mamba_n_groups", "n_groups"},
                                 {"mamba_d_conv", "conv_kernel"},
                                 {"mamba_conv_bias", "use_conv_bias"},
                                 {"mamba_dt_limit", "time_step_limit"}})
    if (json.contains(old)) json[key] = json[old];
  const ConfigReader r(json, outer.file());
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", r.integer("attention_head_dim", 128));
  c.num_key_value_heads = r.integer("num_key_value_heads", 8);
  c.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  c.attention_module = "mixer";
  c.attention_bias = r.flag("attention_bias", false);
  c.rotates.assign(pattern.size(), false);
  c.mlp = Mlp::kPlain;
  c.mlp_names = {.up = "mixer.up_proj", .down = "mixer.down_proj"};
  c.mlp_bias = r.flag("mlp_bias", false);
  c.hidden_act = r.text("mlp_hidden_act", "relu2");
  Mamba2 m{.module = "mixer"};
  m.heads = r.integer("mamba_num_heads", 128);
  m.head_dim = r.integer("mamba_head_dim", 64);
  m.groups = r.integer("n_groups", 8);
  m.state = r.integer("ssm_state_size", 128);
  m.width = r.integer("conv_kernel", 4);
  m.conv_bias = r.flag("use_conv_bias", true);
  m.in_bias = m.out_bias = r.flag("use_bias", false);
  m.layers = layers_of_kind(pattern, 'M');
  read_step_bounds(r, m);
  if (m.heads % m.groups != 0)
    throw UserError("{}: mamba_num_heads ({}) is not divisible by n_groups ({})", r.file(), m.heads, m.groups);
  r.refuse_unless("mamba_hidden_act", "silu");
  r.refuse_unless("sliding_window", nullptr);
  r.note_dropouts(c, {"hidden_dropout"});
  if (m.layers.count() > 0) c.mamba2 = m;
  c.nemotron_h = {layers_of_kind(pattern, '*'), layers_of_kind(pattern, '-')};

  const LayerSet experts = layers_of_kind(pattern, 'E');
  if (experts.count() == 0) return c;
  c.expert_layers = experts;
  c.expert_size = r.integer("moe_intermediate_size");
  c.expert_width = r.has("moe_latent_size") ? r.integer("moe_latent_size") : 0;
  c.experts = {.router = "mixer.gate", .up = "mixer.experts.{}.up_proj", .down = "mixer.experts.{}.down_proj"};
  r.read_experts(c, r.integer("n_routed_experts", r.integer("num_local_experts", 8)), 2);
  c.has_balancing_loss = false;  // the router's correction replaces the balancing loss
  c.routing = {.sigmoid = true,
               .in_f32 = true,
               .normalised = r.flag("norm_topk_prob", true),
               .correction = "mixer.gate.e_score_correction_bias",
               .groups = r.integer("n_group", 1),
               .top_groups = r.integer("topk_group", 1),
               .scale = r.number("routed_scaling_factor", 1)};
  c.shared_expert = {.module = "mixer.shared_experts", .size = r.integer("moe_shared_expert_intermediate_size", 7688)};
  return c;
}

MlpNames shared_names(const ModelConfig& c) {
  return MlpNames::in(c.shared_expert->module);
}

void add_nemotron_layer(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"};
  auto plain = [&](const MlpNames& names, int64_t size) {
    list.linear(names.up, {size, "mlp"}, d, {.bias = c.mlp_bias});
    list.linear(names.down, d, {size, "mlp"}, {.bias = c.mlp_bias});
  };
  add_norm(list, c, "norm", d.size);
  if (c.mamba2) add_mamba2(list.in_layers(c.mamba2->layers.numbers), c);
  if (c.nemotron_h->attention.count() > 0) add_attention(list.in_layers(c.nemotron_h->attention.numbers), c);
  if (c.nemotron_h->mlp.count() > 0) {
    list.in_layers(c.nemotron_h->mlp.numbers);
    plain(c.mlp_names, c.intermediate_size);
  }
  if (c.expert_layers) {
    list.in_layers(c.expert_layers->numbers);
    add_expert_params(list, c);
    plain(shared_names(c), c.shared_expert->size);
    if (c.expert_width > 0) {
      list.linear("mixer.fc1_latent_proj", {c.expert_width, ""}, d, {.bias = c.mlp_bias});
      list.linear("mixer.fc2_latent_proj", d, {c.expert_width, ""}, {.bias = c.mlp_bias});
    }
  }
  list.in_layers();
}

// The experts read x, or a smaller vector that is computed from it. The router always reads x.
Tensor experts(const Decoder& d, const Layer& layer, const Tensor& x) {
  if (d.config.expert_width == 0) return experts_mlp(d.f, layer, x);
  const Tensor small = linear(d.f, layer, "mixer.fc1_latent_proj", x);
  return linear(d.f, layer, "mixer.fc2_latent_proj", experts_mlp(d.f, layer, small, x));
}

Tensor mixed(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  if (layer.has("mixer.A_log")) return mamba2(d.f, layer, x, cache);
  if (layer.has("mixer.q_proj.weight")) return d.attention(layer, x, cache);
  if (!layer.has("mixer.gate.weight")) return d.mlp(layer, x);
  const MlpNames names = shared_names(d.config);
  const Tensor hidden = activation(d.config.hidden_act, linear(d.f, layer, names.up, x));
  const Tensor shared = linear(d.f, layer, names.down, d.f.sharding.constrain(hidden, {"batch", "length", "act_mlp"}));
  return experts(d, layer, x) + shared;
}

Tensor nemotron_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  return x + mixed(d, layer, d.norm(layer, "norm", x), cache);
}

std::vector<CacheArray> nemotron_cache(const ModelConfig& c) {
  std::vector<CacheArray> out;
  if (c.nemotron_h->attention.count() > 0) out = keys_and_values(c, c.nemotron_h->attention);
  if (c.mamba2)
    for (const CacheArray& array : mamba2_cache(c)) out.push_back(array);
  return out;
}

}  // namespace

Family nemotron_h_family() {
  Family family =
      decoder_family("nemotron_h", "NemotronHForCausalLM", read_nemotron_h, {add_nemotron_layer, nemotron_layer},
                     {.layer = "model.layers.{}.", .embedding = "model.embeddings", .norm = "model.norm_f"});
  family.cache = nemotron_cache;
  family.carried = {"mtp."};
  family.without_lora = {"mixer.out_proj"};
  return without_classifier(family);
}

}  // namespace fettle
