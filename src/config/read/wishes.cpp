#include "config/read/wishes.h"

#include <fmt/format.h>

#include "base/log.h"
#include "config/read/key_reader.h"

namespace fettle {

namespace {

// Returns what in the recipe excludes this key of offload; "" if nothing does.
std::string excludes(const std::string& key, const Recipe& recipe) {
  if (const auto stages = recipe.mesh.find("pp"); stages != recipe.mesh.end() && stages->second > 1)
    return "pp in mesh";
  if (key != "offload_dir") return "";
  if (recipe.finetuning_type == "lora") return "finetuning_type: lora";
  return recipe.optim == "sgd" && !recipe.optim_args.contains("momentum") ? "optim: sgd without momentum" : "";
}

}  // namespace

bool suits(const std::string& key, const Recipe& recipe) {
  if (key == "bf16") return !recipe.fp16;
  if (key == "fp16") return !recipe.bf16 && !recipe.pure_bf16;
  if (key == "warmup_steps") return recipe.warmup_ratio == 0;
  if (key == "min_lr_rate") return recipe.lr_scheduler_type == "cosine_with_min_lr" && !recipe.min_lr;
  if (key == "eval_strategy") return recipe.val_size > 0 || !recipe.eval_dataset.empty();
  if (key == "offload_optimizer") return recipe.offload_dir.empty();
  return key != "offload_dir_weights" ||
         (!recipe.offload_dir.empty() && (recipe.bf16 || recipe.fp16) && !recipe.pure_bf16);
}

void grant(Wishes wishes, bool of_offload, Recipe& recipe, KeyReader& reader) {
  const KeyPlaces own = recipe.places;  // several wishes may be entries of one key, such as mesh.tp and mesh.sp
  for (const auto& [key, wish] : wishes) {
    if (key.starts_with("offload_") != of_offload) continue;
    if (key == "lr_scheduler_type" && recipe.places.has(key) && recipe.lr_scheduler_type != wish.value)
      warn("{}: {} has a scheduler ({}), which DeepSpeed would use; Fettle uses lr_scheduler_type: {}", wish.where,
           wish.meant_by, wish.word == wish.value ? wish.word : fmt::format("{}, here {}", wish.word, wish.value),
           recipe.lr_scheduler_type);
    if (own.has(key.substr(0, key.find('.')))) continue;
    if (const std::string reason = of_offload ? excludes(key, recipe) : ""; !reason.empty()) {
      info("{}: {} asks for {}, which does not work with {}", wish.where, wish.meant_by, key, reason);
      continue;
    }
    if (!suits(key, recipe)) continue;
    reader.take(key, {YAML::Node(wish.value), wish.where, wish.by});
    info("{}: {} sets {} to {}", wish.where, wish.meant_by, key, wish.value == "true" ? "on" : wish.value);
  }
}

}  // namespace fettle
