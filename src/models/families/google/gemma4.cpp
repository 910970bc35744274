// Gemma 4: dense (31B, 12B), with experts beside the MLP (26B-A4B), or with a further vector for each token and layer
// (E2B, E4B). Layers with and without a window have heads of different sizes. Values have a norm without weight.
// The last layers of E2B and E4B use keys and values of earlier layers. Most checkpoints also have towers for images
// and sound. Sources: transformers/models/gemma4, gemma4_unified.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/experts/moe.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

bool has_window(const ModelConfig& c, int64_t layer) {
  return c.window[static_cast<size_t>(layer)] > 0;
}

int64_t first_shared(const ModelConfig& c) {
  return c.num_hidden_layers - c.gemma4->shared_layers;
}

// Returns the layers from `first` to `end` - 1 that have a window or, if `window` is false, that have none.
std::vector<int64_t> layers_of(const ModelConfig& c, bool window, int64_t first, int64_t end) {
  std::vector<int64_t> out;
  for (int64_t layer = first; layer < end; ++layer)
    if (has_window(c, layer) == window) out.push_back(layer);
  return out;
}

// Reads per_layer_config, in which Transformers 5 lists the layers whose head_dim or number of key heads differs from
// the value that the config states for the whole model.
void read_sizes_by_layer(const ConfigReader& r, const ModelConfig& c, Gemma4& g) {
  if (!r.has("per_layer_config")) return;
  const ConfigReader layers = r.inner("per_layer_config");
  using Sizes = std::pair<int64_t, int64_t>;  // head_dim, key heads
  const Sizes usual{c.head_dim, c.num_key_value_heads};
  auto sizes_of = [&](int64_t layer) -> Sizes {
    const std::string number = std::to_string(layer);
    if (!layers.has(number)) return usual;
    const ConfigReader one = layers.inner(number);
    for (const auto& [key, value] : one.json().items())
      if (key != "head_dim" && key != "num_key_value_heads")
        throw UserError("{}: '{}' is not implemented; wanted head_dim or num_key_value_heads", one.file(), key);
    return {one.integer("head_dim", usual.first), one.integer("num_key_value_heads", usual.second)};
  };
  const Sizes full = sizes_of(c.num_hidden_layers - 1);  // the last layer has no window
  std::tie(g.full_head_dim, g.full_key_heads) = full;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    if (sizes_of(layer) != (has_window(c, layer) ? usual : full))
      throw UserError(
          "{}: 'per_layer_config': layer {} has other head sizes than the other layers {} a window; this is not "
          "implemented",
          r.file(), layer, has_window(c, layer) ? "with" : "without");
}

void read_experts(const ConfigReader& r, ModelConfig& c) {
  c.num_experts = r.integer("num_experts");
  c.experts_per_token = r.integer("top_k_experts");
  c.expert_size = r.integer("moe_intermediate_size");
  c.experts = {.router = "router.proj", .down = "experts.down_proj", .gate_up = "experts.gate_up_proj"};
  c.routing.factors = "router.per_expert_scale";
  if (c.experts_per_token > c.num_experts)
    throw UserError("{}: top_k_experts ({}) is more than the {} experts", r.file(), c.experts_per_token, c.num_experts);
}

ModelConfig read_dense(const ConfigReader& r, int64_t usual_window) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 256);
  c.hidden_act = r.text("hidden_activation", "gelu_pytorch_tanh");
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.rounds_embedding_scale = true;
  c.attention_scale = 1;
  c.attention_bias = r.flag("attention_bias", false);
  c.logit_softcap = r.number("final_logit_softcapping", 0);
  c.window = r.windows(c.num_hidden_layers, r.integer("sliding_window", usual_window),
                       [](int64_t layer) { return (layer + 1) % 6 != 0; });
  c.window.back() = 0;  // in Transformers, too, the last layer never has a window
  Gemma4 g;
  g.full_rope = {.rope_type = "proportional", .rope_theta = 1e6, .partial_rotary_factor = 0.25};
  if (r.has("rope_parameters")) g.full_rope = r.rope(1e6);
  c.rope = c.local_rope.value_or(RopeParameters{});  // of the layers with a window
  c.local_rope.reset();
  g.full_head_dim = r.integer("global_head_dim", 512);
  g.values_are_keys = r.flag("attention_k_eq_v", false);
  g.full_key_heads =
      g.values_are_keys ? r.integer("num_global_key_value_heads", c.num_key_value_heads) : c.num_key_value_heads;
  read_sizes_by_layer(r, c, g);
  if (c.num_attention_heads % g.full_key_heads != 0)
    throw UserError("{}: num_attention_heads ({}) is not divisible by num_global_key_value_heads ({})", r.file(),
                    c.num_attention_heads, g.full_key_heads);
  g.shared_layers = r.has("num_kv_shared_layers") ? r.count("num_kv_shared_layers") : 0;
  g.wide_mlp = r.flag("use_double_wide_mlp", false);
  c.gemma4 = g;
  for (const bool window : {true, false})
    if (g.shared_layers > 0 && layers_of(c, window, 0, std::max<int64_t>(0, first_shared(c))).empty() &&
        !layers_of(c, window, 0, c.num_hidden_layers).empty())
      throw UserError("{}: num_kv_shared_layers is {}, but {}; a shared layer needs an earlier layer of the same kind",
                      r.file(), g.shared_layers,
                      window ? "no layer before the shared layers has a window"
                             : "all layers before the shared layers have a window");
  // The value "vision" changes attention only for image tokens.
  if (r.text("use_bidirectional_attention", "vision") != "vision")
    r.refuse_unless("use_bidirectional_attention", nullptr);
  return c;
}

ModelConfig read_unified(const ConfigReader& r) {
  return read_dense(r, 1024);
}

ModelConfig read_gemma4(const ConfigReader& r) {
  ModelConfig c = read_dense(r, 512);
  c.gemma4->layer_size = r.given("hidden_size_per_layer_input")
                             ? (r.has("hidden_size_per_layer_input") ? r.count("hidden_size_per_layer_input") : 0)
                             : 256;
  c.gemma4->layer_vocab = r.integer("vocab_size_per_layer_input", 262144);
  if (r.flag("enable_moe_block", false)) read_experts(r, c);
  return c;
}

// Adds the parameters of attention in the layers with a window or, if `window` is false, in the others.
void add_heads(ParamList& list, const ModelConfig& c, bool window) {
  const Gemma4& g = *c.gemma4;
  const int64_t h = window ? c.head_dim : g.full_head_dim, keys = window ? c.num_key_value_heads : g.full_key_heads;
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * h, "heads"}, kv{keys * h, "kv_heads"};
  const LinearOptions options{.bias = c.attention_bias}, heads{.bias = c.attention_bias, .head_rows = h};
  const std::vector<int64_t> all = layers_of(c, window, 0, c.num_hidden_layers),
                             own = layers_of(c, window, 0, first_shared(c));
  if (all.empty()) return;
  list.in_layers(all).linear("self_attn.q_proj", q, d, heads);
  add_norm(list, c, "self_attn.q_norm", h);
  list.in_layers(own).linear("self_attn.k_proj", kv, d, heads);
  if (window || !g.values_are_keys) list.linear("self_attn.v_proj", kv, d, options);
  add_norm(list, c, "self_attn.k_norm", h);
  list.in_layers(all).linear("self_attn.o_proj", d, q, options);
}

void add_gemma4_layer(ParamList& list, const ModelConfig& c) {
  const Gemma4& g = *c.gemma4;
  const SizedAxis d{c.hidden_size, "embed"};
  add_heads(list, c, true);
  add_heads(list, c, false);
  const LayerSet all = all_layers(c.num_hidden_layers);
  const int64_t wide = g.wide_mlp ? first_shared(c) : c.num_hidden_layers;
  for (const auto& [layers, size] : {std::pair{all.within(0, wide), c.intermediate_size},
                                     std::pair{all.within(wide, c.num_hidden_layers), 2 * c.intermediate_size}}) {
    if (layers.count() == 0) continue;
    list.in_layers(layers.numbers).linear("mlp.gate_proj", {size, "mlp"}, d);
    list.linear("mlp.up_proj", {size, "mlp"}, d);
    list.linear("mlp.down_proj", d, {size, "mlp"});
  }
  list.in_layers();
  for (const char* name :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
    add_norm(list, c, name, d.size);
  list.add("layer_scalar", {1}, {"norm"}, Role::kBuffer, Init::kOnes);
  if (c.num_experts > 0) {
    add_expert_params(list, c);
    list.add("router.scale", {d.size}, {"norm"}, Role::kCoefficients, Init::kOnes);
    for (const char* name :
         {"post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"})
      add_norm(list, c, name, d.size);
  }
  if (g.layer_size > 0) {
    list.linear("per_layer_input_gate", {g.layer_size, ""}, d);
    list.linear("per_layer_projection", d, {g.layer_size, ""});
    add_norm(list, c, "post_per_layer_input_norm", d.size);
  }
}

// The text model. The names of all its modules begin with `prefix`.
class TextModel {
 public:
  TextModel(Forward& f, const std::string& prefix)
      : f_(f),
        c_(f.config),
        g_(*c_.gemma4),
        prefix_(prefix),
        decoder_(f),
        windowed_(rope_tables(c_.rope, c_.head_dim, f.positions, f.lengths)),
        full_(rope_tables(g_.full_rope, g_.full_head_dim, f.positions, f.lengths)) {}

  Tensor forward() {
    const Tensor x = embed(f_, f_.weights.at(prefix_ + "embed_tokens.weight"), f_.tokens);
    if (g_.layer_size > 0) values_.slices["per_layer_input"] = layer_inputs(x);
    if (g_.shared_layers > 0) {
      values_.first_reader = first_shared(c_);
      for (const bool window : {true, false}) start_keys(window);
    }
    const Tensor out = run_layers(
        f_, prefix_ + "layers.{}.", x,
        [&](Forward&) -> LayerBody {
          return [&](const Layer& weights, const Tensor& in, LayerCache* cache) { return layer(weights, in, cache); };
        },
        &values_);
    return norm(c_, f_.weights, prefix_ + "norm", out);
  }

 private:
  // Returns the vector of each token for each layer, [L, B, T, layer_size], computed from embed_tokens_per_layer and
  // from x.
  Tensor layer_inputs(const Tensor& x) const {
    const int64_t b = x.dim(0), t = x.dim(1), layers = c_.num_hidden_layers, size = g_.layer_size;
    auto by_layer = [&](const Tensor& y) { return reshape(y, {b, t, layers, size}); };
    const Tensor& table = f_.weights.at(prefix_ + "embed_tokens_per_layer.weight");
    const Tensor of_token = by_layer(convert(take(table, f_.tokens), f_.compute)) *
                            constant(std::sqrt(static_cast<double>(size)), f_.compute);
    const Tensor projected = linear_outside(f_, prefix_ + "per_layer_model_projection", x);
    const Tensor normal = norm(c_, f_.weights, prefix_ + "per_layer_projection_norm",
                               by_layer(projected) * (1 / std::sqrt(static_cast<double>(c_.hidden_size))));
    const Tensor both = f_.sharding.constrain((normal + of_token) * std::sqrt(0.5), {"batch", "length", "", ""});
    return transpose(both, {2, 0, 1, 3});
  }

  static std::string name_of(const char* what, bool window) {
    return std::string(what) + (window ? " windowed" : " full");
  }

  // Sets the shared keys and values to zeros. The layers before `first_reader` replace them.
  void start_keys(bool window) {
    const int64_t keys = window ? c_.num_key_value_heads : g_.full_key_heads;
    Shape shape{f_.compute, {f_.tokens.dim(0), f_.tokens.dim(1), keys, window ? c_.head_dim : g_.full_head_dim}};
    if (f_.cache) {
      shape.dtype = f_.cache->arrays[0].dtype();
      shape.dims[1] = f_.cache->arrays[0].dim(2);
    }
    for (const char* what : {"keys", "values"})
      values_.kept[name_of(what, window)] =
          f_.cache ? full(0, shape) : f_.sharding.constrain(full(0, shape), {"batch", "length", "act_kv_heads", ""});
  }

  Tensor attention(const Layer& layer, const Tensor& x, LayerCache* cache) {
    const bool window = has_window(c_, layer.lowest);
    const int64_t b = x.dim(0), t = x.dim(1), h = window ? c_.head_dim : g_.full_head_dim;
    const Rope& rope = window ? windowed_ : full_;
    auto heads = [&](const char* module, int64_t count, const char* axis) {
      return f_.sharding.constrain(reshape(linear(f_, layer, module, x), {b, t, count, h}),
                                   {"batch", "length", axis, ""});
    };
    const Tensor q = apply_rope(
        rope, decoder_.norm(layer, "self_attn.q_norm", heads("self_attn.q_proj", c_.num_attention_heads, "act_heads")));
    Tensor& shared_keys = values_.kept[name_of("keys", window)];
    Tensor& shared_values = values_.kept[name_of("values", window)];
    LayerCache shared_cache;
    Tensor k, v;
    if (layer.has("self_attn.k_proj.weight")) {
      const int64_t count = window ? c_.num_key_value_heads : g_.full_key_heads;
      const Tensor key = heads("self_attn.k_proj", count, "act_kv_heads");
      v = rms_norm(layer.has("self_attn.v_proj.weight") ? heads("self_attn.v_proj", count, "act_kv_heads") : key, {},
                   c_.norm_eps);
      k = apply_rope(rope, decoder_.norm(layer, "self_attn.k_norm", key));
    } else if (cache != nullptr) {
      shared_cache = LayerCache::of({{"keys", shared_keys}, {"values", shared_values}});
      cache = &shared_cache;
    } else {
      k = shared_keys, v = shared_values;
    }
    AttentionOptions options{.scale = c_.attention_scale};
    if (window)
      options.window = constant(static_cast<double>(c_.window[static_cast<size_t>(layer.lowest)]), DType::kI32);
    const Tensor out = fettle::attention(f_, q, k, v, options, cache);
    if (g_.shared_layers > 0 && layer.has("self_attn.k_proj.weight")) {
      shared_keys = cache != nullptr ? cache->at("keys") : k;
      shared_values = cache != nullptr ? cache->at("values") : v;
    }
    return linear(f_, layer, "self_attn.o_proj", reshape(out, {b, t, c_.num_attention_heads * h}));
  }

  // Computes the experts, which read x after a norm. Their router reads x after another norm (without a weight) and a
  // scale.
  Tensor experts(const Layer& layer, const Tensor& x) const {
    const Tensor scale =
        convert(layer["router.scale"], f_.compute) * (1 / std::sqrt(static_cast<double>(c_.hidden_size)));
    return experts_mlp(f_, layer, decoder_.norm(layer, "pre_feedforward_layernorm_2", x),
                       rms_norm(x, {}, c_.norm_eps) * scale);
  }

  Tensor layer(const Layer& layer, const Tensor& x, LayerCache* cache) {
    auto norm = [&](const char* name, const Tensor& in) { return decoder_.norm(layer, name, in); };
    Tensor y = x + norm("post_attention_layernorm", attention(layer, norm("input_layernorm", x), cache));
    Tensor fed = decoder_.mlp(layer, norm("pre_feedforward_layernorm", y));
    if (c_.num_experts > 0)
      fed = norm("post_feedforward_layernorm_1", fed) + norm("post_feedforward_layernorm_2", experts(layer, y));
    y = y + norm("post_feedforward_layernorm", fed);
    if (g_.layer_size > 0) {
      const Tensor gate = activation(c_.hidden_act, linear(f_, layer, "per_layer_input_gate", y));
      const Tensor added = linear(f_, layer, "per_layer_projection", gate * layer["per_layer_input"]);
      y = y + norm("post_per_layer_input_norm", added);
    }
    return y * convert(layer["layer_scalar"], f_.compute);
  }

  Forward& f_;
  const ModelConfig& c_;
  const Gemma4& g_;
  const std::string prefix_;
  const Decoder decoder_;
  const Rope windowed_, full_;
  LayerValues values_;
};

std::vector<CacheArray> gemma4_cache(const ModelConfig& c) {
  std::vector<CacheArray> out;
  for (const bool window : {true, false}) {
    LayerSet layers{layers_of(c, window, 0, first_shared(c))};
    layers.all = layers.count();
    if (layers.count() == 0) continue;
    const Dims dims{1, -1, window ? c.num_key_value_heads : c.gemma4->full_key_heads,
                    window ? c.head_dim : c.gemma4->full_head_dim};
    for (const char* name : {"keys", "values"}) out.push_back({name, layers, dims, {"batch", "", "act_kv_heads", ""}});
  }
  return out;
}

// The names of the text model's modules begin with `prefix`.
Family text_family(const std::string& model_type, const std::string& architecture,
                   ModelConfig (*read)(const ConfigReader&), const std::string& prefix) {
  Family family =
      decoder_family(model_type, architecture, read, {add_gemma4_layer, nullptr},
                     {.layer = prefix + "layers.{}.", .embedding = prefix + "embed_tokens", .norm = prefix + "norm"});
  family.params = [params = family.params, prefix](const ModelConfig& c) {
    std::vector<Param> out = params(c);
    const int64_t width = c.num_hidden_layers * c.gemma4->layer_size;
    if (width == 0) return out;
    ParamList list("", 0);
    list.embedding(prefix + "embed_tokens_per_layer", c.gemma4->layer_vocab, width, Role::kLayerEmbedding);
    list.linear(prefix + "per_layer_model_projection", {width, ""}, {c.hidden_size, "embed"});
    add_norm(list, c, prefix + "per_layer_projection_norm", c.gemma4->layer_size);
    std::ranges::move(list.take(), std::back_inserter(out));
    return out;
  };
  family.forward = [prefix](Forward& f) { return TextModel(f, prefix).forward(); };
  family.cache = gemma4_cache;
  // The last layers use the keys and values of an earlier layer. Checkpoints may still have weights for the last
  // layers' own keys and values.
  family.unused = [prefix](const ModelConfig& c) {
    std::vector<std::string> out;
    for (int64_t layer = first_shared(c); layer < c.num_hidden_layers; ++layer)
      for (const char* module : {"k_proj", "v_proj", "k_norm", "v_norm"})
        out.push_back(prefix + "layers." + std::to_string(layer) + ".self_attn." + module + ".weight");
    return out;
  };
  return without_classifier(family);
}

Family wrapped(const std::string& model_type, const std::string& architecture,
               ModelConfig (*read)(const ConfigReader&)) {
  Family family = wrapped_family(text_family(model_type, "", read, "model.language_model."), model_type, architecture);
  family.carried = {"model.vision_tower.", "model.audio_tower.", "model.vision_embedder.", "model.embed_vision.",
                    "model.embed_audio."};
  return family;
}

}  // namespace

Family gemma4_text_family() {
  return text_family("gemma4_text", "Gemma4ForCausalLM", read_gemma4, "model.");
}

Family gemma4_family() {
  return wrapped("gemma4", "Gemma4ForConditionalGeneration", read_gemma4);
}

Family gemma4_unified_text_family() {
  return text_family("gemma4_unified_text", "Gemma4UnifiedForCausalLM", read_unified, "model.");
}

Family gemma4_unified_family() {
  return wrapped("gemma4_unified", "Gemma4UnifiedForConditionalGeneration", read_unified);
}

}  // namespace fettle
