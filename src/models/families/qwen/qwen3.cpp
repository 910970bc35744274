// Qwen 3 (dense): norms on each head of q and k; head_dim is a separate field. Source: transformers/models/qwen3.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_qwen3(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", 128);
  c.attention_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  r.refuse_unless("use_sliding_window", false);
  return c;
}

}  // namespace

Family qwen3_family() {
  return decoder_family("qwen3", "Qwen3ForCausalLM", read_qwen3);
}

}  // namespace fettle
