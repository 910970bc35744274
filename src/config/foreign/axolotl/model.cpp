#include "config/foreign/axolotl/model.h"

#include <string>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/value.h"

namespace fettle {
namespace {

bool is_a_map(const YAML::Node& node) {
  return node.IsDefined() && node.IsMap();
}

void read_bits(ForeignRecipe& recipe) {
  const YAML::Node map = recipe.in_file("bnb_config_kwargs");
  if (!is_a_map(map)) return;
  recipe.handle_in_file("bnb_config_kwargs");
  for (const auto& pair : map) {
    const std::string key = pair.first.Scalar();
    if (key == "bnb_4bit_compute_dtype") continue;  // Fettle uses the dtype of the run
    if ((key != "bnb_4bit_use_double_quant" && key != "bnb_4bit_quant_type") || !pair.second.IsScalar())
      throw UserError("{}: bnb_config_kwargs.{} is not available; remove the key", place_of(recipe.file(), pair.first),
                      key);
    recipe.mean(key == "bnb_4bit_quant_type" ? "quantization_type" : "double_quantization", pair.second.Scalar());
  }
}

void read_config(ForeignRecipe& recipe) {
  const YAML::Node map = recipe.in_file("model_config");
  if (!is_a_map(map)) return;
  recipe.handle_in_file("model_config");
  for (const auto& pair : map) {
    const std::string key = pair.first.Scalar(), at = place_of(recipe.file(), pair.first);
    if ((key != "output_router_logits" && key != "router_aux_loss_coef") || !pair.second.IsScalar())
      throw UserError("{}: model_config.{} is not available; set the field in the model folder's config.json", at, key);
    if (key == "router_aux_loss_coef" && has_own_balance(recipe))
      warn(
          "{}: model_config.{} has no effect here: with rl: {}, TRL uses its own weight, 0.001. Set "
          "moe_aux_loss_coef to use another",
          at, key, recipe.text("rl"));
    else
      recipe.mean(key == "router_aux_loss_coef" ? "moe_aux_loss_coef" : "output_router_logits", pair.second.Scalar());
  }
}

// Accepts `dequantize: true` for MXFP4: Fettle decodes MXFP4 weights when it trains them or computes with them.
void read_mxfp4(ForeignRecipe& recipe) {
  const YAML::Node kwargs = recipe.in_file("model_quantization_config_kwargs");
  if (text_of(recipe.in_file("model_quantization_config")) != "Mxfp4Config" || !is_a_map(kwargs) ||
      !is_on(kwargs["dequantize"]))
    return;
  recipe.handle_in_file("model_quantization_config");
  recipe.handle_in_file("model_quantization_config_kwargs");
}

// Accepts `unfrozen_parameters` if it covers the whole text model. Such a value freezes only the vision part of an
// image model. Throws for other values.
void read_unfrozen(ForeignRecipe& recipe) {
  const YAML::Node list = recipe.in_file("unfrozen_parameters");
  if (!list.IsDefined()) return;
  bool whole = false;
  if (list.IsSequence())
    for (const auto& item : list) {
      std::string name = item.IsScalar() ? item.Scalar() : "";
      if (name.starts_with('^')) name.erase(0, 1);
      while (name.ends_with('*') || name.ends_with('.')) name.pop_back();
      whole = whole || name == "model.language_model" || name == "language_model" || name == "model";
    }
  if (!whole)
    throw UserError(
        "{}: unfrozen_parameters is not available, because Fettle does not choose parameters by name; set "
        "finetuning_type: freeze to train whole layers",
        place_of(recipe.file(), list));
  recipe.handle_in_file("unfrozen_parameters");
}

}  // namespace

void read_axolotl_model(ForeignRecipe& recipe) {
  const std::string model = text_of(recipe.current("model_name_or_path", "base_model"));
  for (const char* key : {"base_model_config", "tokenizer_config"})  // without effect if they name the same model
    if (recipe.text(key) == model) recipe.handle({key});
  read_bits(recipe);
  read_config(recipe);
  read_mxfp4(recipe);
  read_unfrozen(recipe);
}

bool has_own_balance(const ForeignRecipe& recipe) {
  const std::string rl = recipe.text("rl");
  return rl == "dpo" || rl == "ipo" || rl == "kto";
}

}  // namespace fettle
