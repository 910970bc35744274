// GPT-2: Conv1D weights [in, out], tied head. Source: transformers/models/gpt2.
#include <nlohmann/json.hpp>

#include "models/families/families.h"
#include "models/families/openai/gpt.h"

namespace fettle {
namespace {

ModelConfig read_gpt2(const ConfigReader& r) {
  r.refuse_unless("scale_attn_by_inverse_layer_idx", false);
  return read_gpt_config(r, "gelu_new");
}

}  // namespace

Family gpt2_family() {
  Family family = gpt_family("gpt2", "GPT2LMHeadModel", true);
  family.read = read_gpt2;
  return family;
}

}  // namespace fettle
