#include "models/gemma.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/decoder.h"

namespace fettle {

ModelConfig read_gemma_config(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 256);
  c.hidden_act = r.text("hidden_activation", "gelu_pytorch_tanh");
  c.norm = Norm::kRmsPlusOne;
  c.post_norms = true;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.attention_bias = r.flag("attention_bias", false);
  c.attention_scale = 1 / std::sqrt(r.number("query_pre_attn_scalar", 256));
  r.refuse_unless("use_bidirectional_attention", false);
  return c;
}

int64_t gemma_window(const ConfigReader& r) {
  return r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096;
}

}  // namespace fettle
