#include "run/labels.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "config/recipe.h"
#include "models/model.h"
#include "run/resolve/data_spec.h"

namespace fettle {
namespace {

using nlohmann::json;

void check_template(const Recipe& r, const json& config, const std::string& config_file) {
  const Family* family = find_family(config);
  if (family != nullptr && family->encoder && !r.template_name.empty())
    throw UserError(
        "{}: template is for models that read conversations, but {} describes an encoder, which reads plain texts; "
        "remove template",
        r.where("template"), config_file);
}

}  // namespace

LabelRequest label_request(const Recipe& recipe) {
  return {.problem = problem_named(recipe.problem_type),
          .count = recipe.num_labels,
          .id2label = recipe.id2label,
          .places = recipe.places};
}

std::optional<LabelSet> settled_labels(const Recipe& recipe, const Stage& stage,
                                       const std::vector<std::string>& adapters, const json& config,
                                       const std::string& config_file, ReadLabels read) {
  if (stage.head != Head::kLabels) return std::nullopt;
  check_template(recipe, config, config_file);
  const LabelRequest asked = label_request(recipe);
  const TaughtLabels taught = taught_labels(adapters, config, config_file);
  if (!recipe.train_from_scratch) check_taught(asked, taught);
  // settle_labels uses this DataSpec only to find the rows. So it needs no labels, and its cutoff_len has no effect.
  DataSpec rows = data_spec(recipe, stage, std::nullopt, recipe.cutoff_len);
  if (read == ReadLabels::kIfUnnamed && (asked.count || !asked.id2label.empty())) rows.sets.clear();
  return settle_labels(asked, taught, rows);
}

}  // namespace fettle
