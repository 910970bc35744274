#include "models/wrapped.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fettle {

DecoderNames names_in_wrapped() {
  return {.layer = "model.language_model.layers.{}.",
          .embedding = "model.language_model.embed_tokens",
          .norm = "model.language_model.norm"};
}

Family wrapped_family(Family text, const std::string& model_type, const std::string& architecture) {
  text.read = [read = text.read, model_type](const ConfigReader& outer) {
    // config.json may have these fields in `text_config` or in the outer object. The outer value takes precedence.
    nlohmann::json inner = outer.inner("text_config").json();
    for (const char* key : {"dtype", "torch_dtype", "quantization_config", "eos_token_id", "bos_token_id",
                            "pad_token_id", "tie_word_embeddings"})
      if (outer.has(key)) inner[key] = outer.json().at(key);
    ModelConfig config = read(ConfigReader(inner, outer.file() + " (text_config)"));
    config.model_type = model_type;
    return config;
  };
  text.model_type = model_type;
  text.architecture = architecture;
  text.classifier.architecture = "";
  text.ignored.push_back("language_model.lm_head.weight");
  text.carried = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."};
  return text;
}

bool has_class_for_text(const Family& family) {
  return family.model_type == "qwen3_5" || family.model_type == "qwen3_5_moe" || family.model_type == "llama4";
}

}  // namespace fettle
