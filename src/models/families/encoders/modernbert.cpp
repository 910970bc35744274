// ModernBERT: rope, norms before attention and MLP, gated MLPs, no biases by default. On two of three layers, a query
// sees only the keys near it. Source: transformers/models/modernbert.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/encoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

const std::string kLayers = "model.layers.{}.";

ModelConfig read_modernbert(const ConfigReader& r) {
  ModelConfig c = read_encoder_sizes(r, 8192);
  c.norm = r.flag("norm_bias", false) ? Norm::kLayer : Norm::kCentred;
  c.norm_eps = r.number("norm_eps", 1e-5);
  c.hidden_act = r.text("hidden_activation", "gelu");
  c.attention_module = "attn";
  c.fused_qkv = "Wqkv";
  c.attention_bias = r.flag("attention_bias", false);
  c.mlp = Mlp::kFusedGated;
  c.mlp_names = {.up = "mlp.Wi", .down = "mlp.Wo"};
  c.mlp_bias = r.flag("mlp_bias", false);
  c.causal = false;
  c.rope = r.rope(r.number("global_rope_theta", 160000));
  c.local_rope = r.local_rope();
  // If config.json has no rope_parameters and local_rope_theta is null, layers with a window have the theta of the
  // other layers.
  const double local_theta = r.given("local_rope_theta") ? c.rope.rope_theta : 10000;
  if (!c.local_rope) c.local_rope.emplace().rope_theta = r.number("local_rope_theta", local_theta);
  if (!r.has("rope_parameters")) r.refuse_unless("rope_scaling", nullptr);
  // A query sees local_attention / 2 keys on each side. ModelConfig::window also counts the key at the query's
  // position.
  const int64_t step = r.integer("global_attn_every_n_layers", 3);
  c.window = r.windows(c.num_hidden_layers, r.integer("local_attention", 128) / 2 + 1,
                       [=](int64_t layer) { return layer % step != 0; });
  const std::string pooling = r.text("classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean")
    throw UserError("{}: classifier_pooling is '{}', wanted cls or mean", r.file(), pooling);
  c.classifier = {.mean = pooling == "mean",
                  .act = r.text("classifier_activation", "gelu"),
                  .inner_bias = r.flag("classifier_bias", false)};
  r.note_dropouts(c, {"attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"});
  if (c.head_dim % 2 != 0)
    throw UserError("{}: the heads have {} dims; rotary embedding needs an even number", r.file(), c.head_dim);
  return c;
}

std::vector<Param> modernbert_params(const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, heads{c.hidden_size, "heads"};
  ParamList list(kLayers, c.num_hidden_layers);
  list.embedding("model.embeddings.tok_embeddings", c.vocab_size, d.size);
  add_norm(list, c, "model.embeddings.norm", d.size);
  std::vector<int64_t> normed;  // the norm of the embeddings takes the place of the first layer's attn_norm
  for (int64_t layer = 1; layer < c.num_hidden_layers; ++layer) normed.push_back(layer);
  list.in_layers(normed);
  add_norm(list, c, "attn_norm", d.size);
  list.in_layers();
  list.linear("attn.Wqkv", heads, d, {.bias = c.attention_bias, .parts = 3});
  list.linear("attn.Wo", d, heads, {.bias = c.attention_bias});
  add_norm(list, c, "mlp_norm", d.size);
  add_mlp(list, c);
  list.outside();
  add_norm(list, c, "model.final_norm", d.size);
  return list.take();
}

Tensor modernbert_forward(Forward& f) {
  internal_check(!f.cache, "modernbert is an encoder and cannot use a cache");
  const Tensor embedded = embed(f, f.weights.at("model.embeddings.tok_embeddings.weight"), f.tokens);
  const Tensor x_BTD = norm(f.config, f.weights, "model.embeddings.norm", embedded);
  const Tensor out = run_layers(f, kLayers, x_BTD, [](Forward& rows) -> LayerBody {
    return [parts = Decoder(rows)](const Layer& layer, const Tensor& x, LayerCache*) {
      const Tensor normal = layer.has("attn_norm.weight") ? parts.norm(layer, "attn_norm", x) : x;
      const Heads heads = parts.rotate(layer, parts.project(layer, normal));
      const Tensor y = x + parts.attend(layer, heads, nullptr, "Wo");
      return y + parts.mlp(layer, parts.norm(layer, "mlp_norm", y));
    };
  });
  return norm(f.config, f.weights, "model.final_norm", out);
}

}  // namespace

Family modernbert_family() {
  return {.model_type = "modernbert",
          .architecture = "ModernBertModel",
          .layer_prefix = kLayers,
          .read = read_modernbert,
          .params = modernbert_params,
          .forward = modernbert_forward,
          .classifier = {.architecture = "ModernBertForSequenceClassification",
                         .pooled = Pooled::kFirst,
                         .modules = {"head.dense", "classifier"},
                         .norm = "head.norm",
                         .bias = true,
                         .saved = {"classifier", "head"},
                         .others = {"decoder."}},
          .encoder = true};
}

}  // namespace fettle
