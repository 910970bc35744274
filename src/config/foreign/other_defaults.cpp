#include "config/foreign/other_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/keys.h"
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

// Skips the keys, in the file and on the command line.
void handle(Dialect& out, std::initializer_list<const char*> keys) {
  out.handled.insert(keys.begin(), keys.end());
  out.handled_words.insert(keys.begin(), keys.end());
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
void read_evaluation(const Given& given, const YAML::Node& all, Dialect& out) {
  const auto or_else = [&](const char* key, const char* value) {
    return given.has(key) ? given.text(key) : std::string(value);
  };
  const std::string saves = or_else("save_strategy", "steps");
  const bool chosen = given.has_any({"eval_strategy", "evaluation_strategy"});
  const char* key = given.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy";
  const std::string evaluates = chosen ? given.text(key) : saves;
  const bool splits = std::atof(given.text("split_dataset_ratio").c_str()) > 0, sets = gives_rows(all, "eval_dataset");
  if (splits && (evaluates == "no" || sets)) {
    handle(out, {"split_dataset_ratio"});
    info("split_dataset_ratio has no effect: ms-swift holds no rows out if {}",
         sets ? "val_dataset is given" : "it does not evaluate");
  }
  if (evaluates == "no") return;
  if (!sets && !gives_rows(all, "val_size")) {
    if (!chosen) return;
    handle(out, {"eval_strategy", "evaluation_strategy"});
    return info("eval_strategy has no effect: there are no rows to evaluate on");
  }
  if (!chosen) usual(out, "eval_strategy", evaluates);
  if (evaluates == "steps") usual(out, "eval_steps", or_else("save_steps", "500"));
}

// Returns where the key is, for messages. `file` is the recipe.
std::string place(const YAML::Node& root, const char* key, const std::string& file) {
  return root[key].IsDefined() ? fmt::format("{}:{}", file, root[key].Mark().line + 1) : "the command line";
}

// Reads new_special_tokens. An item that ends in .txt is the name of a file with tokens.
void read_new_tokens(const YAML::Node& root, const YAML::Node& all, const std::string& file, Dialect& out) {
  const YAML::Node given = all["new_special_tokens"];
  if (!given.IsDefined() || given.IsNull() || given.IsMap()) return;
  YAML::Node tokens(YAML::NodeType::Sequence);
  bool from_file = false;
  const auto add = [&](const std::string& item) {
    if (!item.ends_with(".txt")) return tokens.push_back(item);
    from_file = true;
    std::ifstream in(item, std::ios::binary);
    if (!in) throw UserError("{}: new_special_tokens: cannot read {}", place(root, "new_special_tokens", file), item);
    for (std::string token; in >> token;) tokens.push_back(token);
  };
  if (given.IsScalar()) add(given.Scalar());
  if (given.IsSequence())
    for (const auto& item : given)
      if (item.IsScalar()) add(item.Scalar());
  if (!from_file) return;
  handle(out, {"new_special_tokens"});
  const bool in_file = root["new_special_tokens"].IsDefined() && given.is(root["new_special_tokens"]);
  (in_file ? out.meant : out.meant_words).emplace_back("add_special_tokens", tokens);
}

// Source of the defaults: swift/arguments and swift/trainers/arguments.py of ms-swift 4.
Dialect ms_swift(const Given& given, const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  Dialect out{.tool = "ms-swift"};
  const std::string tuner = given.text("tuner_type") + given.text("train_type");
  const bool full = tuner == "full";
  out.without_dropout.insert("rm");
  read_evaluation(given, all, out);
  read_new_tokens(root, all, file, out);
  if (given.text("template") == "default")
    throw UserError(
        "{}: template: the template `default` of ms-swift is not available; put a chat_template.jinja with its prompt "
        "(### Human: ... ### Assistant:) into the model folder, and remove the key",
        place(root, "template", file));
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
  const int64_t rows = std::max<int64_t>(1, digits_value(given.text("per_device_train_batch_size")).value_or(1));
  usual(out, "gradient_accumulation_steps", std::to_string(16 / rows + (16 % rows != 0)));
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

std::optional<Dialect> read_other_defaults(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  const Given keys(root.size() > 0 ? root : all), given(all);
  if (keys.has_any({"tuner_type", "train_type", "rlhf_type", "split_dataset_ratio", "truncation_strategy"}))
    return ms_swift(given, root, all, file);
  if (keys.has("model") && (keys.section("training").size() > 0 || keys.has("training_type"))) return unsloth(given);
  return std::nullopt;
}

}  // namespace fettle
