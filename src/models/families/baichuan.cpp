// Baichuan and Baichuan 2: q|k|v in one W_pack; rope in the 7B, ALiBi in the 13B; a normalised head in Baichuan 2.
// Source: the modeling_baichuan.py of the published models.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

constexpr int64_t kVocabularyOfTheFirst = 64000;

// The code beside the weights decides what the 7B and the 13B compute; what tells their configs apart is that only the
// 7B's has a number of positions, and Baichuan from Baichuan 2 the vocabulary.
ModelConfig read_baichuan(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.fused_qkv = "W_pack";
  c.alibi = !r.has("max_position_embeddings");
  if (c.alibi) c.max_position_embeddings = r.integer("model_max_length", 4096);
  c.normalised_head = c.vocab_size != kVocabularyOfTheFirst;
  r.refuse_unless("z_loss_weight", 0);
  return c;
}

}  // namespace

Family baichuan_family() {
  Family family = decoder_family("baichuan", "BaichuanForCausalLM", read_baichuan);
  family.classifier.architecture = "";
  return family;
}

}  // namespace fettle
