#include "run/resolve/lora_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/peft/adapter_options.h"
#include "config/recipe.h"
#include "models/layer_groups.h"
#include "run/run.h"

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

// Returns whether the recipe's author set the key. Another tool's default does not count.
bool is_set(const Recipe& recipe, const char* key) {
  return recipe.places.has(key) && !recipe.places.of_tool(key);
}

// Returns a warning for each key that asks for another adapter than `adapter`, which has `options`.
std::vector<std::string> other_wishes(const Recipe& recipe, const Model& model, const std::string& adapter,
                                      const LoraOptions& options) {
  const auto differs = [&](const char* key, auto same) { return is_set(recipe, key) && !same(); };
  const auto has_targets = [&] {
    const std::set<std::string> there(options.modules.begin(), options.modules.end());
    try {
      const std::vector<std::string> wanted = lora_modules(model, recipe.lora_target);
      return std::set<std::string>(wanted.begin(), wanted.end()) == there;
    } catch (const UserError&) {  // the key names modules that the model does not have
      return false;
    }
  };
  const auto has_saved = [&] {
    return std::ranges::all_of(recipe.additional_target, [&](const std::string& wanted) {
      return std::ranges::any_of(
          options.saved, [&](const std::string& there) { return there.ends_with(wanted) || wanted.ends_with(there); });
    });
  };
  const std::pair<bool, std::string> ignored[] = {
      {differs("lora_rank", [&] { return recipe.lora_rank == options.rank; }),
       fmt::format("lora_rank has no effect: the adapter {} has rank {}", adapter, options.rank)},
      {differs("lora_alpha", [&] { return recipe.effective_lora_alpha() == options.alpha; }),
       fmt::format("lora_alpha has no effect: the adapter {} has alpha {:g}", adapter, options.alpha)},
      {differs("use_rslora", [&] { return recipe.use_rslora == options.rslora; }),
       fmt::format("use_rslora has no effect: the adapter {} was trained {} rsLoRA", adapter,
                   options.rslora ? "with" : "without")},
      {differs("use_dora", [&] { return recipe.use_dora == options.dora; }),
       fmt::format("use_dora has no effect: the adapter {} was trained {} DoRA", adapter,
                   options.dora ? "with" : "without")},
      {differs("lora_target", has_targets), fmt::format("lora_target has no effect: the adapter {} has LoRA on {}",
                                                        adapter, fmt::join(options.modules, ", "))},
      {differs("additional_target", has_saved),
       fmt::format("additional_target has no effect: the adapter {} has {} in full; in training, create_new_adapter: "
                   "true merges it and starts a new adapter with these keys",
                   adapter, options.saved.empty() ? "nothing" : fmt::format("{}", fmt::join(options.saved, ", ")))}};
  std::vector<std::string> out;
  for (const auto& [asked, text] : ignored)
    if (asked) out.push_back(fmt::format("{}: {}", recipe.where(text.substr(0, text.find(' '))), text));
  return out;
}

// For an adapter with LoRA weights of experts, which do not support variants of LoRA: throws UserError when a key asks
// for a variant, and sets the dropout to 0. PEFT also refuses or ignores these keys for experts.
void settle_expert_lora(const Recipe& recipe, LoraOptions& options) {
  if (options.parameters.empty()) return;
  const std::pair<bool, const char*> others[] = {{recipe.lora_dropout != 0 && !recipe.dropout_is_off, "lora_dropout"},
                                                 {recipe.use_dora, "use_dora"},
                                                 {recipe.pissa_init, "pissa_init"},
                                                 {!recipe.layers_to_transform.empty(), "layers_to_transform"}};
  for (const auto& [asked, key] : others)
    if (asked)
      throw UserError(
          "{}: {} cannot be combined with target_parameters: adapters of experts are plain LoRA; remove one of the two",
          recipe.where(key), key);
  options.dropout = 0;
}

}  // namespace

LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter,
                         const std::vector<std::string>& added_targets, Remarks& remarks) {
  // A classifier's head is trained in full, and saved with the adapter.
  auto with_head = [&](LoraOptions options) {
    if (model.classifies())
      for (const std::string& module : model.family->classifier.saved)
        if (std::ranges::find(options.saved, module) == options.saved.end()) options.saved.push_back(module);
    return options;
  };
  if (!adapter.empty()) {
    const AdapterFolder folder = open_adapter(adapter);
    LoraOptions options = with_head(adapter_options(folder, model));
    // As in PEFT, the adapter's own dropout counts unless the recipe sets another one.
    options.dropout = is_set(recipe, "lora_dropout") ? recipe.lora_dropout : folder.config.lora_dropout;
    options.dropout_is_off = recipe.dropout_is_off;
    const std::vector<std::string> others = other_wishes(recipe, model, adapter, options);
    remarks.warnings.insert(remarks.warnings.end(), others.begin(), others.end());
    settle_expert_lora(recipe, options);
    return options;
  }
  LoraOptions options{.rank = recipe.lora_rank,
                      .alpha = recipe.effective_lora_alpha(),
                      .dropout = recipe.lora_dropout,
                      .dropout_is_off = recipe.dropout_is_off,
                      .rslora = recipe.use_rslora};
  options.modules = lora_modules(model, recipe.lora_target, &remarks.warnings);
  if (!recipe.target_parameters.empty()) options.parameters = expert_parameters(model, recipe.target_parameters);
  settle_expert_lora(recipe, options);
  options.fan_in_fan_out = model.family->fan_in_fan_out;
  options.dora = recipe.use_dora;
  options.layers = layer_numbers(recipe, model);
  options.saved = recipe.additional_target;
  options.saved.insert(options.saved.end(), added_targets.begin(), added_targets.end());
  return with_head(options);
}

}  // namespace fettle
