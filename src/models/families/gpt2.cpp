// GPT-2: Conv1D weights [in, out], tied head. Source: transformers/models/gpt2.
#include <nlohmann/json.hpp>

#include "models/families/families.h"
#include "models/gpt.h"

namespace fettle {
namespace {

ModelConfig read(const ConfigReader& r) {
  r.refuse_unless("scale_attn_by_inverse_layer_idx", false);
  return read_gpt_config(r, "gelu_new");
}

std::vector<WeightRow> weights(const ModelConfig& config) {
  return gpt_weights(config, true);
}

Tensor forward(Forward& f) {
  return gpt_forward(f, true);
}

}  // namespace

Family gpt2_family() {
  Family family = gpt_family("gpt2", "GPT2LMHeadModel");
  family.fan_in_fan_out = true;
  family.read = read;
  family.weights = weights;
  family.forward = forward;
  return family;
}

}  // namespace fettle
