#include "config/foreign/axolotl/sets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "config/value.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Reads one data set, with Axolotl's defaults.
class Set {
 public:
  using Rows = AxolotlSets::Rows;
  Set(const YAML::Node& set, const std::string& file, Rows rows) : set_(set), file_(file), rows_(rows) {}

  ordered_json read() {
    if (!set_["path"].IsDefined()) throw UserError("{}: found a data set without `path`; add it", where(set_));
    refuse_sharegpt();
    refuse_unknown_keys();
    read_place();
    const YAML::Node type = set_["type"];
    const std::string name = text(set_, "type");
    if (type.IsDefined() && type.IsMap()) {
      read_prompt(type);
    } else if (name == "alpaca") {
      entry_["formatting"] = "alpaca_prompt";
    } else if (name.starts_with("alpaca:")) {
      read_alpaca_style(name.substr(name.find(':') + 1));
    } else if (name == "completion") {
      entry_["formatting"] = "text";
      if (!text(set_, "field").empty()) columns_["text"] = text(set_, "field");
    } else if (name.starts_with("chat_template") || name == "bradley_terry.chat_template") {
      read_conversation();
    } else if (read_preferences(name)) {
      // read_preferences has set the columns.
    } else if (!name.empty()) {
      throw UserError(
          "{}: the data set type '{}' is not available; use chat_template, alpaca, completion or a custom prompt "
          "(`type` as a map), or describe the rows in dataset_info.json",
          where(set_), name);
    } else if (type.IsDefined() && !type.IsNull() && !type.IsScalar()) {
      throw UserError("{}: type: found {}, wanted a name or a map", where(type), describe_node(type));
    }
    if (!columns_.empty()) entry_["columns"] = columns_;
    if (!tags_.empty()) entry_["tags"] = tags_;
    return entry_;
  }
  bool is_conversation() const { return is_conversation_; }
  // Returns the template that the type names, such as chatml; "" when it names none.
  const std::string& named_template() const { return template_; }

  // Reads an item of pretraining_dataset.
  ordered_json read_texts() {
    static const std::set<std::string> kKnown = {"path",        "name",  "split",      "type",
                                                 "text_column", "field", "data_files", "trust_remote_code"};
    if (!set_["path"].IsDefined()) throw UserError("{}: found a data set without `path`; add it", where(set_));
    refuse_unknown_keys(kKnown);
    if (const std::string type = text(set_, "type"); !type.empty() && type != "pretrain" && type != "completion")
      throw UserError("{}: the type '{}' of pretraining_dataset is not available; use pretrain", where(set_), type);
    read_place();
    entry_["formatting"] = "text";
    for (const char* key : {"text_column", "field"})
      if (const std::string column = text(set_, key); !column.empty()) entry_["columns"] = {{"text", column}};
    return entry_;
  }

 private:
  static std::string text(const YAML::Node& map, const char* key) {
    if (!map.IsDefined() || !map.IsMap()) return "";
    const YAML::Node node = map[key];
    return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
  }
  std::string where(const YAML::Node& node) const { return fmt::format("{}:{}", file_, node.Mark().line + 1); }

  void refuse_unknown_keys(const std::set<std::string>& known = known_keys()) const {
    for (const auto& pair : set_)
      if (!known.contains(pair.first.Scalar()) && !pair.second.IsNull())
        throw UserError("{}: the data set key '{}' is not available; describe the columns in dataset_info.json",
                        where(pair.first), pair.first.Scalar());
  }

  static const std::set<std::string>& known_keys() {
    static const std::set<std::string> kKnown = {"path",
                                                 "type",
                                                 "split",
                                                 "name",
                                                 "data_files",
                                                 "field",
                                                 "field_messages",
                                                 "field_tools",
                                                 "revision",
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
                                                 "train_on_eot",
                                                 "trust_remote_code",
                                                 "chat_template"};
    return kKnown;
  }

  // The former type `sharegpt` rendered rows with a template of another library, which `conversation` named.
  void refuse_sharegpt() const {
    const std::string type = text(set_, "type"), conversation = text(set_, "conversation");
    if (!type.starts_with("sharegpt")) return;
    throw UserError(
        "{}: Axolotl has replaced the data set type '{}'; write `type: chat_template`, which reads rows of ShareGPT "
        "too, and set chat_template to {}",
        where(set_["type"]), type,
        conversation.empty() ? "the template, or to tokenizer_default for the model's own" : conversation);
  }

  // Reads where the rows are.
  void read_place() {
    std::string path = text(set_, "path");
    const std::string revision = text(set_, "revision");
    std::error_code unknown;
    const bool loader = path == "json" || path == "csv" || path == "parquet";
    if (!revision.empty() && !loader && !std::filesystem::exists(path, unknown)) path += "@" + revision;
    entry_ = {{"hf_hub_url", path}};
    if (const YAML::Node files = set_["data_files"]; files.IsDefined() && !files.IsNull()) {
      ordered_json names = ordered_json::array();
      const auto take = [&](const YAML::Node& file) {
        if (!file.IsScalar())
          throw UserError("{}: data_files: found {}, wanted a path or a list of paths", where(files),
                          describe_node(file));
        names.push_back(file.Scalar());
      };
      if (files.IsSequence())
        for (const auto& file : files) take(file);
      else
        take(files);
      if (names.empty()) throw UserError("{}: data_files is empty; name a file, or remove the key", where(files));
      if (loader) entry_ = ordered_json::object();
      entry_[loader ? "file_name" : "file"] = names.size() == 1 ? names[0] : names;
    }
    if (!text(set_, "split").empty()) entry_["split"] = text(set_, "split");
    if (!text(set_, "name").empty()) entry_["subset"] = text(set_, "name");
  }

  // Reads `type: alpaca:STYLE`, such as `alpaca:chat`: Alpaca's rows with the prompt text of another style.
  void read_alpaca_style(const std::string& style) {
    entry_["formatting"] = "alpaca_prompt";
    entry_["prompt"] = {{"style", style}};
  }

  // Reads a custom prompt, whose `type` is a map.
  void read_prompt(const YAML::Node& type) {
    static const std::map<std::string, const char*> kColumns = {{"field_instruction", "prompt"},
                                                                {"field_input", "query"},
                                                                {"field_output", "response"},
                                                                {"field_system", "system"}};
    static const std::set<std::string> kTexts = {"format", "no_input_format", "system_format", "system_prompt"};
    entry_["formatting"] = "alpaca_prompt";
    entry_["prompt"] = ordered_json::object();
    std::vector<std::string> others;
    for (const auto& pair : type) {
      const std::string key = pair.first.Scalar();
      if (pair.second.IsNull()) continue;
      const auto column = kColumns.find(key);
      const bool known = column != kColumns.end() || kTexts.contains(key);
      if (known && !pair.second.IsScalar())
        throw UserError("{}: type.{}: found {}, wanted a text", where(pair.first), key, describe_node(pair.second));
      if (column != kColumns.end())
        columns_[column->second] = pair.second.Scalar();
      else if (known)
        entry_["prompt"][key] = pair.second.Scalar();
      else
        others.push_back(key);
    }
    if (rows_ == Rows::kPairs || !others.empty())
      throw UserError(
          "{}: a custom prompt (`type` as a map) {}; describe the rows in dataset_info.json, or use type: "
          "chat_template",
          where(type),
          rows_ == Rows::kPairs ? "is not available for preference pairs"
                                : fmt::format("with {} is not available", fmt::join(others, ", ")));
  }

  // Reads `type: TEMPLATE.FORM`, such as `chatml.intel`: the rows have the columns of a published data set. Returns
  // false for other types. If Fettle cannot detect the columns by itself, sets columns_ and entry_.
  bool read_preferences(const std::string& type) {
    const auto dot = type.find('.');
    const std::string style = type.substr(0, dot), form = dot == std::string::npos ? "" : type.substr(dot + 1);
    if ((style != "chatml" && style != "llama3") || rows_ == Rows::kReplies) return false;
    static const std::set<std::string> kFound[] = {
        {"intel", "icr", "prompt_pairs", "ultra", "argilla_chat"},  // for preference pairs
        {"prompt_pairs", "ultra"}};                                 // for rated replies
    const bool rated = rows_ == Rows::kRated;
    if (kFound[rated].contains(form)) {
      // Fettle detects the columns of these forms.
    } else if (form == "argilla" && !rated) {
      columns_ = {{"chosen", "chosen_response"}, {"rejected", "rejected_response"}};
      entry_["ranking"] = true;
    } else if ((form == "argilla" || form == "intel") && rated) {
      entry_["formatting"] = "alpaca";
      columns_ = {
          {"prompt", form == "intel" ? "question" : "instruction"}, {"response", "completion"}, {"system", "system"}};
    } else if (form == "argilla_chat" && rated) {
      entry_["formatting"] = "openai";
      columns_["messages"] = "completion";
    } else {
      return false;
    }
    is_conversation_ = true;
    template_ = style;
    return true;
  }

  void read_conversation() {
    is_conversation_ = true;
    check_training();
    check_thoughts();
    if (bool_from_text(text(set_, "drop_system_message")).value_or(false)) entry_["drop_system"] = true;
    for (const auto& [key, column] : {std::pair{"field_chosen", "chosen"}, {"field_rejected", "rejected"}})
      if (const std::string name = text(set_, key); !name.empty() && name != column) columns_[column] = name;
    if (!columns_.empty()) entry_["ranking"] = true;
    const YAML::Node mappings = set_["message_property_mappings"];
    if (mappings.IsDefined() && mappings.IsMap())
      for (const auto& pair : mappings)
        if (const std::string name = pair.first.Scalar();
            name != "role" && name != "content" && pair.second.Scalar() != name)
          throw UserError(
              "{}: message_property_mappings.{}: only role and content can have other names; rename the field in the "
              "rows",
              where(pair.first), name);
    std::string role = text(mappings, "role"), content = text(mappings, "content");
    if (role.empty()) role = text(set_, "message_field_role");
    if (content.empty()) content = text(set_, "message_field_content");
    const std::string list = text(set_, "field_messages");
    const std::string spans = text(set_, "message_field_training_detail");
    const std::string tools = text(set_, "field_tools");
    const bool usual_spans = spans.empty() || spans == "train_detail";
    const bool usual_names = role.empty() && content.empty() && usual_spans && has_usual_roles();
    const std::string type = text(set_, "type");
    const bool has_list = !type.starts_with("chat_template.argilla") && type != "bradley_terry.chat_template";
    // Names that are given are written even if they are usual ones: a row may have several lists of messages.
    if (has_list && (!usual_names || !list.empty() || !tools.empty()))
      columns_["messages"] = list.empty() ? "messages" : list;
    if (!tools.empty()) columns_["tools"] = tools;
    if (usual_names) return;  // the first message shows its names
    if (has_list) {
      entry_["formatting"] = "sharegpt";  // so only the columns that are named are read
      columns_["system"] = "system";
      columns_["tools"] = tools.empty() ? "tools" : tools;
    }
    tags_["role_tag"] = role.empty() ? "role" : role;
    tags_["content_tag"] = content.empty() ? "content" : content;
    if (!usual_spans) tags_["spans_tag"] = spans;
    read_roles();
  }

  // Returns the names that the rows use for a role.
  std::vector<std::string> words(const char* role) const {
    const YAML::Node roles = set_["roles"];
    if (!roles.IsDefined() || !roles.IsMap() || !roles[role].IsDefined() || !roles[role].IsSequence()) return {};
    std::vector<std::string> out;
    for (const auto& word : roles[role]) out.push_back(word.Scalar());
    return out;
  }

  bool has_usual_roles() const {
    return has_usual_names("user") && has_usual_names("assistant") && has_usual_names("system") &&
           has_usual_names("tool");
  }

  // Returns whether all names of a role are usual ones: user or human, assistant or gpt, system, tool. Fettle
  // understands these names even if no tags are set.
  bool has_usual_names(const std::string& role) const {
    const std::string also = role == "user" ? "human" : role == "assistant" ? "gpt" : "";
    for (const std::string& word : words(role.c_str()))
      if (word != role && word != also) return false;
    return true;
  }

  // Sets the tags of the roles whose names are not usual.
  void read_roles() {
    for (const auto& [tag, role] : {std::pair{"user_tag", "user"},
                                    {"assistant_tag", "assistant"},
                                    {"system_tag", "system"},
                                    {"observation_tag", "tool"}}) {
      const std::vector<std::string> known = words(role);
      if (has_usual_names(role)) continue;
      if (known.size() == 1)
        tags_[tag] = known[0];
      else
        tags_[tag] = known;
    }
  }

  // Throws when roles_to_train, train_on_eos or train_on_eot asks for anything but the assistant's turns with their
  // end-of-turn tokens. An empty roles_to_train means that only turns with a mark are trained. Also throws when
  // message_field_training is neither train nor training. (This key is the name of a field. In each message, the field
  // says whether the message is trained.)
  void check_training() {
    if (const std::string field = text(set_, "message_field_training");
        !field.empty() && field != "train" && field != "training")
      throw UserError("{}: message_field_training: found '{}', wanted train or training; rename the field in the rows",
                      where(set_["message_field_training"]), field);
    if (const YAML::Node roles = set_["roles_to_train"]; roles.IsDefined() && !roles.IsNull()) {
      const std::vector<std::string> own = words("assistant");
      const bool marked =
          !text(set_, "message_field_training").empty() || !text(set_, "message_field_training_detail").empty();
      bool usual = roles.IsSequence() && (roles.size() > 0 || marked);
      if (roles.IsSequence() && roles.size() == 0 && marked) entry_["only_marked"] = true;
      if (roles.IsSequence())
        for (const auto& role : roles)
          usual = usual && (role.Scalar() == "assistant" || role.Scalar() == "gpt" ||
                            std::ranges::find(own, role.Scalar()) != own.end());
      if (!usual)
        throw UserError(
            "{}: roles_to_train: only the assistant's turns can be chosen; `train_on_inputs: true` also trains the "
            "other roles, and `train: false` on a message leaves a reply out; an empty list needs "
            "message_field_training",
            where(roles));
    }
    for (const char* key : {"train_on_eos", "train_on_eot"})
      if (const std::string value = text(set_, key); !value.empty() && value != "turn")
        throw UserError(
            "{}: {}: found '{}', wanted 'turn'; Fettle trains each reply with the token that ends it, and no other end "
            "tokens",
            where(set_[key]), key, value);
  }

  // Throws when the rows and the template have different names for the field of thoughts. (The chat template gets the
  // fields of a message under the names that they have in the rows.)
  void check_thoughts() const {
    const std::string usual = "reasoning_content";
    std::string from = text(set_, "field_thinking"), to = text(set_, "template_thinking_key");
    if (from.empty()) from = usual;
    if (to.empty()) to = usual;
    if (from != to)
      throw UserError(
          "{}: field_thinking is {}, but template_thinking_key is {}; Fettle cannot rename fields of messages; rename "
          "the field in the rows to {}, and set field_thinking to {}",
          where(set_), from, to, to, to);
  }

  const YAML::Node& set_;
  const std::string& file_;
  Rows rows_;
  bool is_conversation_ = false;
  std::string template_;
  ordered_json entry_, columns_ = ordered_json::object(), tags_ = ordered_json::object();
};

}  // namespace

bool is_short_hub_name(const std::string& name) {
  std::error_code none;
  return !name.empty() && name.find_first_of("/.*?[#{") == std::string::npos && !std::filesystem::exists(name, none) &&
         !std::filesystem::exists("data/dataset_info.json", none);
}

std::string AxolotlSets::texts(const YAML::Node& set) {
  return Set(set, file_, Rows::kReplies).read_texts().dump();
}

std::string AxolotlSets::entry(const YAML::Node& node) {
  Set set(node, file_, rows_);
  const ordered_json entry = set.read();
  if (set.is_conversation()) {
    const YAML::Node name = node["chat_template"];
    const bool named = name.IsDefined() && name.IsScalar();
    templates_.emplace_back(named ? name.Scalar() : set.named_template(),
                            fmt::format("{}:{}", file_, (named ? name : node).Mark().line + 1));
  }
  const ordered_json& place = entry.begin().value();
  const bool bare = entry.size() == 1 && place.is_string() && !is_short_hub_name(place.get<std::string>());
  return bare ? place.get<std::string>() : entry.dump();
}

}  // namespace fettle
