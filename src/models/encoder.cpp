#include "models/encoder.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/attention.h"
#include "models/blocks/layers.h"
#include "models/blocks/run_layers.h"

namespace fettle {
namespace {

std::string layers(const std::string& prefix) {
  return prefix + "encoder.layer.{}.";
}

Tensor encoder_self_attention(const Forward& f, const Layer& layer, const Tensor& x_BTD) {
  const ModelConfig& c = f.config;
  auto heads = [&](const char* name) {
    const Tensor y = linear(f, layer, std::string("attention.self.") + name, x_BTD);
    const Tensor y_BTNH = reshape(y, {x_BTD.dim(0), x_BTD.dim(1), c.num_attention_heads, c.head_dim});
    return f.sharding.constrain(y_BTNH, {"batch", "length", "act_heads", ""});
  };
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)), .causal = false};
  const Tensor out = attention(f, heads("query"), heads("key"), heads("value"), options, nullptr);
  return linear(f, layer, "attention.output.dense", reshape(out, x_BTD.dims()));
}

Tensor embeddings(const Forward& f, const std::string& prefix) {
  const ModelConfig& c = f.config;
  const std::string name = prefix + "embeddings.";
  auto rows = [&](const char* table, const Tensor& ids) {
    return convert(take(f.weights.at(name + table + ".weight"), ids), f.compute);
  };
  const Tensor places = c.first_position == 0 ? f.positions : f.positions + static_cast<double>(c.first_position);
  // With only one token type, all tokens get the same type vector.
  const bool typed = f.token_types && c.type_vocab_size > 1;
  const Tensor types = typed ? f.token_types : zeros_like(f.positions);
  const Tensor x = embed(f, f.weights.at(name + "word_embeddings.weight"), f.tokens) +
                   rows("token_type_embeddings", types) + rows("position_embeddings", places);
  return norm(c, f.weights, name + "LayerNorm", x);
}

}  // namespace

ModelConfig read_encoder_sizes(const ConfigReader& r, int64_t default_positions) {
  ModelConfig c;
  r.read_common(c, true);
  c.hidden_size = r.integer("hidden_size");
  c.intermediate_size = r.integer("intermediate_size");
  c.num_hidden_layers = r.integer("num_hidden_layers");
  c.num_attention_heads = c.num_key_value_heads = r.integer("num_attention_heads");
  c.max_position_embeddings = r.integer("max_position_embeddings", default_positions);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw UserError("{}: hidden_size ({}) is not divisible by num_attention_heads ({})", r.file(), c.hidden_size,
                    c.num_attention_heads);
  c.head_dim = c.hidden_size / c.num_attention_heads;
  return c;
}

ModelConfig read_encoder_config(const ConfigReader& r) {
  ModelConfig c = read_encoder_sizes(r, 512);
  c.type_vocab_size = r.integer("type_vocab_size", 2);
  c.norm = Norm::kLayer;
  c.norm_eps = r.number("layer_norm_eps", 1e-12);
  c.hidden_act = r.text("hidden_act", "gelu");
  r.refuse_unless("position_embedding_type", "absolute");
  r.refuse_unless("is_decoder", false);
  r.refuse_unless("add_cross_attention", false);
  r.note_dropouts(c, {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"});
  return c;
}

std::vector<Param> encoder_params(const ModelConfig& c, const std::string& prefix) {
  const SizedAxis d{c.hidden_size, "embed"}, heads{c.hidden_size, "heads"}, f{c.intermediate_size, "mlp"};
  const std::string embeddings = prefix + "embeddings.";
  ParamList list(layers(prefix), c.num_hidden_layers);
  list.embedding(embeddings + "word_embeddings", c.vocab_size, d.size);
  list.embedding(embeddings + "position_embeddings", c.first_position + c.max_position_embeddings, d.size,
                 Role::kPositionEmbedding);
  list.embedding(embeddings + "token_type_embeddings", c.type_vocab_size, d.size, Role::kTypeEmbedding);
  list.norm(embeddings + "LayerNorm", d.size, Init::kOnes, true);
  list.in_layers();
  list.linear("attention.self.query", heads, d, {.bias = true, .head_rows = c.head_dim});
  list.linear("attention.self.key", heads, d, {.bias = true, .head_rows = c.head_dim});
  list.linear("attention.self.value", heads, d, {.bias = true});
  list.linear("attention.output.dense", d, heads, {.bias = true});
  list.norm("attention.output.LayerNorm", d.size, Init::kOnes, true);
  list.linear("intermediate.dense", f, d, {.bias = true});
  list.linear("output.dense", d, f, {.bias = true});
  list.norm("output.LayerNorm", d.size, Init::kOnes, true);
  return list.take();
}

Tensor encoder_forward(Forward& f, const std::string& prefix) {
  const ModelConfig& c = f.config;
  internal_check(!f.cache, "{} is an encoder and cannot use a cache", c.model_type);
  const Tensor x_BTD = embeddings(f, prefix);
  return run_layers(f, layers(prefix), x_BTD, [&c](Forward& rows) -> LayerBody {
    return [&c, &rows](const Layer& layer, const Tensor& x, LayerCache*) {
      auto normal = [&](const char* name, const Tensor& value) { return norm(c, layer, name, value); };
      const Tensor y = normal("attention.output.LayerNorm", x + encoder_self_attention(rows, layer, x));
      const Tensor inner = activation(c.hidden_act, linear(rows, layer, "intermediate.dense", y));
      const Tensor hidden = rows.sharding.constrain(inner, {"batch", "length", "act_mlp"});
      return normal("output.LayerNorm", y + linear(rows, layer, "output.dense", hidden));
    };
  });
}

Family encoder_family(const std::string& model_type, const std::string& architecture, const std::string& prefix,
                      std::vector<Param> (*params)(const ModelConfig& config), Tensor (*forward)(Forward& f)) {
  return {.model_type = model_type,
          .architecture = architecture,
          .layer_prefix = layers(prefix),
          .read = read_encoder_config,
          .params = params,
          .forward = forward,
          .ignored = {"*embeddings.position_ids"},
          .classifier = {},
          .encoder = true};
}

}  // namespace fettle
