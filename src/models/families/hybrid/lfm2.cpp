// LFM2: most layers have a short convolution between two gates instead of attention. The MoE form has dense layers
// first, then layers with experts. Its router uses sigmoids and a correction of the scores. Sources:
// transformers/models/lfm2, lfm2_moe.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/short_convolution.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

// Reads which layers have a convolution. Older configs list the layers without a convolution in full_attn_idxs.
LayerSet convolution_layers(const ConfigReader& r, int64_t layers) {
  LayerSet out;
  const std::vector<std::string> types = r.texts_by_layer("layer_types", layers);
  const std::vector<double> full = r.numbers("full_attn_idxs");
  for (int64_t layer = 0; layer < layers; ++layer) {
    bool convolves = r.has("full_attn_idxs") && std::ranges::find(full, static_cast<double>(layer)) == full.end();
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(layer)];
      if (type != "conv" && type != "full_attention")
        throw UserError("{}: 'layer_types' contains '{}'; conv and full_attention are implemented", r.file(), type);
      convolves = type == "conv";
    }
    if (convolves) out.numbers.push_back(layer);
  }
  out.all = out.count();
  return out;
}

ModelConfig read_both(const ConfigReader& r) {
  // The oldest configs have other names for some fields. As in Transformers, the old names take precedence.
  nlohmann::json json = r.json();
  for (const auto& [then, now] : {std::pair{"block_ff_dim", "intermediate_size"},
                                  {"num_heads", "num_attention_heads"},
                                  {"tie_embedding", "tie_word_embeddings"}})
    if (json.contains(then)) json[now] = json[then];
  const ConfigReader reader(json, r.file());
  ModelConfig c = read_decoder_config(reader, true);
  c.norm_eps = reader.number("norm_eps", reader.number("block_norm_eps", 1e-5));
  c.rope = reader.rope(1e6);
  c.lfm2 = {.width = r.integer("conv_L_cache", 3),
            .bias = r.flag("conv_bias", false),
            .layers = convolution_layers(r, c.num_hidden_layers)};
  c.mlp_names = {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"};
  return c;
}

ModelConfig read_lfm2(const ConfigReader& r) {
  ModelConfig c = read_both(r);
  if (r.flag("block_auto_adjust_ff_dim", true)) {
    c.intermediate_size = 2 * c.intermediate_size / 3;
    // As in Transformers, a multiplier of null switches off both the multiplication and the rounding.
    if (r.given("block_ffn_dim_multiplier") && !r.has("block_ffn_dim_multiplier")) return c;
    const int64_t multiple = r.integer("block_multiple_of", 256);
    const double factor = r.number("block_ffn_dim_multiplier", 1);
    if (!(factor > 0 && factor <= 1000))
      throw UserError("{}: block_ffn_dim_multiplier is {}, wanted a number above 0 and at most 1000", r.file(), factor);
    c.intermediate_size = static_cast<int64_t>(factor * static_cast<double>(c.intermediate_size));
    c.intermediate_size = (c.intermediate_size + multiple - 1) / multiple * multiple;
  }
  return c;
}

ModelConfig read_lfm2_moe(const ConfigReader& r) {
  ModelConfig c = read_both(r);
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size", 1792);
  c.experts = {.router = "feed_forward.gate",
               .gate = "feed_forward.experts.{}.w1",
               .up = "feed_forward.experts.{}.w3",
               .down = "feed_forward.experts.{}.w2"};
  c.routing = {.sigmoid = true,
               .normalised = r.flag("norm_topk_prob", true),
               .correction = r.flag("use_expert_bias", true) ? "feed_forward.expert_bias" : "",
               .scale = r.number("routed_scaling_factor", 1),
               .epsilon = 1e-6};
  r.read_experts(c, r.integer("num_experts", 32), 4);
  c.has_balancing_loss = false;  // Transformers computes no balancing loss
  const int64_t dense = r.has("num_dense_layers") ? r.count("num_dense_layers") : 2;
  if (dense >= c.num_hidden_layers)
    throw UserError("{}: num_dense_layers ({}) leaves no layer with experts", r.file(), dense);
  if (dense > 0) {
    c.expert_layers = all_layers(c.num_hidden_layers).within(dense, c.num_hidden_layers);
    c.expert_layers->all = c.expert_layers->count();
  }
  return c;
}

void add_lfm2_layer(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * c.head_dim, "heads"},
      kv{c.num_key_value_heads * c.head_dim, "kv_heads"}, inner{c.hidden_size, "heads"};
  const Lfm2& conv = *c.lfm2;
  add_norm(list, c, "operator_norm", d.size);
  list.in_layers(layers_without(conv.layers, c.num_hidden_layers).numbers);
  list.linear("self_attn.q_proj", q, d, {.head_rows = c.head_dim});
  list.linear("self_attn.k_proj", kv, d, {.head_rows = c.head_dim});
  list.linear("self_attn.v_proj", kv, d);
  list.linear("self_attn.out_proj", d, q);
  add_norm(list, c, "self_attn.q_layernorm", c.head_dim);
  add_norm(list, c, "self_attn.k_layernorm", c.head_dim);
  if (conv.layers.count() > 0) {
    list.in_layers(conv.layers.numbers);
    list.linear("conv.in_proj", inner, d, {.bias = conv.bias, .parts = 3});
    list.add("conv.conv.weight", {inner.size, 1, conv.width}, {"heads", "", ""}, Role::kCoefficients);
    if (conv.bias) list.add("conv.conv.bias", {inner.size}, {"heads"}, Role::kBias, Init::kZeros);
    list.linear("conv.out_proj", d, inner, {.bias = conv.bias});
  }
  list.in_layers();
  add_norm(list, c, "ffn_norm", d.size);
  add_mlp(list, c);
}

// in_proj computes two gates and a value for each channel from x. The convolution reads the first gate times the value;
// its result is multiplied by the second gate; then out_proj follows.
Tensor gated_convolution(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor parts = linear(d.f, layer, "conv.in_proj", x);
  const Dims one{x.dim(0), x.dim(1), parts.dim(3)};
  auto part = [&](int64_t i) { return reshape(slice(parts, 2, i, i + 1), one); };
  const Tensor weight = reshape(layer["conv.conv.weight"], {one[2], d.config.lfm2->width});
  Tensor mixed = short_convolution(d.f, part(0) * part(2), weight, cache);
  if (layer.has("conv.conv.bias")) mixed = mixed + convert(layer["conv.conv.bias"], mixed.dtype());
  return linear(d.f, layer, "conv.out_proj", part(1) * mixed);
}

Tensor normed_attention(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  Heads heads = d.project(layer, x);
  heads.q_BTNH = d.norm(layer, "self_attn.q_layernorm", heads.q_BTNH);
  heads.k_BTKH = d.norm(layer, "self_attn.k_layernorm", heads.k_BTKH);
  return d.attend(layer, d.rotate(layer, heads), cache, "out_proj");
}

Tensor lfm2_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "operator_norm", x);
  const Tensor y = x + (layer.has("conv.conv.weight") ? gated_convolution(d, layer, normal, cache)
                                                      : normed_attention(d, layer, normal, cache));
  return y + d.mlp(layer, d.norm(layer, "ffn_norm", y));
}

std::vector<CacheArray> lfm2_cache(const ModelConfig& c) {
  const LayerSet& layers = c.lfm2->layers;
  std::vector<CacheArray> out;
  if (layers.count() < c.num_hidden_layers) out = keys_and_values(c, layers_without(layers, c.num_hidden_layers));
  if (layers.count() > 0) out.push_back(convolution_cache(layers, c.lfm2->width, c.hidden_size));
  return out;
}

Family family_of_type(const std::string& model_type, const std::string& architecture,
                      ModelConfig (*read)(const ConfigReader&)) {
  Family family =
      decoder_family(model_type, architecture, read, {add_lfm2_layer, lfm2_layer}, {.norm = "model.embedding_norm"});
  family.cache = lfm2_cache;
  return without_classifier(family);
}

}  // namespace

Family lfm2_family() {
  return family_of_type("lfm2", "Lfm2ForCausalLM", read_lfm2);
}

Family lfm2_moe_family() {
  return family_of_type("lfm2_moe", "Lfm2MoeForCausalLM", read_lfm2_moe);
}

}  // namespace fettle
