// Mixtral: Mistral with a mixture of experts in place of the MLP. Source: transformers/models/mixtral.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_mixtral(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.rope = r.rope(1e6);
  if (r.has("sliding_window")) c.window.assign(c.num_hidden_layers, r.integer("sliding_window"));
  c.mlp = Mlp::kExperts;
  c.experts = {"block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3",
               "block_sparse_moe.experts.{}.w2"};
  r.read_experts(c, r.integer("num_local_experts", 8), 2);
  r.refuse_unless("router_jitter_noise", 0.0);
  return c;
}

}  // namespace

Family mixtral_family() {
  return decoder_family("mixtral", "MixtralForCausalLM", read_mixtral);
}

}  // namespace fettle
