#include "config/foreign/other_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/foreign/foreign_recipe.h"
#include "config/keys.h"
#include "config/value.h"

namespace fettle {
namespace {

// Returns the section of this name; an empty map if there is none.
YAML::Node section(const YAML::Node& keys, const char* name) {
  return keys[name].IsDefined() && keys[name].IsMap() ? keys[name] : YAML::Node(YAML::NodeType::Map);
}

// Returns whether a key of this name, or with this alias, gives rows to evaluate on. `name` is val_size or
// eval_dataset.
bool gives_rows(const YAML::Node& all, std::string_view name) {
  for (const auto& pair : all) {
    const Key* key = pair.first.IsScalar() ? find_key(pair.first.Scalar()) : nullptr;
    const YAML::Node value = pair.second;
    if (key == nullptr || key->name != name || value.IsNull()) continue;
    if (name == "val_size" ? value.IsScalar() && std::atof(value.Scalar().c_str()) > 0
                           : value.IsScalar() || value.size() > 0)
      return true;
  }
  return false;
}

// ms-swift evaluates when it saves checkpoints, if there are rows to evaluate on. Without evaluations, or with
// val_dataset, it trains on all rows.
void read_evaluation(ForeignRecipe& recipe) {
  const auto or_else = [&](const char* key, const char* value) {
    return recipe.has(key) ? recipe.text(key) : std::string(value);
  };
  const std::string saves = or_else("save_strategy", "steps");
  const bool chosen = recipe.has_any({"eval_strategy", "evaluation_strategy"});
  const char* key = recipe.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy";
  const std::string evaluates = chosen ? recipe.text(key) : saves;
  const bool splits = std::atof(recipe.text("split_dataset_ratio").c_str()) > 0,
             sets = gives_rows(recipe.all(), "eval_dataset");
  if (splits && (evaluates == "no" || sets)) {
    recipe.handle({"split_dataset_ratio"});
    info("split_dataset_ratio has no effect: ms-swift holds no rows out if {}",
         sets ? "val_dataset is given" : "it does not evaluate");
  }
  if (evaluates == "no") return;
  if (!sets && !gives_rows(recipe.all(), "val_size")) {
    if (!chosen) return;
    recipe.handle({"eval_strategy", "evaluation_strategy"});
    return info("eval_strategy has no effect: there are no rows to evaluate on");
  }
  if (!chosen) recipe.usual("eval_strategy", evaluates);
  if (evaluates == "steps") recipe.usual("eval_steps", or_else("save_steps", "500"));
}

// Reads new_special_tokens. An item that ends in .txt is the name of a file with tokens.
void read_new_tokens(ForeignRecipe& recipe) {
  const YAML::Node given = recipe.given("new_special_tokens");
  if (!given.IsDefined() || given.IsMap()) return;
  YAML::Node tokens(YAML::NodeType::Sequence);
  bool from_file = false;
  const auto add = [&](const std::string& item) {
    if (!item.ends_with(".txt")) return tokens.push_back(item);
    from_file = true;
    std::ifstream in(item, std::ios::binary);
    if (!in) throw UserError("{}: new_special_tokens: cannot read {}", recipe.place("new_special_tokens"), item);
    for (std::string token; in >> token;) tokens.push_back(token);
  };
  if (given.IsScalar()) add(given.Scalar());
  if (given.IsSequence())
    for (const auto& item : given)
      if (item.IsScalar()) add(item.Scalar());
  if (!from_file) return;
  recipe.handle({"new_special_tokens"});
  recipe.mean_from("new_special_tokens", "add_special_tokens", tokens);
}

// Reads system. A value that ends in .txt names a file with the prompt. Other values have newlines as `\n`.
void read_system(ForeignRecipe& recipe) {
  std::string prompt = recipe.text("system");
  if (prompt.ends_with(".txt")) {
    std::ifstream in(prompt, std::ios::binary);
    if (!in)
      throw UserError("{}: system: cannot read {}; name a file that exists, or write the prompt itself",
                      recipe.place("system"), prompt);
    prompt.assign(std::istreambuf_iterator<char>(in), {});
  } else if (prompt.find("\\n") != std::string::npos) {
    for (size_t at = 0; (at = prompt.find("\\n", at)) != std::string::npos; ++at) prompt.replace(at, 2, "\n");
  } else {
    return;
  }
  recipe.handle({"system"});
  recipe.mean_from("system", "default_system", YAML::Node(prompt));
}

// Refuses the parts of loss_scale that weigh a piece of a reply: "last_round+hermes" has the part hermes. The part that
// chooses replies is a translation.
void check_loss_scale(const ForeignRecipe& recipe) {
  const std::string value = recipe.text("loss_scale");
  // ms-swift 3 has this name for two parts.
  std::istringstream parts(value == "last_round_with_ignore_empty_think" ? "last_round+ignore_empty_think" : value);
  std::string chosen = "default";
  for (std::string part; std::getline(parts, part, '+');) {
    if (part == "default" || part == "last_round" || part == "all") {
      chosen = part;
      continue;
    }
    const std::string start = fmt::format("{}: loss_scale: '{}' is not available", recipe.place("loss_scale"), part);
    if (part == "ignore_empty_think")
      throw UserError(
          "{}; set loss_scale: {}, and if no reply has a thought, also enable_thinking: false: empty thoughts are then "
          "not trained",
          start, chosen);
    throw UserError("{}: every part of a reply has the same weight; set loss_scale: {}", start, chosen);
  }
}

// Source of the defaults: swift/arguments and swift/trainers/arguments.py of ms-swift 4.
Dialect ms_swift(ForeignRecipe recipe) {
  const std::string tuner = recipe.text("tuner_type") + recipe.text("train_type");
  const bool full = tuner == "full";
  recipe.drop_dropout_in("rm");
  read_evaluation(recipe);
  read_new_tokens(recipe);
  read_system(recipe);
  check_loss_scale(recipe);
  if (recipe.text("template") == "default")
    throw UserError(
        "{}: template: the template `default` of ms-swift is not available; put a chat_template.jinja with its prompt "
        "(### Human: ... ### Assistant:) into the model folder, and remove the key",
        recipe.place("template"));
  recipe.usual("learning_rate", full ? "1e-5" : "1e-4");
  if (!full) {
    recipe.usual("lora_rank", "8");
    recipe.usual("lora_alpha", "32");
    recipe.usual("lora_dropout", "0.05");
  }
  recipe.usual("weight_decay", "0.1");
  recipe.usual("adam_beta2", "0.95");
  recipe.usual("lr_scheduler_type", "cosine");
  recipe.usual("per_device_train_batch_size", "1");
  // By default, ms-swift accumulates micro-batches until a step has at least 16 rows.
  const int64_t rows = std::max<int64_t>(1, digits_value(recipe.text("per_device_train_batch_size")).value_or(1));
  recipe.usual("gradient_accumulation_steps", std::to_string(16 / rows + (16 % rows != 0)));
  recipe.usual("overlength", "drop");
  if (!recipe.has("use_hf")) recipe.usual("use_modelscope", environment_is_on("USE_HF") ? "false" : "true");
  recipe.handle({"strict"});
  recipe.usual("on_bad_row", recipe.is_on("strict") ? "error" : "skip");
  recipe.usual("logging_steps", "5");
  if (!recipe.has_any({"fp16", "torch_dtype", "dtype"})) recipe.usual("bf16", "true");
  if (recipe.text("rlhf_type") == "simpo") {
    recipe.usual("pref_beta", "2");
    recipe.usual("simpo_gamma", "1");
    recipe.usual("pref_ftx", "1");
  }
  if (!recipe.has_any({"max_length", "cutoff_len"}))
    warn("max_length is not given: ms-swift takes the model's longest sequence, but Fettle takes 2048; set max_length");
  return recipe.take();
}

// Source of the defaults: unsloth_cli/config.py of Unsloth.
Dialect unsloth(ForeignRecipe recipe) {
  // A recipe has these keys in the section `training`; on the command line they are flags without a section.
  const YAML::Node training = section(recipe.all(), "training");
  const bool in_section = training["training_type"].IsDefined() && training["training_type"].IsScalar();
  const bool full = (in_section ? training["training_type"].Scalar() : recipe.text("training_type")) == "full";
  recipe.usual("finetuning_type", full ? "full" : "lora");
  recipe.usual("learning_rate", "2e-4");
  if (!full) {
    if (!training["load_in_4bit"].IsDefined() && !recipe.has("load_in_4bit")) recipe.usual("quantization_bit", "4");
    recipe.usual("lora_rank", "64");
    recipe.usual("lora_alpha", "16");
    recipe.usual("lora_target", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj");
  }
  recipe.usual("cutoff_len", "2048");
  recipe.usual("per_device_train_batch_size", "2");
  recipe.usual("gradient_accumulation_steps", "4");
  recipe.usual("warmup_steps", "5");
  recipe.usual("weight_decay", "0.01");
  recipe.usual("optim", "adamw_8bit");
  recipe.usual("seed", "3407");
  recipe.usual("train_on_prompt", "true");
  recipe.usual("bf16", "true");
  return recipe.take();
}

}  // namespace

std::optional<Dialect> read_other_defaults(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  const YAML::Node& keys = root.size() > 0 ? root : all;  // the file's keys show the tool; without a file, all do
  const auto has = [&](const char* key) { return keys[key].IsDefined() && !keys[key].IsNull(); };
  for (const char* key : {"tuner_type", "train_type", "rlhf_type", "split_dataset_ratio", "truncation_strategy"})
    if (has(key)) return ms_swift({root, all, file, "ms-swift"});
  if (has("model") && (section(keys, "training").size() > 0 || has("training_type")))
    return unsloth({root, all, file, "Unsloth"});
  return std::nullopt;
}

}  // namespace fettle
