// Mistral: Llama with a sliding window. Ministral 3 also multiplies the queries by a factor that grows with the
// position. Both can be the text part of a checkpoint with images (mistral3). Sources: transformers/models/mistral,
// ministral3, mistral3.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

ModelConfig read_mistral(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  const int64_t window = r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096;
  // Configs with layer_types are those of Ministral, which Transformers recognises by this key.
  if (window > 0) c.window = r.windows(c.num_hidden_layers, window, [](int64_t) { return true; });
  return c;
}

ModelConfig read_ministral3(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  if (r.has("sliding_window")) c.window.assign(c.num_hidden_layers, r.integer("sliding_window"));
  r.require_rope();
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  const char* rope = r.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  c.query_growth = r.inner(rope).number("llama_4_scaling_beta", 0);
  if (c.query_growth != 0 && c.rope.original_max_position_embeddings == 0)
    throw UserError("{}: llama_4_scaling_beta needs original_max_position_embeddings in {}", r.file(), rope);
  if (c.query_growth != 0 && c.rope.rope_type == "dynamic")
    throw UserError("{}: llama_4_scaling_beta is not implemented with rope_type dynamic", r.file());
  return c;
}

// Computes the usual layer, but multiplies the queries by a factor. For positions beyond yarn's original context, the
// factor grows with the logarithm of the position.
Tensor ministral3_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  Heads heads = d.rotate(layer, d.project(layer, d.norm(layer, "input_layernorm", x)));
  if (d.config.query_growth != 0) {
    const Tensor positions = convert(d.f.positions, DType::kF32);
    const Tensor times = floor(positions / static_cast<double>(d.config.rope.original_max_position_embeddings)) + 1.0;
    const Tensor factor = log(times) * d.config.query_growth + 1.0;
    heads.q_BTNH = heads.q_BTNH * convert(expand(expand(factor, 2), 3), heads.q_BTNH.dtype());
  }
  const Tensor y = x + d.attend(layer, heads, cache);
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

// The text part is a model of type mistral (Mistral Small 3.1 and 3.2) or ministral3.
ModelConfig read_text_of_mistral3(const ConfigReader& r) {
  const std::string type = r.text("model_type", "mistral");
  if (type == "mistral") return read_mistral(r);
  if (type == "ministral3") return read_ministral3(r);
  throw UserError("{}: model_type '{}' is not implemented as the text part of mistral3; wanted mistral or ministral3",
                  r.file(), type);
}

}  // namespace

Family ministral3_family() {
  return decoder_family("ministral3", "Ministral3ForCausalLM", read_ministral3, {add_pre_norm_layer, ministral3_layer});
}

Family mistral3_family() {
  const Family text =
      decoder_family("mistral3", "", read_text_of_mistral3, {add_pre_norm_layer, ministral3_layer}, names_in_wrapped());
  return wrapped_family(text, "mistral3", "Mistral3ForConditionalGeneration");
}

Family mistral_family() {
  return decoder_family("mistral", "MistralForCausalLM", read_mistral);
}

}  // namespace fettle
