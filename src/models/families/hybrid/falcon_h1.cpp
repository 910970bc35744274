// Falcon-H1: each layer has attention and Mamba2 side by side, with factors on their inputs, parts and results. Source:
// transformers/models/falcon_h1.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/mamba2.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/hybrid/mamba_config.h"

namespace fettle {
namespace {

// Reads a list of `count` factors. If the list is missing, all factors are 1.
std::vector<double> factors(const ConfigReader& r, const std::string& key, size_t count) {
  if (!r.has(key)) return std::vector<double>(count, 1);
  const std::vector<double> out = r.numbers(key);
  if (out.size() != count) throw UserError("{}: '{}' has {} numbers, wanted {}", r.file(), key, out.size(), count);
  return out;
}

ModelConfig read_falcon_h1(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.attention_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embedding_scale = r.number("embedding_multiplier", 1);
  c.logit_scale = r.number("lm_head_multiplier", 1);
  c.mlp_names = MlpNames::in("feed_forward");
  Mamba2 m;
  m.layers = all_layers(c.num_hidden_layers);
  const int64_t inner = r.integer("mamba_d_ssm", r.given("mamba_d_ssm") ? 0 : 1024);
  read_mamba2(r, m, inner > 0 ? inner : c.hidden_size * r.integer("mamba_expand", 2));
  m.out_bias = r.flag("projectors_bias", false);
  m.normed = r.flag("mamba_rms_norm", false);
  if (m.normed && r.flag("mamba_norm_before_gate", true))
    throw UserError("{}: 'mamba_norm_before_gate' is true; only false is implemented", r.file());
  c.mamba2 = m;
  const std::vector<double> mlp = factors(r, "mlp_multipliers", 2), ssm = factors(r, "ssm_multipliers", 5);
  c.falcon_h1 = {.attention_in = r.number("attention_in_multiplier", 1),
                 .attention_out = r.number("attention_out_multiplier", 1),
                 .keys = r.number("key_multiplier", 1),
                 .mamba_in = r.number("ssm_in_multiplier", 1),
                 .mamba_out = r.number("ssm_out_multiplier", 1),
                 .mamba_parts = {ssm[0], ssm[1], ssm[2], ssm[3], ssm[4]},
                 .mlp_gate = mlp[0],
                 .mlp_out = mlp[1]};
  r.refuse_unless("hidden_act", "silu");
  return c;
}

void add_falcon_h1_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_attention(list, c);
  add_mamba2(list, c);
  add_norm(list, c, "pre_ff_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor falcon_h1_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const FalconH1& h = *d.config.falcon_h1;
  const MlpNames& names = d.config.mlp_names;
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  const std::array<double, 5>& parts = h.mamba_parts;
  const Tensor spread = mamba2(d.f, layer, normal * h.mamba_in, cache,
                               {.gate = parts[0], .x = parts[1], .k = parts[2], .q = parts[3], .step = parts[4]});
  Heads heads = d.project(layer, normal * h.attention_in);
  heads.k_BTKH = heads.k_BTKH * h.keys;
  const Tensor seen = d.attend(layer, d.rotate(layer, heads), cache);
  const Tensor y = x + spread * h.mamba_out + seen * h.attention_out;
  const Tensor in = d.norm(layer, "pre_ff_layernorm", y);
  const Tensor gate = activation(d.config.hidden_act, linear(d.f, layer, names.gate, in) * h.mlp_gate);
  const Tensor hidden = d.f.sharding.constrain(gate * linear(d.f, layer, names.up, in), {"batch", "length", "act_mlp"});
  return y + linear(d.f, layer, names.down, hidden) * h.mlp_out;
}

std::vector<CacheArray> falcon_h1_cache(const ModelConfig& c) {
  std::vector<CacheArray> out = keys_and_values(c, all_layers(c.num_hidden_layers));
  for (const CacheArray& array : mamba2_cache(c)) out.push_back(array);
  return out;
}

}  // namespace

Family falcon_h1_family() {
  Family family = decoder_family("falcon_h1", "FalconH1ForCausalLM", read_falcon_h1,
                                 {add_falcon_h1_layer, falcon_h1_layer}, {.norm = "model.final_layernorm"});
  family.cache = falcon_h1_cache;
  family.without_lora = {"mamba.out_proj"};
  return without_classifier(family);
}

}  // namespace fettle
