// GPT-2: learned positions, LayerNorm, one fused q|k|v, Conv1D weights [in, out], tied head.
// Source: transformers/models/gpt2.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/attention.h"
#include "models/families.h"
#include "models/layers.h"

namespace fettle {
namespace {

ModelConfig read(const ConfigReader& r) {
  ModelConfig c;
  r.read_common(c, true);
  c.hidden_size = r.integer("n_embd");
  c.intermediate_size = r.integer("n_inner", 4 * c.hidden_size);
  c.num_hidden_layers = r.integer("n_layer");
  c.num_attention_heads = c.num_key_value_heads = r.integer("n_head");
  c.max_position_embeddings = r.integer("n_positions", 1024);
  c.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  c.hidden_act = r.text("activation_function", "gelu_new");
  r.refuse_unless("scale_attn_weights", true);
  r.refuse_unless("scale_attn_by_inverse_layer_idx", false);
  r.refuse_unless("add_cross_attention", false);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw UserError("{}: n_embd ({}) does not divide by n_head ({})", r.file(), c.hidden_size, c.num_attention_heads);
  c.head_dim = c.hidden_size / c.num_attention_heads;
  return c;
}

std::vector<WeightRow> weights(const ModelConfig& c) {
  const int64_t d = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "transformer.h.{}.";
  std::vector<WeightRow> rows{
      {"transformer.wte.weight", {c.vocab_size, d}, {"vocab", "embed"}},
      {"transformer.wpe.weight", {c.max_position_embeddings, d}, {"", "embed"}},
      {layer + "ln_1.weight", {d}, {"norm"}, Init::kOnes},
      {layer + "ln_1.bias", {d}, {"norm"}, Init::kZeros},
      // q|k|v in one: a split of its output over tp would cut across them.
      {layer + "attn.c_attn.weight", {d, 3 * d}, {"embed", ""}},
      {layer + "attn.c_attn.bias", {3 * d}, {""}, Init::kZeros},
      {layer + "attn.c_proj.weight", {d, d}, {"heads", "embed"}},
      {layer + "attn.c_proj.bias", {d}, {"norm"}, Init::kZeros},
      {layer + "ln_2.weight", {d}, {"norm"}, Init::kOnes},
      {layer + "ln_2.bias", {d}, {"norm"}, Init::kZeros},
      {layer + "mlp.c_fc.weight", {d, f}, {"embed", "mlp"}},
      {layer + "mlp.c_fc.bias", {f}, {"mlp"}, Init::kZeros},
      {layer + "mlp.c_proj.weight", {f, d}, {"mlp", "embed"}},
      {layer + "mlp.c_proj.bias", {d}, {"norm"}, Init::kZeros},
      {"transformer.ln_f.weight", {d}, {"norm"}, Init::kOnes},
      {"transformer.ln_f.bias", {d}, {"norm"}, Init::kZeros},
  };
  if (!c.tie_word_embeddings) rows.push_back({"lm_head.weight", {c.vocab_size, d}, {"vocab", "embed"}});
  return rows;
}

Tensor forward(Forward& f) {
  const ModelConfig& c = f.config;
  const int64_t b = f.tokens.dim(0), t = f.tokens.dim(1), n = c.num_attention_heads, h = c.head_dim, d = c.hidden_size;
  const Tensor places = convert(take(f.weights.at("transformer.wpe.weight"), f.positions), f.compute);
  const Tensor x_BTD = embed(f, f.weights.at("transformer.wte.weight"), f.tokens) + places;
  auto norm = [&c](const Layer& layer, const std::string& name, const Tensor& x) {
    return layer_norm(x, layer[name + ".weight"], layer[name + ".bias"], c.norm_eps);
  };
  const Tensor out_BTD =
      run_layers(f, "transformer.h.{}.", x_BTD, [&](const Layer& layer, const Tensor& x, LayerCache* cache) {
        const Tensor qkv = linear(f, layer, "attn.c_attn", norm(layer, "ln_1", x), true);
        auto heads = [&](int64_t part) {
          const Tensor y = reshape(slice(qkv, 2, part * d, (part + 1) * d), {b, t, n, h});
          return f.sharding.constrain(y, {"batch", "length", "act_heads", ""});
        };
        const Tensor mixed =
            attention(f, heads(0), heads(1), heads(2), {.scale = 1 / std::sqrt(static_cast<double>(h))}, cache);
        const Tensor y = x + linear(f, layer, "attn.c_proj", reshape(mixed, {b, t, d}), true);
        const Tensor hidden = activation(c.hidden_act, linear(f, layer, "mlp.c_fc", norm(layer, "ln_2", y), true));
        return y + linear(f, layer, "mlp.c_proj", f.sharding.constrain(hidden, {"batch", "length", "act_mlp"}), true);
      });
  return layer_norm(out_BTD, f.weights.at("transformer.ln_f.weight"), f.weights.at("transformer.ln_f.bias"),
                    c.norm_eps);
}

}  // namespace

Family gpt2_family() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .layer_prefix = "transformer.h.{}.",
          .embedding = "transformer.wte.weight",
          .head = "lm_head.weight",
          .fan_in_fan_out = true,
          .read = read,
          .weights = weights,
          .forward = forward,
          .linears = {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}};
}

}  // namespace fettle
