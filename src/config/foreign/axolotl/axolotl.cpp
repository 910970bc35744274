#include "config/foreign/axolotl/axolotl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/axolotl/chat_template.h"
#include "config/foreign/axolotl/intervals.h"
#include "config/foreign/axolotl/model.h"
#include "config/foreign/axolotl/schedule.h"
#include "config/foreign/axolotl/sets.h"
#include "config/foreign/foreign_recipe.h"
#include "config/foreign/nodes.h"
#include "config/foreign/trl.h"
#include "config/value.h"

namespace fettle {
namespace {

AxolotlSets::Rows kind_of_rows(const ForeignRecipe& recipe) {
  const std::string rl = recipe.text("rl");
  if (rl == "kto") return AxolotlSets::Rows::kRated;
  return is_on(recipe.in_file("reward_model")) || !rl.empty() ? AxolotlSets::Rows::kPairs : AxolotlSets::Rows::kReplies;
}

void read_sets(ForeignRecipe& recipe, AxolotlSets& sets, const char* from, const char* to) {
  const YAML::Node list = recipe.in_file(from);
  if (!list.IsDefined() || !list.IsSequence()) return;
  YAML::Node entries(YAML::NodeType::Sequence);
  for (const auto& item : list) entries.push_back(item.IsMap() ? sets.entry(item) : item.Scalar());
  recipe.handle_in_file(from);
  recipe.mean(to, entries);
}

// Reads pretraining_dataset: one data set of texts, or a list of them.
void read_texts(ForeignRecipe& recipe, AxolotlSets& sets) {
  const YAML::Node given = recipe.in_file("pretraining_dataset");
  if (!given.IsDefined()) return;
  const std::string at = place_of(recipe.file(), given);
  if (recipe.in_file("datasets").IsDefined())
    throw UserError("{}: pretraining_dataset and datasets cannot be used together; keep one of them", at);
  YAML::Node entries(YAML::NodeType::Sequence);
  const auto add = [&](const YAML::Node& one) {
    if (!one.IsScalar() && !one.IsMap())
      throw UserError("{}: pretraining_dataset: found {}, wanted a name or a map with path", at, describe_node(one));
    entries.push_back(one.IsMap() ? sets.texts(one) : one.Scalar());
  };
  if (given.IsSequence())
    for (const auto& item : given) add(item);
  else
    add(given);
  recipe.handle_in_file("pretraining_dataset");
  recipe.mean("dataset", entries);
  recipe.mean("stage", "pt");
}

// Reads curriculum_sampling, which keeps the order of the rows. Axolotl shuffles several data sets while it merges
// them, unless shuffle_merged_datasets is false. If they are shuffled, curriculum_sampling has no effect, and this
// function warns.
void read_order(ForeignRecipe& recipe) {
  constexpr const char *kKeeps = "curriculum_sampling", *kMerge = "shuffle_merged_datasets";
  recipe.handle({kKeeps});
  if (!recipe.has(kKeeps)) return;
  const auto on = bool_from_text(recipe.text(kKeeps));
  if (!on)
    throw UserError("{}: {}: found {}, wanted true or false", recipe.place(kKeeps), kKeeps,
                    describe_node(recipe.given(kKeeps)));
  if (!*on) return;
  const YAML::Node sets = recipe.in_file("datasets");
  const bool several = sets.IsDefined() && sets.IsSequence() && sets.size() > 1;
  const bool unshuffled = bool_from_text(recipe.text(kMerge)) == false;
  if (several && !unshuffled)
    return warn(
        "{}: curriculum_sampling has no effect here: several data sets are shuffled when they are merged; set "
        "shuffle_merged_datasets: false to keep the order of the files",
        recipe.place(kKeeps));
  if (unshuffled) recipe.handle({kMerge});
  recipe.mean("disable_shuffling", "true");
}

YAML::Node rows_of_micro_batch(const ForeignRecipe& recipe) {
  for (const char* key : {"micro_batch_size", "per_device_train_batch_size", "per_device_batch_size"})
    if (recipe.is_word(key)) return recipe.all()[key];
  return recipe.root()["micro_batch_size"];
}

// Reads batch_size: the rows of a step. As a key of Fettle, this name means the rows of a micro-batch.
void read_batch(ForeignRecipe& recipe) {
  const double rows = number_of(rows_of_micro_batch(recipe), 0), total = number_of(recipe.given("batch_size"), 0);
  if (rows <= 0) return;
  const bool by_word = recipe.is_word("batch_size");
  if (total > 0 || by_word) recipe.handle_in_file("batch_size");
  if (total > 0 || (by_word && !recipe.has("batch_size"))) recipe.handle_word("batch_size");
  if (total <= 0) return;
  constexpr const char* kSteps = "gradient_accumulation_steps";
  if (recipe.overrides(kSteps) || (recipe.in_file(kSteps).IsDefined() && !by_word)) return;
  recipe.handle_in_file(kSteps);
  recipe.mean(kSteps, fmt::format("{:.0f}", std::max(1.0, std::floor(total / rows))));
}

void read_method(ForeignRecipe& recipe) {
  const auto in_file = [&](const char* key) { return text_of(recipe.in_file(key)); };
  recipe.usual("finetuning_type", "full");
  if (recipe.is_on("lora_target_linear")) recipe.handle_in_file("lora_target_modules");
  if (is_on(recipe.in_file("reward_model"))) {
    recipe.handle_in_file("reward_model");
    recipe.mean("stage", "rm");
    if (in_file("num_labels") == "1") recipe.handle_in_file("num_labels");  // a reward model has one score
  }
  if (const YAML::Node list = recipe.in_file("dpo_loss_type");
      list.IsDefined() && list.IsSequence() && list.size() == 1) {
    recipe.handle_in_file("dpo_loss_type");
    recipe.mean("pref_loss", list[0].as<std::string>(""));
  }
  if (recipe.text("rl") == "simpo") recipe.usual("pref_ftx", "1");  // the default of Axolotl's cpo_alpha
  if (has_own_balance(recipe)) recipe.usual("moe_aux_loss_default", "0.001");
  if (text_of(recipe.current("optim", "optimizer")) == "ao_adamw_4bit")
    recipe.usual("optim_args", "block_size=128");  // torchao's default; Transformers' name means 256
  recipe.drop_dropout_in("rm");
}

// Reads keys about the run that have a meaning of their own in Axolotl.
void read_run(ForeignRecipe& recipe) {
  const auto in_file = [&](const char* key) { return recipe.in_file(key); };
  if (is_on(in_file("float16")) && in_file("fp16").IsDefined() && !is_on(in_file("fp16")))
    recipe.handle_in_file("fp16");  // with float16, Axolotl sets fp16 itself
  if (is_on(in_file("auto_resume_from_checkpoints")) && !in_file("resume_from_checkpoint").IsDefined())
    recipe.handle_in_file("resume_from_checkpoint");
  const std::string checkpointing = text_of(in_file("gradient_checkpointing"));
  if (checkpointing == "offload" || checkpointing == "offload_disk") {
    recipe.handle_in_file("gradient_checkpointing");
    recipe.mean("gradient_checkpointing", "true");
  }
  if (const std::string length = text_of(in_file("excess_length_strategy")); !length.empty()) {
    recipe.handle_in_file("excess_length_strategy");
    recipe.mean("overlength", length == "truncate" ? "cut" : length == "raise" ? "error" : length);
  }
  if (!recipe.text("wandb_project").empty()) recipe.usual("report_to", "wandb");
  if (recipe.text("eval_sequence_len") == text_of(recipe.current("cutoff_len", "sequence_len")))
    recipe.handle({"eval_sequence_len"});
}

void read_plugins(ForeignRecipe& recipe) {
  recipe.handle_in_file("plugins");
  const YAML::Node list = recipe.in_file("plugins");
  if (!list.IsDefined() || !list.IsSequence()) return;
  for (const auto& item : list) {
    const std::string name = item.IsScalar() ? item.Scalar() : "?";
    const auto is = [&](const char* word) { return name.find(word) != std::string::npos; };
    if (is("cut_cross_entropy") || is("liger") || is("kernels") || is("expert_parallel"))
      continue;  // these plugins change how results are computed, not the results
    if (is("swanlab") || is("otel") || is("opentelemetry")) {
      warn("{}: the plugin '{}' has no effect here: trainer_log.jsonl has all figures; report_to can add a tracker",
           place_of(recipe.file(), item), name);
      continue;
    }
    throw UserError("{}: the plugin '{}' is not available; remove it if the run does not need its feature",
                    place_of(recipe.file(), item), name);
  }
}

// Reads the special tokens. eos_token becomes Fettle's key eos_token, since it changes what is trained. bos_token,
// unk_token and pad_token change nothing that is trained, so the tokenizer's own are used.
void read_tokens(ForeignRecipe& recipe) {
  for (const char* key : {"special_tokens", "tokens"}) {
    const YAML::Node map = recipe.in_file(key);
    const bool is_map = map.IsDefined() && map.IsMap();
    if (is_map || std::string_view(key) == "special_tokens")
      recipe.handle_in_file(key);  // a list `tokens` means add_tokens
    if (is_map && map["eos_token"].IsDefined() && map["eos_token"].IsScalar())
      recipe.mean("eos_token", map["eos_token"].Scalar());
    if (is_map && map["additional_special_tokens"].IsDefined() && !map["additional_special_tokens"].IsNull())
      recipe.mean("add_special_tokens", map["additional_special_tokens"]);
  }
  recipe.handle_in_file("eot_tokens");  // Fettle finds the end-of-turn tokens of the chat template
}

void read_usual(ForeignRecipe& recipe) {
  recipe.usual("num_train_epochs", "1");
  recipe.usual("per_device_train_batch_size", "1");
  recipe.usual("gradient_accumulation_steps", "1");
  recipe.usual("lr_scheduler_type", "cosine");
  recipe.usual("overlength", "drop");
  if (number_of(recipe.in_file("save_total_limit"), 1) == 0) recipe.handle_in_file("save_total_limit");
  recipe.usual("save_total_limit", "4");
  recipe.usual("cutoff_len", "512");
  if (!recipe.is_on("fp16") && !recipe.is_on("float16") && !recipe.is_on("bfloat16")) recipe.usual("bf16", "true");
  const auto sets = [&](const char* key) { return recipe.in_file(key).IsDefined() || recipe.overrides(key); };
  if (!sets("warmup_steps") && !sets("warmup_ratio")) {
    recipe.usual("warmup_ratio", "0.03");
    recipe.usual("max_warmup_steps", "100");
  }
}

}  // namespace

bool is_axolotl(const YAML::Node& root) {
  auto has = [&](const char* key) { return root[key].IsDefined(); };
  // TRL has `datasets`, too. The model may be on the command line.
  if (!has("base_model") && (has("model_name_or_path") || has_key_of_trl(root))) return false;
  const YAML::Node sets = root["datasets"];
  if (sets.IsDefined() && sets.IsSequence() && sets.size() > 0 && sets[0].IsMap() && sets[0]["path"].IsDefined())
    return true;
  return has("base_model") && (has("micro_batch_size") || has("sequence_len"));
}

Dialect read_axolotl(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  ForeignRecipe recipe(root, all, file, "Axolotl");
  AxolotlSets sets(file, kind_of_rows(recipe));
  read_sets(recipe, sets, "datasets", "dataset");
  read_sets(recipe, sets, "test_datasets", "eval_dataset");
  read_texts(recipe, sets);
  read_axolotl_intervals(recipe);
  read_method(recipe);
  read_batch(recipe);
  read_run(recipe);
  read_axolotl_schedule(recipe);
  read_order(recipe);
  read_axolotl_template(recipe, sets.templates());
  read_plugins(recipe);
  read_tokens(recipe);
  read_axolotl_model(recipe);
  read_usual(recipe);
  return recipe.take();
}

}  // namespace fettle
