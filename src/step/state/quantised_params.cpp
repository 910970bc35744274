#include "step/state/quantised_params.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {
namespace {

std::optional<Quantisation> wanted_quantisation(const Recipe& recipe) {
  if (!recipe.quantization_bit) return std::nullopt;
  if (*recipe.quantization_bit == 8) return Quantisation{Quantisation::Type::kInt8, false};
  return Quantisation{recipe.quantization_type == "fp4" ? Quantisation::Type::kFp4 : Quantisation::Type::kNf4,
                      recipe.double_quantization};
}

void check(const Job& job, const Quantisation& format, const std::string& where) {
  if (!job.trained.empty() && !job.lora)
    throw UserError(
        "{}: weights held as {} cannot be trained themselves; set finetuning_type: lora, or take the original weights",
        where, format.name());
  if (job.recipe.train_from_scratch)
    throw UserError("{}: random weights are not quantised; remove train_from_scratch or quantization_bit", where);
  if (!job.merged.empty())
    throw UserError(
        "{}: adapters cannot be merged into weights held as {}; `fettle export` merges {} into the original weights, "
        "then name the result in model_name_or_path",
        where, format.name(), job.merged[0]);
  if (job.pissa)
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

void quantise_frozen(Job& job, const std::string& file) {
  const std::optional<Quantisation> found = quantisation_of(job.recipe, job.model.config, file);
  if (!found) return;
  const Quantisation format = *found;
  const bool stored = job.model.config.quantisation.has_value();
  check(job, format, stored ? file : job.recipe.where("quantization_bit"));

  std::vector<Param> kept;
  for (const Param& param : job.frozen) {
    if (param.role != Role::kLinear) {
      kept.push_back(param);
      continue;
    }
    job.quantised.push_back(quantised_weight(param, format, job.sharding));
    kept.insert(kept.end(), job.quantised.back().parts.begin(), job.quantised.back().parts.end());
  }
  job.frozen = std::move(kept);
  if (stored)
    for (const Param& param : job.trained)
      if (param.role == Role::kLinear)
        throw UserError("{}: additional_target would train {}, which the checkpoint holds as {}; leave it out", file,
                        param.hf_name, format.name());
}

}  // namespace fettle
