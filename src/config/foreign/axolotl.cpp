#include "config/foreign/axolotl.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "config/value.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Chat templates by name that are the families' own: the model's own template has the same form.
bool is_own_template(std::string_view name) {
  static constexpr std::string_view kNames[] = {"tokenizer_default",
                                                "gemma3",
                                                "gemma3n",
                                                "gemma4",
                                                "gemma4_unified",
                                                "gemma4n",
                                                "llama4",
                                                "qwen_25",
                                                "qwen3",
                                                "qwen3_5",
                                                "qwen2_vl",
                                                "falcon_h1",
                                                "jamba",
                                                "cohere",
                                                "command_a",
                                                "command_a_tool_use",
                                                "aya",
                                                "deepseek_v2",
                                                "deepseek_v3",
                                                "exaone",
                                                "exaone4",
                                                "phi_4",
                                                "granite",
                                                "granitemoe",
                                                "mistral_v1",
                                                "mistral_v2v3",
                                                "mistral_v3_tekken",
                                                "mistral_v7_tekken",
                                                "pixtral",
                                                "llava",
                                                "llama3_2_vision",
                                                "metharme",
                                                "voxtral"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

class AxolotlReader {
 public:
  AxolotlReader(const YAML::Node& root, std::string file) : root_(root), file_(std::move(file)) {}

  Dialect read() {
    out_.tool = "Axolotl";
    read_sets("datasets", "dataset");
    read_sets("test_datasets", "eval_dataset");
    read_intervals();
    read_method();
    read_template();
    read_plugins();
    read_tokens();
    read_usual();
    return std::move(out_);
  }

 private:
  YAML::Node at(const char* key) const {
    const YAML::Node node = root_[key];
    return node.IsDefined() && !node.IsNull() ? node : YAML::Node(YAML::NodeType::Undefined);
  }
  bool has(const char* key) const { return at(key).IsDefined(); }
  std::string text(const char* key) const { return has(key) && at(key).IsScalar() ? at(key).Scalar() : ""; }
  bool is_on(const char* key) const { return bool_from_text(text(key)).value_or(false); }
  double number(const char* key, double otherwise) const {
    const std::string value = text(key);
    return value.empty() || value.find_first_not_of("+-.0123456789eE") != std::string::npos ? otherwise
                                                                                            : std::stod(value);
  }
  std::string where(const YAML::Node& node) const { return fmt::format("{}:{}", file_, node.Mark().line + 1); }

  void mean(const char* key, const std::string& value) { out_.meant.emplace_back(key, YAML::Node(value)); }
  void handle(const char* key) { out_.handled.insert(key); }
  void usual(const char* key, const std::string& value) { out_.usual.emplace_back(key, YAML::Node(value)); }

  void read_sets(const char* from, const char* to) {
    const YAML::Node list = at(from);
    if (!list.IsDefined() || !list.IsSequence()) return;
    YAML::Node entries(YAML::NodeType::Sequence);
    for (const auto& item : list) entries.push_back(item.IsMap() ? set_of(item) : item.Scalar());
    handle(from);
    out_.meant.emplace_back(to, entries);
  }

  std::string set_of(const YAML::Node& set) {
    const ordered_json entry = entry_of(set);
    return entry.size() == 1 ? entry.begin().value().get<std::string>() : entry.dump();
  }

  // One data set as an entry of dataset_info.json.
  ordered_json entry_of(const YAML::Node& set) {
    auto value = [&](const char* key) {
      const YAML::Node node = set[key];
      return node.IsDefined() && node.IsScalar() ? node.Scalar() : std::string();
    };
    std::string type = value("type");
    if (!set["path"].IsDefined()) throw UserError("{}: found a data set without `path`; add it", where(set));
    ordered_json entry = {{"hf_hub_url", value("path")}};
    if (const YAML::Node files = set["data_files"]; files.IsDefined() && !files.IsNull()) {
      const YAML::Node one = files.IsSequence() && files.size() == 1 ? files[0] : files;
      if (!one.IsScalar())
        throw UserError("{}: data_files with several files is not available; give each a data set of its own",
                        where(files));
      const bool loader = value("path") == "json" || value("path") == "csv" || value("path") == "parquet";
      if (loader) {
        entry = {{"file_name", one.Scalar()}};
      } else {
        entry["file"] = one.Scalar();
      }
    }
    if (!value("split").empty()) entry["split"] = value("split");
    if (!value("name").empty()) entry["subset"] = value("name");
    ordered_json columns = ordered_json::object(), tags = ordered_json::object();
    if (type == "alpaca") {
      entry["formatting"] = "alpaca_prompt";
    } else if (type == "completion") {
      entry["formatting"] = "alpaca";
      columns["prompt"] = value("field").empty() ? "text" : value("field");
    } else if (type.starts_with("chat_template") || type == "bradley_terry.chat_template") {
      read_turns(set, entry, columns, tags);
    } else if (!type.empty()) {
      throw UserError(
          "{}: the data set type '{}' is not available; use chat_template, alpaca or completion, or describe the rows "
          "in "
          "dataset_info.json",
          where(set), type);
    }
    for (const auto& pair : set) {
      const std::string key = pair.first.Scalar();
      static const std::vector<std::string> kKnown = {"path",
                                                      "type",
                                                      "split",
                                                      "name",
                                                      "data_files",
                                                      "field",
                                                      "field_messages",
                                                      "roles",
                                                      "field_thinking",
                                                      "ds_type",
                                                      "message_property_mappings",
                                                      "field_chosen",
                                                      "field_rejected",
                                                      "template_thinking_key",
                                                      "drop_system_message",
                                                      "message_field_role",
                                                      "message_field_content",
                                                      "message_field_training",
                                                      "message_field_training_detail",
                                                      "roles_to_train",
                                                      "train_on_eos",
                                                      "trust_remote_code",
                                                      "chat_template"};
      if (std::ranges::find(kKnown, key) == kKnown.end())
        throw UserError("{}: the data set key '{}' is not available; describe the columns in dataset_info.json",
                        where(pair.first), key);
    }
    if (!columns.empty()) entry["columns"] = columns;
    if (!tags.empty()) entry["tags"] = tags;
    return entry;
  }

  void read_turns(const YAML::Node& set, ordered_json& entry, ordered_json& columns, ordered_json& tags) const {
    auto value = [&](const YAML::Node& node, const char* key) {
      return node.IsDefined() && node.IsMap() && node[key].IsDefined() && node[key].IsScalar() ? node[key].Scalar()
                                                                                               : "";
    };
    const YAML::Node mappings = set["message_property_mappings"];
    std::string role = value(mappings, "role"), content = value(mappings, "content");
    if (role.empty()) role = value(set, "message_field_role");
    if (content.empty()) content = value(set, "message_field_content");
    const std::string list = value(set, "field_messages");
    for (const char* what : {"chosen", "rejected"})
      if (const std::string column = value(set, what == std::string("chosen") ? "field_chosen" : "field_rejected");
          !column.empty())
        columns[what] = column;
    if (!columns.empty()) entry["ranking"] = true;
    const std::string trained = value(set, "message_field_training"),
                      spans = value(set, "message_field_training_detail");
    if (!trained.empty() && trained != "train" && trained != "training")
      throw UserError("{}: message_field_training: '{}' is not read; name the field train or training",
                      where(set["message_field_training"]), trained);
    const bool usual_spans = spans.empty() || spans == "train_detail";
    const bool usual_roles = role.empty() || role == "role" || role == "from";
    const bool usual_content = content.empty() || content == "content" || content == "value";
    const bool usual_list = list.empty() || list == "messages" || list == "conversations" || list == "conversation";
    if (usual_roles && usual_content && usual_list && usual_spans) return;  // the format is detected from the columns
    if (!list.empty()) columns["messages"] = list;
    const bool openai = usual_spans && (role.empty() || role == "role") && (content.empty() || content == "content");
    entry["formatting"] = openai ? "openai" : "sharegpt";
    if (openai) return;
    if (!usual_spans) tags["spans_tag"] = spans;
    if (!usual_spans && role != "from")
      tags["user_tag"] = "user", tags["assistant_tag"] = "assistant", tags["system_tag"] = "system";
    tags["role_tag"] = role.empty() ? "role" : role;
    tags["content_tag"] = content.empty() ? "content" : content;
    const YAML::Node roles = set["roles"];
    for (const auto& [ours, theirs] :
         {std::pair{"user_tag", "user"}, {"assistant_tag", "assistant"}, {"system_tag", "system"}})
      if (roles.IsDefined() && roles.IsMap() && roles[theirs].IsDefined() && roles[theirs].IsSequence() &&
          roles[theirs].size() > 0)
        tags[ours] = roles[theirs][0].Scalar();
  }

  // Steps between checkpoints and evaluations as shares of the run.
  void read_intervals() {
    const double epochs = number("num_epochs", 1);
    for (const auto& [from, strategy, steps] : {std::tuple{"saves_per_epoch", "save_strategy", "save_steps"},
                                                {"evals_per_epoch", "eval_strategy", "eval_steps"}}) {
      handle(from);
      const double times = number(from, 0);
      if (times <= 0 || has(steps)) continue;
      if (std::string_view(from) == "evals_per_epoch" && !evaluates()) continue;
      handle(strategy);
      mean(strategy, times == 1 ? "epoch" : "steps");
      if (times != 1) mean(steps, fmt::format("{:.9g}", 1 / (times * epochs)));
    }
    if (evaluates() && number("evals_per_epoch", 0) <= 0 && !has("eval_steps")) usual("eval_strategy", "epoch");
    if (evaluates() && has("eval_steps")) usual("eval_strategy", "steps");
    if (!evaluates()) {
      handle("eval_strategy");
      handle("evaluation_strategy");
      handle("eval_steps");
    }
    if (number("saves_per_epoch", 0) <= 0 && !has("save_steps")) usual("save_strategy", "epoch");
  }
  bool evaluates() const { return number("val_set_size", 0) > 0 || has("test_datasets"); }

  void read_method() {
    usual("finetuning_type", "full");
    if (is_on("lora_target_linear")) handle("lora_target_modules");
    if (has("micro_batch_size") && has("batch_size")) {
      handle("batch_size");
      const double steps = number("batch_size", 1) / number("micro_batch_size", 1);
      if (!has("gradient_accumulation_steps") && steps >= 1)
        mean("gradient_accumulation_steps", fmt::format("{:.0f}", steps));
    }
    if (is_on("reward_model")) {
      handle("reward_model");
      mean("stage", "rm");
    }
    const std::string checkpointing = text("gradient_checkpointing");
    if (checkpointing == "offload" || checkpointing == "offload_disk") {
      handle("gradient_checkpointing");
      mean("gradient_checkpointing", "true");
    }
    if (const std::string length = text("excess_length_strategy"); !length.empty()) {
      handle("excess_length_strategy");
      mean("overlength", length == "truncate" ? "cut" : length == "raise" ? "error" : length);
    }
    if (has("wandb_project")) usual("report_to", "wandb");
  }

  void read_template() {
    const std::string name = text("chat_template");
    if (name.empty()) return;
    if (is_own_template(name)) {
      handle("chat_template");
      if (name != "tokenizer_default")
        info("{}: chat_template: {} is the family's own form, so the model's own template is used",
             where(at("chat_template")), name);
    } else if (name == "phi_3" || name == "phi_35") {
      handle("chat_template");
      mean("template", "phi3");
    }
  }

  void read_plugins() {
    handle("plugins");
    const YAML::Node list = at("plugins");
    if (!list.IsDefined() || !list.IsSequence()) return;
    for (const auto& item : list) {
      const std::string name = item.IsScalar() ? item.Scalar() : "?";
      const auto is = [&](const char* word) { return name.find(word) != std::string::npos; };
      if (is("cut_cross_entropy") || is("liger") || is("kernels") || is("expert_parallel"))
        continue;  // the same results, computed otherwise
      throw UserError("{}: the plugin '{}' is not available; remove it if the run does not need what it does",
                      where(item), name);
    }
  }

  // The tokenizer's own special tokens are used. Only a token that ends a text could change what is trained.
  void read_tokens() {
    handle("special_tokens");
    const YAML::Node map = at("special_tokens");
    if (map.IsDefined() && map.IsMap() && map["eos_token"].IsDefined() && map["eos_token"].IsScalar())
      mean("eos_token", map["eos_token"].Scalar());
    handle("eot_tokens");  // the chat template's end-of-turn tokens are found
  }

  void read_usual() {
    usual("num_train_epochs", "1");
    usual("per_device_train_batch_size", "1");
    usual("gradient_accumulation_steps", "1");
    usual("lr_scheduler_type", "cosine");
    usual("overlength", "drop");
    if (!has("warmup_steps") && !has("warmup_ratio")) usual("warmup_ratio", "0.03");
  }

  const YAML::Node& root_;
  std::string file_;
  Dialect out_;
};

}  // namespace

bool is_axolotl(const YAML::Node& root) {
  auto has = [&](const char* key) { return root[key].IsDefined(); };
  const YAML::Node sets = root["datasets"];
  if (sets.IsDefined() && sets.IsSequence() && sets.size() > 0 && sets[0].IsMap() && sets[0]["path"].IsDefined())
    return true;
  return has("base_model") && (has("micro_batch_size") || has("sequence_len"));
}

Dialect read_axolotl(const YAML::Node& root, const std::string& file) {
  return AxolotlReader(root, file).read();
}

}  // namespace fettle
