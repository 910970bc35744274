// Baichuan and Baichuan 2: one module W_pack for q, k and v; rope in the 7B, ALiBi in the 13B; a normalised head in
// Baichuan 2. Source: the modeling_baichuan.py of the published models.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

constexpr int64_t kBaichuan1Vocabulary = 64000, kMostOfBaichuan1 = 100'000;  // with new tokens

// config.json has no fields for ALiBi and for the normalised head, so other fields must tell the models apart: only the
// 7B models (without ALiBi) have max_position_embeddings, and only Baichuan 1 (without the normalised head) has a
// vocab_size of 64000, or a little more with new tokens; Baichuan 2 has 125,696. The published code shows what each
// model computes.
ModelConfig read_baichuan(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.fused_qkv = "W_pack";
  c.alibi = !r.has("max_position_embeddings");
  if (c.alibi) c.max_position_embeddings = r.integer("model_max_length", 4096);
  c.normalised_head = c.vocab_size < kBaichuan1Vocabulary || c.vocab_size > kMostOfBaichuan1;
  r.refuse_unless("z_loss_weight", 0);
  return c;
}

}  // namespace

Family baichuan_family() {
  return without_classifier(decoder_family("baichuan", "BaichuanForCausalLM", read_baichuan));
}

}  // namespace fettle
