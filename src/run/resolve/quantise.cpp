#include "run/resolve/quantise.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/recipe.h"

namespace fettle {
namespace {

std::optional<Quantisation> wanted_quantisation(const Recipe& recipe) {
  if (!recipe.quantization_bit) return std::nullopt;
  if (*recipe.quantization_bit == 8) return Quantisation{Quantisation::Type::kInt8, false};
  return Quantisation{recipe.quantization_type == "fp4" ? Quantisation::Type::kFp4 : Quantisation::Type::kNf4,
                      recipe.double_quantization};
}

void check(const Run& run, const Quantisation& format, const std::string& where) {
  if (!run.trained.empty() && !run.adapter.lora)
    throw UserError(
        "{}: weights stored as {} cannot be trained directly; set finetuning_type: lora, or use the original weights",
        where, format.name());
  if (run.from_scratch)
    throw UserError("{}: random weights are not quantised; remove train_from_scratch or quantization_bit", where);
  if (!run.adapter.merged.empty())
    throw UserError(
        "{}: adapters cannot be merged into weights stored as {}; merge {} into the original weights with `fettle "
        "export`, and set model_name_or_path to the result",
        where, format.name(), run.adapter.merged[0]);
  if (run.adapter.pissa)
    throw UserError(
        "{}: pissa_init subtracts singular vectors from the weights, but {} codes cannot store the remaining weights "
        "exactly; remove pissa_init or quantization_bit",
        where, format.name());
}

// Returns the format in which the checkpoint stores linear layers, if the device can keep this format. The device can
// keep integers in groups, and 8-bit floats that all have one format. Otherwise returns nullopt.
std::optional<Quantisation> stored_format(const ModelConfig& config) {
  if (config.groups) return config.groups->format();
  return config.float8 && config.float8->uniform ? std::optional(config.float8->format()) : std::nullopt;
}

// Returns the layers in which the checkpoint stores this weight in bitsandbytes' format, or else in the format that
// stored_format() returns.
std::vector<int64_t> covered_layers(const ModelConfig& config, const Param& param) {
  if (config.quantisation)
    return layers_of_modules(param, [&](const std::string& module) { return !any_names(config.in_floats, module); });
  return config.groups ? config.groups->covered_layers(param) : config.float8->covered_layers(param);
}

// Returns stored_format(), or nullopt if the weights have another format on the device. They have another format if
// they are random, if adapters are merged into them during loading, or if training or PiSSA changes base weights.
// Weights of a checkpoint in 8-bit floats also have another format in three cases: quantization_bit is set; training
// uses fp8, which rounds 16-bit weights to 8 bits itself; or the run compares with a ref_model, whose weights are
// 16-bit floats.
std::optional<Quantisation> kept_on_device(const Run& run, const Recipe& recipe, Purpose purpose) {
  const bool stays = run.adapter.merged.empty() && !run.from_scratch && !run.adapter.pissa &&
                     (run.adapter.lora || run.trained.empty());
  const bool multiplies_in_8_bits = recipe.fp8 && purpose == Purpose::kTraining;
  const bool compares = !recipe.ref_model.empty() && purpose != Purpose::kInference && run.has_reference();
  const bool replaced = run.model.config.float8 && (recipe.quantization_bit || multiplies_in_8_bits || compares);
  return stays && !replaced ? stored_format(run.model.config) : std::nullopt;
}

}  // namespace

std::optional<Quantisation> quantisation_of(const Recipe& recipe, const ModelConfig& config, const std::string& file) {
  if (config.groups) return std::nullopt;
  const std::optional<Quantisation>& stored = config.quantisation;
  const std::optional<Quantisation> wanted = wanted_quantisation(recipe);
  if (stored && wanted && stored->four_bits() != wanted->four_bits())
    throw UserError("{}: quantization_bit is {}, but the checkpoint ({}) is already stored as {}; remove the key",
                    recipe.where("quantization_bit"), *recipe.quantization_bit, file, stored->name());
  return stored ? stored : wanted;
}

void split_stored_stacks(Run& run, const Recipe& recipe, Purpose purpose, const std::string& file) {
  // A checkpoint of bitsandbytes keeps its format in every run. Other formats may be replaced during loading.
  const bool fixed = run.model.config.quantisation && !run.model.config.in_floats.empty();
  const std::optional<Quantisation> format =
      fixed ? run.model.config.quantisation : kept_on_device(run, recipe, purpose);
  if (!format) return;
  std::vector<Param> params;
  std::vector<std::string> divided, whole;
  for (const Param& param : run.model.params) {
    params.push_back(param);
    if (fixed ? !is_quantised(param, *format, true) : !kept_format(run.model, param, *format)) continue;
    const std::vector<int64_t> covered = covered_layers(run.model.config, param);
    if (covered.empty() || covered == param.layers.numbers) continue;
    const bool stays = recipe.offload_param || (run.adapter.lora && !run.adapter.lora->layers.empty()) ||
                       (run.adapter.lora && !run.adapter.lora->parameters.empty() && param.has_experts());
    (stays ? whole : divided)
        .push_back(fmt::format("{} ({} of {} layers)", param.hf_name.substr(run.model.family->layer_prefix.size()),
                               param.layers.count() - static_cast<int64_t>(covered.size()), param.layers.count()));
    if (stays) continue;
    auto is_covered = [&](int64_t layer) { return std::ranges::find(covered, layer) != covered.end(); };
    Param rest = param;
    std::erase_if(params.back().layers.numbers, [&](int64_t layer) { return !is_covered(layer); });
    std::erase_if(rest.layers.numbers, is_covered);
    params.push_back(std::move(rest));
  }
  if (!whole.empty() && fixed)
    throw UserError(
        "{}: quantization_config leaves out {}, so these layers differ in kind from the others. Fettle does not "
        "support this together with offload_param, or with an adapter on some layers only (layers_to_transform); "
        "remove these, "
        "or use the original weights with quantization_bit",
        file, fmt::join(whole, ", "));
  if (!whole.empty())
    run.remarks.warnings.push_back(fmt::format(
        "{}: the checkpoint has {} in floats. Because of layers_to_transform, offload_param or target_parameters, "
        "these weights take 16 bits on the device in all layers, although the checkpoint stores the other layers as "
        "{}; if memory is short, remove whichever of these keys is set",
        file, fmt::join(whole, ", "), format->name()));
  if (!divided.empty())
    run.remarks.notes.push_back(fmt::format(
        "{}: the checkpoint has {} in floats; these layers take 16 bits on the device, the other layers stay {}", file,
        fmt::join(divided, ", "), format->name()));
  run.model.params = std::move(params);
}

void quantise_frozen(Run& run, const Recipe& recipe, Purpose purpose, const std::string& file) {
  const std::optional<Quantisation> found = quantisation_of(recipe, run.model.config, file);
  const bool stored = run.model.config.quantisation.has_value();
  // Experts in MXFP4 become floats if adapters are merged into them during loading, if training starts from random
  // weights, or if training changes base weights without LoRA.
  const bool keeps_mxfp4 = run.model.config.mxfp4 && run.adapter.merged.empty() && !run.from_scratch &&
                           (run.adapter.lora || run.trained.empty());
  const std::optional<GroupStorage>& groups = run.model.config.groups;
  const std::optional<Float8Storage>& float8 = run.model.config.float8;
  const std::optional<Quantisation> kept_as = kept_on_device(run, recipe, purpose);
  if (groups && recipe.quantization_bit)
    run.remarks.notes.push_back(
        fmt::format("{}: quantization_bit has no effect, because the checkpoint ({}) is already stored as {}",
                    recipe.where("quantization_bit"), file, groups->format().name()));
  if (float8 && !float8->uniform && !recipe.quantization_bit && (run.adapter.lora || run.trained.empty()))
    run.remarks.notes.push_back(fmt::format(
        "{}: config_groups names single modules or several formats, so every weight that is stored in 8-bit floats "
        "takes 16 bits on the device",
        file));
  if (!found && !keeps_mxfp4 && !kept_as) return;
  if (found) check(run, *found, stored ? file : recipe.where("quantization_bit"));

  std::vector<Param> kept;
  for (const Param& param : run.frozen) {
    const bool experts = param.role == Role::kExpertsFused && keeps_mxfp4;
    const std::optional<Quantisation> stays = kept_as ? kept_format(run.model, param, *kept_as) : std::nullopt;
    if (stays && covered_layers(run.model.config, param) == param.layers.numbers) {
      run.quantised.push_back(quantised_weight(param, *stays, run.sharding));
      kept.insert(kept.end(), run.quantised.back().parts.begin(), run.quantised.back().parts.end());
      continue;
    }
    const bool in_floats =
        stored && is_quantised(param, *found, true) && covered_layers(run.model.config, param).empty();
    if (!experts && (in_floats || !found || !is_quantised(param, *found, stored || run.model.config.mxfp4))) {
      kept.push_back(param);
      continue;
    }
    const Quantisation format = experts ? Quantisation{Quantisation::Type::kMxfp4, false} : *found;
    run.quantised.push_back(quantised_weight(param, format, run.sharding));
    kept.insert(kept.end(), run.quantised.back().parts.begin(), run.quantised.back().parts.end());
  }
  run.frozen = std::move(kept);
  if (stored)
    for (const Param& param : run.trained)
      if (is_quantised(param, *found, true) && !covered_layers(run.model.config, param).empty())
        throw UserError(
            "{}: additional_target names {}, but the checkpoint stores this weight as {}, so it cannot be trained; "
            "remove the name from additional_target",
            file, param.hf_name, found->name());
}

}  // namespace fettle
