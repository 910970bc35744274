#include "config/foreign/torchtune_sets.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/keys.h"
#include "config/value.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Reads one data set.
class TorchtuneSet {
 public:
  TorchtuneSet(const YAML::Node& set, const std::string& file, Dialect& out) : set_(set), file_(file), out_(out) {
    component_ = text_of(set["_component_"]);
    component_.erase(0, component_.rfind('.') + 1);
  }

  // Reads the keys that also hold for other rows. torchtune's Alpaca sets train the prompts by default.
  void read_training() {
    for (const auto& [from, to] : {std::pair{"packed", "packing"}, {"train_on_input", "train_on_prompt"}})
      if (const YAML::Node value = set_[from]; is_given(value)) out_.meant.emplace_back(to, value);
    if (component_ == "text_completion_dataset") {
      out_.meant.emplace_back("stage", YAML::Node("pt"));
      out_.usual.emplace_back("packing", YAML::Node("false"));
    }
    if (!is_alpaca()) return;
    out_.usual.emplace_back("train_on_prompt", YAML::Node("true"));
    info(
        "{}: {} puts Alpaca's text around each prompt, but Fettle uses the chat template alone; formatting: "
        "alpaca_prompt in an entry of dataset_info.json uses Alpaca's text alone",
        place_of(file_, set_["_component_"]), component_);
  }

  // Returns the set as an entry of dataset_info.json; "" if only torchtune knows where the rows are.
  std::string entry() {
    const std::string source = text_of(set_["source"]);
    if (source.empty() && !is_alpaca()) {
      warn("{}: dataset: Fettle does not know the rows of {}; set dataset to the rows", place_of(file_, set_),
           component_.empty() ? "a data set without source" : component_);
      return "";
    }
    const bool loader = source == "json" || source == "csv" || source == "parquet" || source == "text";
    if (!loader)
      entry_["hf_hub_url"] = !source.empty()                  ? source
                             : component_ == "alpaca_dataset" ? "tatsu-lab/alpaca"
                                                              : "yahma/alpaca-cleaned";
    for (const auto& pair : set_)
      if (is_given(pair.second)) read_key(pair.first, pair.second, loader);
    if (loader && !entry_.contains("file_name"))
      throw UserError("{}: dataset: source: {} needs data_files; add the files", place_of(file_, set_["source"]),
                      source);
    read_rows();
    return entry_.dump();
  }

 private:
  static bool is_given(const YAML::Node& node) { return node.IsDefined() && !node.IsNull(); }
  bool is_alpaca() const { return component_ == "alpaca_dataset" || component_ == "alpaca_cleaned_dataset"; }

  void read_key(const YAML::Node& name, const YAML::Node& value, bool loader) {
    static const std::set<std::string> kElsewhere = {"_component_",        "source",           "packed",
                                                     "train_on_input",     "column_map",       "conversation_column",
                                                     "conversation_style", "split_across_pack"};
    const std::string key = name.Scalar();
    if (kElsewhere.contains(key) || (key == "add_eos" && is_on(value))) return;
    if (key == "data_files") {
      entry_[loader ? "file_name" : "file"] = files(value);
    } else if (key == "split") {
      if (text_of(value) != "train") entry_["split"] = text_of(value);
    } else if (key == "name") {
      entry_["subset"] = text_of(value);
    } else if (key == "column" && component_ == "text_completion_dataset") {
      entry_["columns"]["text"] = text_of(value);
    } else if (key == "new_system_prompt") {
      out_.meant.emplace_back("default_system", value);
      entry_["drop_system"] = true;
    } else {
      throw UserError(
          "{}: dataset.{} is not available; describe the rows in dataset_info.json, and set dataset to the entry",
          place_of(file_, name), key);
    }
  }

  ordered_json files(const YAML::Node& value) const {
    ordered_json names = ordered_json::array();
    if (value.IsSequence())
      for (const auto& file : value) names.push_back(text_of(file));
    else
      names.push_back(text_of(value));
    for (const auto& name : names)
      if (name == "")
        throw UserError("{}: dataset.data_files: found {}, wanted a path or a list of paths", place_of(file_, value),
                        describe_node(value));
    return names.size() == 1 ? names[0] : names;
  }

  // Reads the names of the columns, and the form of conversations. column_map maps torchtune's names to those of the
  // rows.
  void read_rows() {
    if (component_ == "text_completion_dataset") entry_["formatting"] = "text";
    const std::string column = text_of(set_["conversation_column"]), style = text_of(set_["conversation_style"]);
    if (!style.empty() && style != "sharegpt" && style != "openai")
      throw UserError("{}: dataset.conversation_style: found '{}', wanted sharegpt or openai",
                      place_of(file_, set_["conversation_style"]), style);
    if (!style.empty()) entry_["formatting"] = style;
    if (!column.empty()) entry_["columns"]["messages"] = column;
    const bool pairs = component_ == "preference_dataset", instructs = component_ == "instruct_dataset";
    const YAML::Node map = set_["column_map"];
    if (!is_given(map) && !instructs) return;
    if (is_given(map) && (!map.IsMap() || !(pairs || instructs || is_alpaca())))
      throw UserError("{}: dataset.column_map of {} is not available; describe the rows in dataset_info.json",
                      place_of(file_, map), component_);
    using Names = std::vector<std::pair<const char*, const char*>>;  // torchtune's name, and Fettle's
    const Names names = pairs       ? Names{{"chosen", "chosen"}, {"rejected", "rejected"}}
                        : instructs ? Names{{"input", "prompt"}, {"output", "response"}}
                                    : Names{{"instruction", "prompt"}, {"input", "query"}, {"output", "response"}};
    for (const auto& [theirs, ours] : names) {
      const std::string renamed = is_given(map) ? text_of(map[theirs]) : "";
      entry_["columns"][ours] = renamed.empty() ? theirs : renamed;
    }
    if (pairs)
      entry_["ranking"] = true;
    else
      entry_["formatting"] = "alpaca";
  }

  const YAML::Node& set_;
  const std::string& file_;
  Dialect& out_;
  std::string component_;  // such as alpaca_dataset
  ordered_json entry_ = ordered_json::object();
};

// Returns the value without its place, which is not in the recipe.
YAML::Node without_place(const YAML::Node& node) {
  if (node.IsScalar()) return YAML::Node(node.Scalar());
  YAML::Node out(node.Type());
  if (node.IsSequence())
    for (const auto& item : node) out.push_back(without_place(item));
  if (node.IsMap())
    for (const auto& pair : node) out[text_of(pair.first)] = without_place(pair.second);
  return out;
}

// Moves the overrides dataset.KEY into the data set `set`, where each of them replaces one key. Returns their names.
std::set<std::string> merge_overrides(YAML::Node set, const YAML::Node& root, const YAML::Node& all) {
  static constexpr std::string_view kStart = "dataset.";
  std::set<std::string> names;
  for (const auto& pair : all) {
    const std::string name = text_of(pair.first);
    if (!name.starts_with(kStart) || (root[name].IsDefined() && pair.second.is(root[name]))) continue;
    set[name.substr(kStart.size())] = without_place(pair.second);
    names.insert(name);
  }
  return names;
}

}  // namespace

void read_torchtune_sets(const YAML::Node& root, const YAML::Node& all, const std::string& file, Dialect& out) {
  const YAML::Node given = root["dataset"];
  const bool list = given.IsDefined() && given.IsSequence() && given.size() > 0 && given[0].IsMap();
  if (!list && !(given.IsDefined() && given.IsMap())) return;
  const std::set<std::string> merged = list ? std::set<std::string>{} : merge_overrides(given, root, all);
  YAML::Node others(YAML::NodeType::Map);
  for (const auto& pair : all)
    if (!merged.contains(text_of(pair.first))) others[pair.first] = pair.second;
  const bool replaced = is_overridden(root, others, "dataset");
  YAML::Node entries(YAML::NodeType::Sequence);
  const auto read = [&](const YAML::Node& set) {
    TorchtuneSet one(set, file, out);
    one.read_training();
    if (replaced) return;
    if (const std::string entry = one.entry(); !entry.empty()) entries.push_back(entry);
  };
  if (list)
    for (const auto& set : given) read(set);
  else
    read(given);
  out.handled.insert("dataset");
  for (const std::string& name : merged) {
    const Key* key = find_key(name);  // packed and train_on_input remain overrides
    if (!replaced && (key == nullptr || key->name == "dataset")) out.handled_words.insert(name);
  }
  if (entries.size() > 0) out.meant.emplace_back("dataset", entries);
}

}  // namespace fettle
