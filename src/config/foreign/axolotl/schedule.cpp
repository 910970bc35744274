#include "config/foreign/axolotl/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/keys.h"

namespace fettle {
namespace {

constexpr const char* kRatio = "cosine_min_lr_ratio";

bool other_sets_last_rate(const YAML::Node& all) {
  const auto sets = [](const std::string& name, const YAML::Node& value) {
    const Key* key = name == kRatio || value.IsNull() ? nullptr : find_key(name);
    return key != nullptr && (key->name == "min_lr" || key->name == "min_lr_rate");
  };
  constexpr const char* kInner = "lr_scheduler_kwargs";
  if (all[kInner].IsDefined() && all[kInner].IsMap())
    for (const auto& pair : all[kInner])
      if (sets(fmt::format("{}.{}", kInner, text_of(pair.first)), pair.second)) return true;
  return std::ranges::any_of(all, [&](const auto& pair) { return sets(text_of(pair.first), pair.second); });
}

// Reads cosine_min_lr_ratio: the last learning rate of `lr_scheduler: cosine`, divided by the highest one. Other
// schedules ignore this key, but Fettle reads it for cosine_with_min_lr if no other key sets the last rate.
void read_last_rate(ForeignRecipe& recipe) {
  const std::string schedule = text_of(recipe.current("lr_scheduler_type", "lr_scheduler"));
  if (!recipe.has(kRatio)) return;
  if (schedule == "cosine_with_min_lr" && !other_sets_last_rate(recipe.all())) return;
  const bool cosine = schedule.empty() || schedule == "cosine";
  const double least = number_of(recipe.given(kRatio), 0.5);
  if (cosine && least > 0) {
    recipe.handle_in_file("lr_scheduler");
    for (const char* key : {"lr_scheduler", "lr_scheduler_type"}) recipe.handle_word(key);
    recipe.mean("lr_scheduler_type", least == 1 ? "constant_with_warmup" : "cosine_with_min_lr");
    if (least != 1) return;
  }
  recipe.handle({kRatio});
  if (!cosine || least <= 0)
    warn("{}: {} has no effect here: {}", recipe.place(kRatio), kRatio,
         cosine ? "the cosine falls to 0" : "it belongs to lr_scheduler: cosine");
}

// Reads embedding_lr_scale: the learning rate of the embedding, divided by that of the other weights.
void read_scaled_rate(ForeignRecipe& recipe) {
  const double scale = number_of(recipe.given("embedding_lr_scale"), 0);
  const double rate = number_of(recipe.current("learning_rate", "learning_rate"), 0);
  if (scale <= 0 || rate <= 0) return;
  recipe.handle({"embedding_lr_scale"});
  recipe.mean("embedding_lr", fmt::format("{:.9g}", scale * rate));
}

}  // namespace

void read_axolotl_schedule(ForeignRecipe& recipe) {
  read_last_rate(recipe);
  read_scaled_rate(recipe);
}

}  // namespace fettle
