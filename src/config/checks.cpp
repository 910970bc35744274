#include "config/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "config/keys.h"
#include "config/nearest.h"

namespace fettle {

namespace {

// In Transformers, num_cycles of these schedules is 0.5 by default: the rate falls over half a cycle. Throws for other
// numbers that the recipe gives. A schedule without cycles refuses any number but the default.
void check_cycles(const Recipe& recipe) {
  const std::string& type = recipe.lr_scheduler_type;
  if (type == "cosine_with_restarts") return;
  const bool half = type == "cosine" || type == "cosine_with_min_lr" || type == "warmup_stable_decay";
  if (half && recipe.places.has("lr_num_cycles") && recipe.lr_num_cycles != 0.5)
    throw UserError(
        "{}: lr_num_cycles is {}, but lr_scheduler_type: {} always has half a cycle; remove the key or set it to 0.5, "
        "or set lr_scheduler_type: cosine_with_restarts",
        recipe.where("lr_num_cycles"), recipe.lr_num_cycles, type);
  if (!half && recipe.lr_num_cycles != Recipe{}.lr_num_cycles)
    throw UserError(
        "{}: lr_num_cycles belongs to lr_scheduler_type: cosine_with_restarts, found {}; remove the key, or change "
        "lr_scheduler_type",
        recipe.where("lr_num_cycles"), type);
}

// Throws when the schedule (lr_scheduler_type) needs a key that is not set. Also throws when the recipe changes a key
// that this schedule does not read.
void check_schedule(const Recipe& recipe) {
  const std::string& type = recipe.lr_scheduler_type;
  struct Argument {
    const char* key;
    std::vector<std::string_view> read_by;
    std::string_view needed_by;
  };
  const std::vector<Argument> arguments = {{"min_lr", {"cosine_with_min_lr", "polynomial", "warmup_stable_decay"}, ""},
                                           {"min_lr_rate",
                                            {"cosine_with_min_lr", "polynomial", "warmup_stable_decay"},
                                            recipe.min_lr ? "" : "cosine_with_min_lr"},
                                           {"lr_power", {"polynomial"}, ""},
                                           {"lr_num_stable_steps", {"warmup_stable_decay"}, ""},
                                           {"lr_num_decay_steps", {"warmup_stable_decay"}, ""}};
  const Recipe defaults;
  for (const Argument& argument : arguments) {
    const Key& key = *find_key(argument.key);
    const std::string value = value_text(recipe, key);
    const bool read = std::ranges::find(argument.read_by, type) != argument.read_by.end();
    if (!read && value != value_text(defaults, key)) {
      throw UserError("{}: {} belongs to lr_scheduler_type: {}, found {}; remove the key, or change lr_scheduler_type",
                      recipe.where(argument.key), argument.key, fmt::join(argument.read_by, " or "), type);
    }
    if (argument.needed_by == type && value.empty()) {
      throw UserError("{}: lr_scheduler_type: {} needs {}", recipe.where("lr_scheduler_type"), type, argument.key);
    }
  }
  check_cycles(recipe);
  if (recipe.min_lr && recipe.min_lr_rate)
    throw UserError("{}: min_lr and min_lr_rate both set the last learning rate; remove one of them",
                    recipe.where("min_lr"));
  if (recipe.min_lr && *recipe.min_lr >= recipe.learning_rate)
    throw UserError("{}: min_lr {} must be less than learning_rate {}", recipe.where("min_lr"), *recipe.min_lr,
                    recipe.learning_rate);
  if (type == "polynomial" && !recipe.min_lr && !recipe.min_lr_rate && recipe.learning_rate <= kPolynomialEnd)
    throw UserError(
        "{}: learning_rate is {}, but lr_scheduler_type: polynomial ends at {} without min_lr; set a larger "
        "learning_rate, or min_lr",
        recipe.where("learning_rate"), recipe.learning_rate, kPolynomialEnd);
}

// Throws for keys that need another finetuning_type, and for keys of the method that contradict each other.
void check_method(const Recipe& recipe) {
  struct Needs {
    const char* key;
    bool used;
    const char* type;
  };
  const Recipe defaults;
  const Needs needs[] = {
      {"use_dora", recipe.use_dora, "lora"},
      {"use_rslora", recipe.use_rslora, "lora"},
      {"loraplus_lr_ratio", recipe.loraplus_lr_ratio.has_value(), "lora"},
      {"additional_target", !recipe.additional_target.empty(), "lora"},
      {"layers_to_transform", !recipe.layers_to_transform.empty(), "lora"},
      {"create_new_adapter", recipe.create_new_adapter, "lora"},
      {"target_parameters", !recipe.target_parameters.empty(), "lora"},
      {"pissa_init", recipe.pissa_init, "lora"},
      {"use_llama_pro", recipe.use_llama_pro, "freeze"},
      {"freeze_trainable_layers", recipe.freeze_trainable_layers != defaults.freeze_trainable_layers, "freeze"},
      {"freeze_trainable_modules", recipe.freeze_trainable_modules != defaults.freeze_trainable_modules, "freeze"},
      {"freeze_extra_modules", !recipe.freeze_extra_modules.empty(), "freeze"},
  };
  for (const Needs& row : needs)
    if (row.used && recipe.finetuning_type != row.type)
      throw UserError("{}: {} needs finetuning_type: {}, found {}; remove the key, or change finetuning_type",
                      recipe.where(row.key), row.key, row.type, recipe.finetuning_type);
  if (recipe.pissa_init && !recipe.adapter_name_or_path.empty() && !recipe.create_new_adapter)
    throw UserError(
        "{}: pissa_init starts a new adapter, but adapter_name_or_path continues an existing adapter; remove one of "
        "the keys, or set create_new_adapter: true to merge the existing adapter first",
        recipe.where("pissa_init"));
  if (recipe.pissa_init && recipe.use_dora)
    throw UserError("{}: pissa_init and use_dora both set how an adapter starts; remove one of them",
                    recipe.where("pissa_init"));
  if (recipe.pissa_init && recipe.pissa_iter == 0)
    throw UserError("{}: pissa_iter is 0; set 1 or more iterations, or -1 for an exact decomposition",
                    recipe.where("pissa_iter"));
  if (recipe.create_new_adapter && recipe.adapter_name_or_path.empty())
    throw UserError(
        "{}: create_new_adapter merges the adapters of adapter_name_or_path, but that key is empty; remove "
        "create_new_adapter",
        recipe.where("create_new_adapter"));
}

// use_muon, use_adam_mini and use_apollo choose an optimizer in place of `optim`. Throws when they contradict each
// other or another key. Also throws for Muon and APOLLO with LoRA.
void check_own_rules(const Recipe& recipe) {
  const char* chosen = nullptr;
  for (const auto& [key, used, rule] : {std::tuple{"use_muon", recipe.use_muon, "muon"},
                                        {"use_adam_mini", recipe.use_adam_mini, "adam_mini"},
                                        {"use_apollo", recipe.use_apollo, "apollo_adamw"}}) {
    if (!used) continue;
    if (chosen) throw UserError("{}: {} and {} are two optimizers; keep one of them", recipe.where(key), key, chosen);
    chosen = key;
    if (recipe.optim != "adamw_torch" && recipe.optim != rule)
      throw UserError("{}: {} and optim: {} choose different optimizers; remove one of the two keys", recipe.where(key),
                      key, recipe.optim);
  }
  if (recipe.use_apollo && !recipe.optim_args.empty())
    throw UserError("{}: with use_apollo, the keys apollo_* are the optimizer's arguments; remove optim_args",
                    recipe.where("optim_args"));
  if ((recipe.use_apollo || recipe.optim == "apollo_adamw") && recipe.finetuning_type == "lora")
    throw UserError(
        "{}: APOLLO projects the gradients of the model's own weight matrices, which LoRA does not train; set "
        "finetuning_type: full or freeze, or train with optim: adamw_torch instead of APOLLO",
        recipe.where(recipe.use_apollo ? "use_apollo" : "optim"));
  if ((recipe.use_muon || recipe.optim == "muon") && recipe.finetuning_type == "lora")
    throw UserError(
        "{}: muon updates the layers' own matrices, which LoRA does not train; set finetuning_type: full or freeze, or "
        "train with optim: adamw_torch instead of muon",
        recipe.where(recipe.use_muon ? "use_muon" : "optim"));
}

// Warns about keys that have no effect because of other keys. Such keys do no harm, but the user may think that they
// have an effect.
void name_idle_keys(const Recipe& r) {
  const bool lora = r.finetuning_type == "lora", few_bits = r.quantization_bit.has_value();
  const std::string no_lora = "finetuning_type: " + r.finetuning_type + " trains no LoRA matrices";
  const std::string unquantised = "quantization_bit is not set";
  struct Idle {
    std::vector<const char*> keys;
    bool idle;
    std::string why;
  };
  for (const Idle& row :
       {Idle{{"lora_rank", "lora_alpha", "lora_dropout", "lora_target", "lora_dtype"}, !lora, no_lora},
        {{"pissa_iter"}, !r.pissa_init, "pissa_init is not set"},
        {{"quantization_type", "double_quantization"}, !few_bits, unquantised},
        {{"quantization_type", "double_quantization"},
         few_bits && *r.quantization_bit == 8,
         "quantization_bit: 8 is always int8"},
        {{"apollo_rank", "apollo_update_interval", "apollo_scale", "apollo_proj", "apollo_proj_type",
          "apollo_scale_type", "apollo_scale_front"},
         !r.use_apollo,
         "use_apollo is not set"},
        {{"apollo_target"}, !r.use_apollo && r.optim != "apollo_adamw", "use_apollo is not set"}})
    for (const char* key : row.keys)
      if (row.idle && r.places.has(key)) warn("{}: {} has no effect: {}", r.where(key), key, row.why);
}

// val_size and eval_dataset both set the rows to evaluate on. If the command gives one and the file the other, keeps
// the command's and prints a line. Otherwise throws UserError.
void settle_eval_rows(Recipe& recipe) {
  if (recipe.val_size == 0 || recipe.eval_dataset.empty()) return;
  const bool rows = recipe.places.overridden("eval_dataset");
  if (rows == recipe.places.overridden("val_size"))
    throw UserError("{}: val_size and eval_dataset both set the rows to evaluate on; remove one of them",
                    recipe.where("val_size"));
  const char *kept = rows ? "eval_dataset" : "val_size", *other = rows ? "val_size" : "eval_dataset";
  info("{}: the command gives {}, so {} does not count", recipe.where(other), kept, other);
  if (rows)
    recipe.val_size = 0;
  else
    recipe.eval_dataset.clear();
  recipe.places.erase(other);
}

}  // namespace

void check_combinations(Recipe& recipe) {
  settle_eval_rows(recipe);
  if (recipe.bf16 && recipe.fp16) {
    throw UserError("{} and {}: only one of bf16 and fp16 can be true", recipe.where("bf16"), recipe.where("fp16"));
  }
  if (recipe.fp16 && recipe.pure_bf16) {
    throw UserError("{} and {}: only one of fp16 and pure_bf16 can be true", recipe.where("fp16"),
                    recipe.where("pure_bf16"));
  }
  if (recipe.fp16 && recipe.lora_dtype == "bfloat16") {
    throw UserError("{}: with fp16, the updates of bfloat16 adapters would be rounded away; set lora_dtype: float32",
                    recipe.where("lora_dtype"));
  }
  if (recipe.finetuning_type != "lora" && !recipe.adapter_name_or_path.empty()) {
    throw UserError(
        "{}: adapter_name_or_path needs finetuning_type: lora, found {}; to train the weights, first merge the adapter "
        "with `fettle export`",
        recipe.where("adapter_name_or_path"), recipe.finetuning_type);
  }
  if (recipe.finetuning_type != "lora" && recipe.quantization_bit) {
    throw UserError("{}: quantised weights cannot be trained; set finetuning_type: lora, or remove quantization_bit",
                    recipe.where("quantization_bit"));
  }
  check_own_rules(recipe);
  if (recipe.train_from_scratch && recipe.finetuning_type != "full") {
    throw UserError("{}: train_from_scratch trains every weight, so it needs finetuning_type: full, found {}",
                    recipe.where("train_from_scratch"), recipe.finetuning_type);
  }
  if (recipe.eval_strategy != "no" && recipe.val_size == 0 && recipe.eval_dataset.empty()) {
    throw UserError("{}: eval_strategy: {} has no rows to evaluate on; set val_size or eval_dataset",
                    recipe.where("eval_strategy"), recipe.eval_strategy);
  }
  for (const auto& [wanted, key] : {std::pair{recipe.load_best_model_at_end, "load_best_model_at_end"},
                                    {recipe.early_stopping_patience > 0, "early_stopping_patience"},
                                    {recipe.save_strategy == "best", "save_strategy"}})
    if (wanted && recipe.eval_strategy == "no")
      throw UserError("{}: {} compares evaluations, but eval_strategy is no; set eval_strategy: steps or epoch",
                      recipe.where(key), key);
  if (recipe.early_stopping_patience > 0 && recipe.eval_strategy == "end")
    throw UserError(
        "{}: early_stopping_patience compares evaluations, but eval_strategy: end gives only one; set "
        "eval_strategy: steps or epoch",
        recipe.where("early_stopping_patience"));
  if (recipe.load_best_model_at_end && recipe.save_strategy != "best" && recipe.save_strategy != recipe.eval_strategy)
    throw UserError(
        "{}: load_best_model_at_end needs a checkpoint of every evaluation, but save_strategy is {} and eval_strategy "
        "is {}; set both to the same value, or set save_strategy: best",
        recipe.where("load_best_model_at_end"), recipe.save_strategy, recipe.eval_strategy);
  if (!recipe.interleave_probs.empty() && recipe.mix_strategy == "concat") {
    throw UserError(
        "{}: interleave_probs belongs to mix_strategy: interleave_under, interleave_over or interleave_once, found "
        "concat; remove the key, or change mix_strategy",
        recipe.where("interleave_probs"));
  }
  if (recipe.mask_history && recipe.train_on_prompt)
    throw UserError(
        "{}: mask_history trains only the last reply, but train_on_prompt trains everything before it, too; remove one "
        "of the two keys",
        recipe.where("mask_history"));
  recipe.interleave_weights();
  check_method(recipe);
  name_idle_keys(recipe);
  check_schedule(recipe);
  if (recipe.lr_scheduler_type == "constant" && (recipe.warmup_ratio > 0 || recipe.warmup_steps > 0)) {
    warn("{}: lr_scheduler_type: constant has no warmup; set constant_with_warmup to have one",
         recipe.where("lr_scheduler_type"));
  }
  int64_t devices = 1;
  for (const auto& [axis, size] : recipe.mesh) {
    constexpr int64_t kMostDevices = int64_t{1} << 30;
    if (size > kMostDevices / devices)
      throw UserError("{}: {} = {} is too large; a mesh has at most 2^30 devices", recipe.where("mesh"), axis, size);
    devices *= size;
  }
  if (recipe.device_count && !recipe.mesh.empty() && !recipe.mesh_is_auto() && devices != *recipe.device_count) {
    std::vector<std::string> factors;
    for (const auto& [axis, size] : recipe.mesh) factors.push_back(fmt::format("{} {}", axis, size));
    throw UserError("{}: the mesh has {} = {} devices, but device_count is {}", recipe.where("mesh"),
                    fmt::join(factors, " x "), devices, *recipe.device_count);
  }
}

std::vector<double> Recipe::interleave_weights() const {
  std::vector<double> weights;
  for (const std::string& text : interleave_probs) {
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (error != std::errc() || end != text.data() + text.size() || !(weight > 0) || !std::isfinite(weight)) {
      throw UserError("{}: interleave_probs: found '{}', wanted numbers above 0", where("interleave_probs"), text);
    }
    weights.push_back(weight);
  }
  if (!weights.empty() && weights.size() != dataset.size()) {
    throw UserError("{}: interleave_probs has {} numbers for {} data sets; give one number for each data set",
                    where("interleave_probs"), weights.size(), dataset.size());
  }
  return weights;
}

void require_keys(const Recipe& recipe, std::initializer_list<std::string_view> names, std::string_view command) {
  std::vector<std::string_view> missing;
  for (std::string_view name : names) {
    const Key* key = find_key(name);
    internal_check(key != nullptr, "require_keys: {} is not a recipe key", name);
    if (value_text(recipe, *key).empty()) missing.push_back(key->name);
  }
  if (missing.empty()) return;
  std::string remedy = fmt::format("add `{}: ...` to the recipe, or {}=... to the command", missing[0], missing[0]);
  throw UserError("{}: `fettle {}` needs {}; {}",
                  recipe.places.file().empty() ? "command line" : recipe.places.file().string(), command,
                  fmt::join(missing, ", "), remedy);
}

}  // namespace fettle
