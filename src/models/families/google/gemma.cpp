// Gemma: Llama with norms that multiply by 1 + weight, a scaled embedding and a tied head. Source:
// transformers/models/gemma.
#include "models/families/google/gemma.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {

ModelConfig read_gemma_config(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 256);
  c.norm = Norm::kRmsPlusOne;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.rounds_embedding_scale = true;
  c.attention_bias = r.flag("attention_bias", false);
  r.refuse_unless("use_bidirectional_attention", false);
  return c;
}

ModelConfig read_sandwich_gemma_config(const ConfigReader& r) {
  ModelConfig c = read_gemma_config(r);
  c.hidden_act = r.text("hidden_activation", "gelu_pytorch_tanh");
  c.attention_scale = 1 / std::sqrt(positive_number(r, "query_pre_attn_scalar", 256));
  return c;
}

int64_t gemma_window(const ConfigReader& r) {
  return r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096;
}

void add_sandwich_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_attention(list, c);
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_norm(list, c, "pre_feedforward_layernorm", c.hidden_size);
  add_norm(list, c, "post_feedforward_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor sandwich_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor mixed = d.attention(layer, d.norm(layer, "input_layernorm", x), cache);
  const Tensor y = x + d.norm(layer, "post_attention_layernorm", mixed);
  const Tensor fed = d.mlp(layer, d.norm(layer, "pre_feedforward_layernorm", y));
  return y + d.norm(layer, "post_feedforward_layernorm", fed);
}

namespace {

// The published configs say "gelu", but mean its approximation by tanh. Transformers reads them in the same way.
ModelConfig read_gemma1(const ConfigReader& r) {
  ModelConfig c = read_gemma_config(r);
  const std::string act = r.text("hidden_activation", r.text("hidden_act", "gelu_pytorch_tanh"));
  c.hidden_act = act == "gelu" ? "gelu_pytorch_tanh" : act;
  return c;
}

}  // namespace

Family gemma_family() {
  return decoder_family("gemma", "GemmaForCausalLM", read_gemma1);
}

}  // namespace fettle
