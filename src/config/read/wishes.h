// Defines Wishes: what other tools' settings ask for, if the recipe does not set the key itself.
#pragma once

#include <map>
#include <string>

#include "config/recipe.h"

namespace fettle {

class KeyReader;

struct Wish {
  std::string value;
  std::string meant_by;  // the other tool's key
  std::string where;
  SetBy by;               // kRecipe or kOverride
  std::string word = {};  // the value in the other tool, if it differs
};
using Wishes = std::map<std::string, Wish>;  // keyed by the recipe's key

// Sets the keys that the wishes ask for. Keys that the recipe sets keep their values. `of_offload` chooses between the
// keys offload_* and all others. If something in the recipe excludes offload, such as a pipeline, a note says so.
void grant(Wishes wishes, bool of_offload, Recipe& recipe, KeyReader& reader);

// Returns whether the recipe can take this key from another tool's settings. bf16 and fp16 exclude each other.
// warmup_steps would overrule warmup_ratio. min_lr_rate belongs to one schedule, and min_lr excludes it. eval_strategy
// needs rows to evaluate on. offload_optimizer is only taken if offload_dir is not. offload_dir_weights needs
// offload_dir, and a run with both float32 and 16-bit weights.
bool suits(const std::string& key, const Recipe& recipe);

}  // namespace fettle
