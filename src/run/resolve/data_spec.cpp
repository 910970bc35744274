#include "run/resolve/data_spec.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/recipe.h"
#include "models/model.h"
#include "run/model_folders.h"

namespace fettle {
namespace {

Overlength overlength_named(const std::string& name) {
  if (name == "cut") return Overlength::kCut;
  if (name == "drop") return Overlength::kDrop;
  internal_check(name == "error", "overlength is '{}', wanted cut, drop or error", name);
  return Overlength::kError;
}

Mix mix_named(const std::string& name) {
  if (name == "concat") return Mix::kConcat;
  if (name == "interleave_under") return Mix::kInterleaveUnder;
  if (name == "interleave_over") return Mix::kInterleaveOver;
  internal_check(name == "interleave_once", "mix_strategy is '{}', wanted concat, interleave_under, _over or _once",
                 name);
  return Mix::kInterleaveOnce;
}

// As in LLaMA-Factory, earlier replies lose their thoughts if only the last reply is trained.
Thinking thinking(const Recipe& recipe, RowKind rows) {
  const bool only_last = recipe.mask_history || rows == RowKind::kPreferencePairs || rows == RowKind::kRatedReplies;
  Thinking thinking{.keep_old = recipe.preserve_thinking, .drop_old = only_last};
  if (recipe.enable_thinking != "auto") thinking.enabled = recipe.enable_thinking == "true";
  return thinking;
}

}  // namespace

DataSpec data_spec(const Recipe& recipe, const Stage& stage, const std::optional<LabelSet>& labels,
                   int64_t cutoff_len) {
  const Mix mix = mix_named(recipe.mix_strategy);
  return {.rows = stage.rows,
          .sets = recipe.dataset,
          .eval_sets = recipe.eval_dataset,
          .dataset_dir = recipe.dataset_dir,
          .hub = hub_settings(recipe),
          .max_samples = recipe.max_samples,
          .on_bad_row = recipe.on_bad_row == "skip" ? OnBadRow::kSkip : OnBadRow::kError,
          .sample_by = text_rows_named(recipe.sample_by).value_or(TextRows::kLine),
          .template_name = recipe.template_name,
          .eos_token = recipe.eos_token,
          .tool_format = recipe.tool_format,
          .thinking = thinking(recipe, stage.rows),
          .default_system = recipe.default_system,
          .cutoff_len = cutoff_len,
          .overlength = overlength_named(recipe.overlength),
          .self_name = recipe.self_name,
          .self_author = recipe.self_author,
          .plain_text_rows = recipe.plain_text_rows,
          .train_on_prompt = recipe.train_on_prompt,
          .mask_history = recipe.mask_history,
          .labels = labels,
          .remove_duplicates = recipe.remove_duplicates,
          .val_size = recipe.val_size,
          .mix = mix,
          .mix_weights = mix == Mix::kConcat ? std::vector<double>() : recipe.interleave_weights(),
          .seed = static_cast<uint64_t>(recipe.seed),
          .cache = recipe.data_cache};
}

int64_t cutoff_len_of(const Recipe& recipe, const Stage& stage, const nlohmann::json& config, const std::string& file) {
  if (stage.head != Head::kLabels || recipe.places.has("cutoff_len")) return recipe.cutoff_len;
  const Family* family = find_family(config);
  if (family == nullptr || !family->encoder) return recipe.cutoff_len;
  return std::min(recipe.cutoff_len, family->read(ConfigReader(config, file)).max_position_embeddings);
}

}  // namespace fettle
