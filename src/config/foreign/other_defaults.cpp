#include "config/foreign/other_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "config/foreign/axolotl_sets.h"
#include "config/value.h"

namespace fettle {
namespace {

class Given {
 public:
  explicit Given(const YAML::Node& root) : root_(root) {}
  bool has(const char* key) const { return root_[key].IsDefined() && !root_[key].IsNull(); }
  bool has_any(std::initializer_list<const char*> keys) const {
    return std::ranges::any_of(keys, [&](const char* key) { return has(key); });
  }
  YAML::Node at(const char* key) const { return root_[key]; }
  std::string text(const char* key) const { return has(key) && root_[key].IsScalar() ? root_[key].Scalar() : ""; }
  YAML::Node section(const char* key) const {
    return has(key) && root_[key].IsMap() ? root_[key] : YAML::Node(YAML::NodeType::Map);
  }

 private:
  const YAML::Node& root_;
};

void usual(Dialect& out, const char* key, const std::string& value) {
  out.usual.emplace_back(key, YAML::Node(value));
}

// Source of the defaults: swift/arguments and swift/trainers/arguments.py of ms-swift 4.
Dialect ms_swift(const Given& given) {
  Dialect out{.tool = "ms-swift"};
  const std::string tuner = given.text("tuner_type") + given.text("train_type");
  const bool full = tuner == "full";
  usual(out, "learning_rate", full ? "1e-5" : "1e-4");
  if (!full) {
    usual(out, "lora_rank", "8");
    usual(out, "lora_alpha", "32");
    usual(out, "lora_dropout", "0.05");
  }
  usual(out, "weight_decay", "0.1");
  usual(out, "adam_beta2", "0.95");
  usual(out, "lr_scheduler_type", "cosine");
  usual(out, "per_device_train_batch_size", "1");
  // By default, ms-swift accumulates micro-batches until a step has at least 16 rows.
  const std::string batch = given.text("per_device_train_batch_size");
  const bool number = !batch.empty() && batch.size() < 6 && batch.find_first_not_of("0123456789") == std::string::npos;
  const double rows = std::max(1.0, number ? std::stod(batch) : 1.0);
  usual(out, "gradient_accumulation_steps", fmt::format("{:.0f}", std::ceil(16 / rows)));
  usual(out, "overlength", "drop");
  usual(out, "logging_steps", "5");
  if (!given.has_any({"fp16", "torch_dtype", "dtype"})) usual(out, "bf16", "true");
  if (given.text("rlhf_type") == "simpo") {
    usual(out, "pref_beta", "2");
    usual(out, "simpo_gamma", "1");
    usual(out, "pref_ftx", "1");
  }
  if (!given.has_any({"max_length", "cutoff_len"}))
    warn("max_length is not given: ms-swift takes the model's longest sequence, but Fettle takes 2048; set max_length");
  return out;
}

// Returns the data set that TRL evaluates on: the split `test` of the data set `name` on the hub.
YAML::Node test_split_of(const std::string& name) {
  YAML::Node entry, list;
  entry["hf_hub_url"] = name;
  entry["split"] = "test";
  list.push_back(entry);
  return list;
}

void mean(Dialect& out, const char* key, const YAML::Node& value) {
  out.meant.emplace_back(key, value);
}

void handle(Dialect& out, std::initializer_list<const char*> keys) {
  out.handled.insert(keys.begin(), keys.end());
  out.handled_words.insert(keys.begin(), keys.end());
}

// Reads the names of TRL's losses. Each stage has its own: `kto` in stage kto is Fettle's only loss of that stage.
void read_losses_of_trl(const Given& given, const std::string& stage, Dialect& out) {
  if (!given.has("loss_type")) return;
  const YAML::Node list = given.at("loss_type");
  const YAML::Node one = list.IsSequence() && list.size() == 1 ? list[0] : list;
  if (!one.IsScalar()) return;
  const std::string loss = one.Scalar();
  const bool replies = stage.empty() || stage == "sft";
  const bool usual_loss = replies ? loss == "nll" || loss == "chunked_nll" : stage == "kto" && loss == "kto";
  if (!usual_loss && !(replies && loss == "dft") && stage != "dpo") return;
  handle(out, {"loss_type"});
  if (!usual_loss) mean(out, replies ? "sft_loss" : "pref_loss", YAML::Node(loss));
}

// Reads `datasets`, and dataset_name with the keys that belong to it.
void read_sets_of_trl(const Given& given, Dialect& out) {
  AxolotlSets sets("datasets", AxolotlSets::Rows::kReplies);  // both tools describe a place in the same way
  YAML::Node list(YAML::NodeType::Sequence);
  if (given.has("datasets") && given.at("datasets").IsSequence()) {
    for (const auto& item : given.at("datasets")) {
      YAML::Node set = YAML::Clone(item);
      if (set.IsMap()) set.remove("columns");  // these are the columns to load
      list.push_back(set.IsMap() ? sets.entry(set) : set.Scalar());
    }
    handle(out, {"datasets", "dataset_name", "dataset_config"});
  } else if (const std::string column = given.text("dataset_text_field");
             given.has("dataset_name") && (given.has("dataset_config") || (!column.empty() && column != "text"))) {
    nlohmann::ordered_json entry = {{"hf_hub_url", given.text("dataset_name")}};
    if (given.has("dataset_config")) entry["subset"] = given.text("dataset_config");
    if (!column.empty() && column != "text") entry["columns"] = {{"prompt", column}};
    list.push_back(entry.dump());
    handle(out, {"dataset_name", "dataset_config", "dataset_text_field"});
  } else {
    return;
  }
  mean(out, "dataset", list);
}

// Source of the defaults: trl/trainer/*_config.py, model_config.py and scripts/utils.py of TRL 1.
Dialect trl(const Given& given) {
  Dialect out{.tool = "TRL"};
  const std::string stage = given.text("stage");
  const bool lora = bool_from_text(given.text("use_peft")).value_or(false);
  if (!given.has("use_peft")) usual(out, "finetuning_type", "full");
  usual(out, "learning_rate", stage == "dpo" || stage == "kto" ? "1e-6" : stage == "rm" ? "1e-4" : "2e-5");
  if (lora) {
    usual(out, "lora_rank", "16");
    usual(out, "lora_alpha", "32");
    usual(out, "lora_dropout", "0.05");
    if (bool_from_text(given.text("load_in_4bit")).value_or(false)) usual(out, "double_quantization", "false");
    if (!given.has_any({"lora_target_modules", "lora_target"}))
      warn(
          "lora_target_modules is not given: PEFT chooses layers by the model's family, but Fettle takes all linear "
          "layers; set lora_target_modules: q_proj,v_proj for PEFT's usual choice");
  }
  usual(out, "cutoff_len", "1024");
  usual(out, "plain_text_rows", "true");
  read_losses_of_trl(given, stage, out);
  read_sets_of_trl(given, out);
  if ((stage.empty() || stage == "sft") &&
      !given.has_any({"assistant_only_loss", "completion_only_loss", "train_on_prompt"}))
    warn(
        "assistant_only_loss is not given: TRL trains all tokens of `messages`, but Fettle trains the assistant's "
        "turns; set train_on_prompt: true to train all tokens");
  handle(out, {"dtype", "torch_dtype"});  // in TRL, only the dtype in which weights are loaded
  if (!bool_from_text(given.text("fp16")).value_or(false)) usual(out, "bf16", "true");
  const std::string evaluates = given.text("eval_strategy"), name = given.text("dataset_name");
  std::error_code ignored;
  if (!evaluates.empty() && evaluates != "no" && !name.empty() && !std::filesystem::exists(name, ignored) &&
      !given.has_any({"eval_dataset", "val_size"})) {
    mean(out, "eval_dataset", test_split_of(name));
    info("eval_dataset: the split `test` of {}, as in TRL", name);
  }
  return out;
}

// Source of the defaults: unsloth_cli/config.py of Unsloth.
Dialect unsloth(const Given& given) {
  Dialect out{.tool = "Unsloth"};
  // A recipe has these keys in the section `training`; on the command line they are flags without a section.
  const YAML::Node training = given.section("training");
  const bool in_section = training["training_type"].IsDefined() && training["training_type"].IsScalar();
  const bool full = (in_section ? training["training_type"].Scalar() : given.text("training_type")) == "full";
  usual(out, "finetuning_type", full ? "full" : "lora");
  usual(out, "learning_rate", "2e-4");
  if (!full) {
    if (!training["load_in_4bit"].IsDefined() && !given.has("load_in_4bit")) usual(out, "quantization_bit", "4");
    usual(out, "lora_rank", "64");
    usual(out, "lora_alpha", "16");
    usual(out, "lora_target", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj");
  }
  usual(out, "cutoff_len", "2048");
  usual(out, "per_device_train_batch_size", "2");
  usual(out, "gradient_accumulation_steps", "4");
  usual(out, "warmup_steps", "5");
  usual(out, "weight_decay", "0.01");
  usual(out, "optim", "adamw_8bit");
  usual(out, "seed", "3407");
  usual(out, "train_on_prompt", "true");
  usual(out, "bf16", "true");
  return out;
}

}  // namespace

std::optional<Dialect> read_other_defaults(const YAML::Node& root, const YAML::Node& all) {
  const Given keys(root), given(all);
  if (keys.has_any({"tuner_type", "train_type", "rlhf_type", "split_dataset_ratio", "truncation_strategy"}))
    return ms_swift(given);
  if (keys.has("model") && (keys.section("training").size() > 0 || keys.has("training_type"))) return unsloth(given);
  const bool mixture = keys.has("datasets") && keys.at("datasets").IsSequence() && keys.at("datasets").size() > 0 &&
                       keys.at("datasets")[0].IsMap();
  if (keys.has_any(
          {"use_peft", "dataset_train_split", "dataset_test_split", "assistant_only_loss", "completion_only_loss"}) ||
      (keys.has("model_name_or_path") && (keys.has("dataset_name") || mixture)))
    return trl(given);
  return std::nullopt;
}

}  // namespace fettle
