// Phi-3, Phi-3.5 and Phi-4: one module for q, k and v, one for gate and up, longrope, a window on all layers. Source:
// transformers/models/phi3.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

// Returns the config with the present name of longrope. As in Transformers, "yarn" means longrope in this family.
nlohmann::json with_longrope(nlohmann::json config) {
  for (const char* key : {"rope_parameters", "rope_scaling"})
    for (const char* type : {"rope_type", "type"})
      if (config.contains(key) && config[key].is_object() && config[key].value(type, nlohmann::json()) == "yarn")
        config[key][type] = "longrope";
  return config;
}

ModelConfig read_phi3(const ConfigReader& reader) {
  const nlohmann::json config = with_longrope(reader.json());
  const ConfigReader r(config, reader.file());
  ModelConfig c = read_decoder_config(r);
  if (c.rope.rope_type != "default" && c.rope.rope_type != "longrope")
    throw UserError("{}: rope_type is {}; only default and longrope are implemented for this family", r.file(),
                    c.rope.rope_type);
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
