#include "run/labels.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "run/data_spec.h"

namespace fettle {
namespace {

using nlohmann::json;

void check_keys(const Recipe& r, const json& config, const std::string& config_file) {
  if (r.stage != "cls") {
    for (const char* key : {"problem_type", "num_labels", "id2label"})
      if (r.set_at.contains(key))
        throw UserError("{}: {} is for stage cls, not {}; leave it out", r.where(key), key, r.stage);
    return;
  }
  const std::pair<const char*, bool> refused[] = {
      {"packing", r.packing}, {"train_on_prompt", r.train_on_prompt}, {"mask_history", r.mask_history}};
  for (const auto& [key, on] : refused)
    if (on)
      throw UserError("{}: {} is for stages that train tokens, but stage cls trains one label a row; leave it out",
                      r.where(key), key);
  if (encoder_positions(config) > 0 && !r.template_name.empty())
    throw UserError(
        "{}: template is for models that read conversations, but {} is of an encoder, which reads plain texts; leave "
        "it "
        "out",
        r.where("template"), config_file);
}

}  // namespace

LabelRequest label_request(const Recipe& recipe) {
  return {.problem = problem_named(recipe.problem_type),
          .count = recipe.num_labels,
          .id2label = recipe.id2label,
          .count_at = recipe.where("num_labels"),
          .names_at = recipe.where("id2label")};
}

std::optional<LabelSet> settled_labels(const Recipe& recipe, const json& config, const std::string& config_file,
                                       ReadLabels read) {
  check_keys(recipe, config, config_file);
  if (recipe.stage != "cls") return std::nullopt;
  const LabelRequest asked = label_request(recipe);
  const TaughtLabels taught = taught_labels(recipe.adapter_name_or_path, config, config_file);
  if (!recipe.train_from_scratch) check_taught(asked, taught);
  DataSpec rows{.sets = recipe.dataset,
                .eval_sets = recipe.eval_dataset,
                .dataset_dir = recipe.dataset_dir,
                .on_bad_row = recipe.on_bad_row == "skip" ? OnBadRow::kSkip : OnBadRow::kError};
  if (read == ReadLabels::kIfUnnamed && (asked.count || !asked.id2label.empty())) rows.sets.clear();
  return settle_labels(asked, taught, rows);
}

Recipe settled_recipe(Recipe recipe, const std::optional<LabelSet>& labels, const json& config) {
  recipe.cutoff_len = cutoff_len_of(recipe, config);
  if (!labels) return recipe;
  recipe.problem_type = name_of(labels->problem);
  recipe.num_labels = labels->size();
  recipe.id2label = labels->id2label;
  return recipe;
}

}  // namespace fettle
