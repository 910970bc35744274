#include "run/quantise.h"

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
  if (!run.trained.empty() && !run.lora)
    throw UserError(
        "{}: weights held as {} cannot be trained themselves; set finetuning_type: lora, or take the original weights",
        where, format.name());
  if (run.from_scratch)
    throw UserError("{}: random weights are not quantised; remove train_from_scratch or quantization_bit", where);
  if (!run.merged.empty())
    throw UserError(
        "{}: adapters cannot be merged into weights held as {}; `fettle export` merges {} into the original weights, "
        "then name the result in model_name_or_path",
        where, format.name(), run.merged[0]);
  if (run.pissa)
    throw UserError(
        "{}: pissa_init takes the singular vectors off weights, which codes of {} cannot hold; remove it or "
        "quantization_bit",
        where, format.name());
}

}  // namespace

std::optional<Quantisation> quantisation_of(const Recipe& recipe, const ModelConfig& config, const std::string& file) {
  const std::optional<Quantisation>& stored = config.quantisation;
  const std::optional<Quantisation> wanted = wanted_quantisation(recipe);
  if (stored && wanted && stored->four_bits() != wanted->four_bits())
    throw UserError("{}: quantization_bit: {}, but the checkpoint ({}) holds {} already; remove the key",
                    recipe.where("quantization_bit"), *recipe.quantization_bit, file, stored->name());
  return stored ? stored : wanted;
}

void quantise_frozen(Run& run, const Recipe& recipe, const std::string& file) {
  const std::optional<Quantisation> found = quantisation_of(recipe, run.model.config, file);
  if (!found) return;
  const Quantisation format = *found;
  const bool stored = run.model.config.quantisation.has_value();
  check(run, format, stored ? file : recipe.where("quantization_bit"));

  std::vector<Param> kept;
  for (const Param& param : run.frozen) {
    if (param.role != Role::kLinear) {
      kept.push_back(param);
      continue;
    }
    run.quantised.push_back(quantised_weight(param, format, run.sharding));
    kept.insert(kept.end(), run.quantised.back().parts.begin(), run.quantised.back().parts.end());
  }
  run.frozen = std::move(kept);
  if (stored)
    for (const Param& param : run.trained)
      if (param.role == Role::kLinear)
        throw UserError("{}: additional_target would train {}, which the checkpoint holds as {}; leave it out", file,
                        param.hf_name, format.name());
}

}  // namespace fettle
