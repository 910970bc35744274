#include "run/resolve/lora_options.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/peft/adapter_options.h"
#include "config/recipe.h"
#include "models/layer_groups.h"

namespace fettle {
namespace {

std::vector<int64_t> layer_numbers(const Recipe& recipe, const Model& model) {
  std::set<int64_t> layers;
  for (const std::string& text : recipe.layers_to_transform) {
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
    if (error != std::errc() || end != text.data() + text.size() || layer < 0 ||
        layer >= model.config.num_hidden_layers)
      throw UserError("{}: layers_to_transform: '{}' is not a layer; the layers are 0 to {}",
                      recipe.where("layers_to_transform"), text, model.config.num_hidden_layers - 1);
    layers.insert(layer);
  }
  if (static_cast<int64_t>(layers.size()) == model.config.num_hidden_layers) layers.clear();
  if (!layers.empty() && !has_one_kind(model))
    throw UserError(
        "{}: layers_to_transform: the layers of {} differ in kind, so LoRA on some of them is not supported; remove "
        "the key",
        recipe.where("layers_to_transform"), model.family->model_type);
  return {layers.begin(), layers.end()};
}

// Throws UserError when a key asks for a variant of LoRA, because the LoRA weights of experts do not support variants.
// PEFT also refuses or ignores these keys for experts.
void check_expert_lora(const Recipe& recipe) {
  const std::pair<bool, const char*> others[] = {{recipe.lora_dropout != 0, "lora_dropout"},
                                                 {recipe.use_dora, "use_dora"},
                                                 {recipe.pissa_init, "pissa_init"},
                                                 {!recipe.layers_to_transform.empty(), "layers_to_transform"}};
  for (const auto& [asked, key] : others)
    if (asked)
      throw UserError(
          "{}: {} cannot be combined with target_parameters: adapters of experts are plain LoRA; remove one of the two",
          recipe.where(key), key);
}

}  // namespace

LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter,
                         const std::vector<std::string>& added_targets) {
  // A classifier's head is trained in full, and saved with the adapter.
  auto with_head = [&](LoraOptions options) {
    if (model.classifies())
      for (const std::string& module : model.family->classifier.saved)
        if (std::ranges::find(options.saved, module) == options.saved.end()) options.saved.push_back(module);
    return options;
  };
  if (!adapter.empty()) {
    LoraOptions options = adapter_options(open_adapter(adapter), model);
    options.dropout = recipe.lora_dropout;
    if (recipe.places.has("lora_rank") && recipe.lora_rank != options.rank)
      warn("{}: lora_rank has no effect: the adapter {} has rank {}", recipe.where("lora_rank"), adapter, options.rank);
    if (recipe.use_dora && !options.dora)
      warn("{}: use_dora has no effect: the adapter {} was trained without DoRA", recipe.where("use_dora"), adapter);
    if (!options.parameters.empty()) check_expert_lora(recipe);
    return with_head(options);
  }
  LoraOptions options{.rank = recipe.lora_rank,
                      .alpha = recipe.effective_lora_alpha(),
                      .dropout = recipe.lora_dropout,
                      .rslora = recipe.use_rslora};
  options.modules = lora_modules(model, recipe.lora_target);
  if (!recipe.target_parameters.empty()) {
    options.parameters = expert_parameters(model, recipe.target_parameters);
    check_expert_lora(recipe);
  }
  options.fan_in_fan_out = model.family->fan_in_fan_out;
  options.dora = recipe.use_dora;
  options.layers = layer_numbers(recipe, model);
  options.saved = recipe.additional_target;
  options.saved.insert(options.saved.end(), added_targets.begin(), added_targets.end());
  return with_head(options);
}

}  // namespace fettle
