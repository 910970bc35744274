// Phi-3, Phi-3.5 and Phi-4: one module for q, k and v, one for gate and up, longrope, a window on all layers. Source:
// transformers/models/phi3.
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_phi3(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.fused_qkv = "qkv_proj";
  c.mlp = Mlp::kFusedGated;
  c.mlp_names.up = "mlp.gate_up_proj";
  if (r.has("sliding_window")) c.window.assign(c.num_hidden_layers, r.integer("sliding_window"));
  r.note_dropouts(c, {"resid_pdrop", "embd_pdrop"});
  return c;
}

}  // namespace

Family phi3_family() {
  return decoder_family("phi3", "Phi3ForCausalLM", read_phi3);
}

}  // namespace fettle
