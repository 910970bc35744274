#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/foreign/dialect.h"
#include "config/foreign/settings_file.h"
#include "config/foreign/tables.h"
#include "config/keys.h"
#include "config/known_keys.h"
#include "config/nearest.h"
#include "config/value.h"
#include "config/yaml_text.h"

namespace fettle {
namespace {

std::string read_text_file(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw UserError("{}: found a folder, wanted a recipe (a yaml file)", file.string());
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UserError("{}: cannot read the recipe: {}", file.string(), std::strerror(errno));
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

YAML::Node yaml_of(const std::filesystem::path& file) {
  try {
    return parse_yaml(read_text_file(file));
  } catch (const YAML::Exception& broken) {
    throw UserError("{}:{}: not valid yaml: {}", file.string(), broken.mark.line + 1, broken.msg);
  }
}

// Reads the keys of a file, or the overrides, into the recipe. Remembers where each key was set.
class Reader {
 public:
  struct Wish {
    std::string value, by, where;  // by: the other tool's key
    std::string word = "";         // the value in the other tool, if it differs
    bool overrides = false;        // an override has the wish
  };
  using Wishes = std::map<std::string, Wish>;  // keyed by the recipe's key

  // `once` is true for a file. `wishes` are those of the file, for the reader of the overrides.
  Reader(Recipe& recipe, bool once, Wishes wishes = {}) : recipe_(recipe), once_(once), wishes_(std::move(wishes)) {}

  void take(const std::string& name, const GivenValue& given) {
    if (given.node.IsSequence() && take_parts(name, given)) return;
    if (given.node.IsMap() && is_section(name)) return take_inner(name, given);
    if (const Key* key = find_key(name); key && !has_own_translation(name, given)) {
      take_key(*key, name, given);
    } else if (take_entry(name, given) || take_translation(name, given)) {
      return;
    } else if (const auto settings = read_settings(name, given, recipe_.places.file());
               settings && !given.node.IsNull()) {
      take_settings(*settings, name, given);
    } else if (const WithoutEffect* row = find_without_effect(name)) {
      accept(*row, name, given);
    } else if (const NotAvailable* missing = find_not_available(name)) {
      refuse_unless_neutral(*missing, name, given);
    } else if ((given.node.IsMap() || given.node.IsNull()) && begins_known_key(name)) {
      take_inner(name, given);
    } else if (const YAML::Node map = json_map(given.node); map.IsMap() && begins_known_key(name)) {
      take_inner(name, {map, given.where}, true);
    } else {
      refuse_unknown(name, given);
    }
  }

  // Reads an override.
  void take_override(const std::string& name, const GivenValue& given) {
    overriding_ = true;
    take(name, given);
    overriding_ = false;
  }

  Wishes wishes() const { return wishes_; }

  // Sets the keys that the settings of DeepSpeed, FSDP or accelerate and the rows with `if_unset` ask for. Keys that
  // the recipe sets keep their values. `of_offload` chooses between the keys offload_* and all others.
  void grant_wishes(bool of_offload) {
    const Wishes wishes = wishes_;
    for (const auto& [key, wish] : wishes) {
      if (key.starts_with("offload_") != of_offload) continue;
      if (key == "lr_scheduler_type" && recipe_.places.has(key) && recipe_.lr_scheduler_type != wish.value)
        warn("{}: {} has a scheduler ({}), which DeepSpeed would use; Fettle uses lr_scheduler_type: {}", wish.where,
             wish.by, wish.word == wish.value ? wish.word : fmt::format("{}, here {}", wish.word, wish.value),
             recipe_.lr_scheduler_type);
      if (recipe_.places.has(key.substr(0, key.find('.')))) continue;
      if (!suits(key)) {
        if (key == "offload_dir")
          info("{}: {} keeps the optimizer state in {}, but offload_dir does not work with {}", wish.where, wish.by,
               wish.value, recipe_.finetuning_type == "lora" ? "finetuning_type: lora" : "optim: sgd without momentum");
        continue;
      }
      overriding_ = wish.overrides;
      take(key, {YAML::Node(wish.value), wish.where});
      overriding_ = false;
      info("{}: {} sets {} to {}", wish.where, wish.by, key, wish.value == "true" ? "on" : wish.value);
    }
  }

  // Prints one warning that lists keys without effect. Keys with a reason in the table are not in this list, because
  // accept() has already printed a warning about each of them.
  void report_idle() const {
    if (!idle_.empty()) warn("{}: these keys have no effect here: {}", idle_where_, fmt::join(idle_, ", "));
  }

  // Sets the keys that the recipe of another tool means.
  void take_meant(const Dialect::Values& meant, const std::string& place) {
    for (const auto& [key, value] : meant) {
      const bool of_file = once_ && !value.Mark().is_null();
      take(key, {value, of_file ? fmt::format("{}:{}", place, value.Mark().line + 1) : place});
    }
  }

  // Sets the tool's defaults for keys that the recipe does not set.
  void take_usual(const Dialect& dialect, const std::string& place) {
    std::vector<std::string> taken;
    for (const auto& [key, value] : dialect.usual) {
      if (recipe_.places.has(key)) continue;
      if (key == "save_strategy" && recipe_.places.has("save_steps") && recipe_.save_steps != 0) continue;
      if ((key == "eval_strategy" || key == "eval_steps") && !suits("eval_strategy")) continue;
      take(key, {value, place});
      recipe_.places.set(key, place, SetBy::kTool);
      taken.push_back(fmt::format("{}: {}", key, value.Scalar()));
    }
    const std::string defaults = fmt::format("{}", fmt::join(taken, ", "));
    info("{}: read as a recipe of {}{}", place, dialect.tool,
         taken.empty() ? "" : ", with the defaults of that tool: " + defaults);
  }

 private:
  // Returns whether the recipe can take this key from another tool's settings. bf16 and fp16 exclude each other.
  // warmup_steps would overrule warmup_ratio. min_lr_rate belongs to one schedule, and min_lr excludes it.
  // eval_strategy needs rows to evaluate on. offload_dir is for trained weights and rules with state; if it is not
  // taken, offload_optimizer is. offload_dir_weights needs offload_dir, and a run with both float32 and 16-bit weights.
  bool suits(const std::string& key) const {
    if (key == "bf16") return !recipe_.fp16;
    if (key == "fp16") return !recipe_.bf16 && !recipe_.pure_bf16;
    if (key == "warmup_steps") return recipe_.warmup_ratio == 0;
    if (key == "min_lr_rate") return recipe_.lr_scheduler_type == "cosine_with_min_lr" && !recipe_.min_lr;
    if (key == "eval_strategy") return recipe_.val_size > 0 || !recipe_.eval_dataset.empty();
    if (key == "offload_dir")
      return recipe_.finetuning_type != "lora" && (recipe_.optim != "sgd" || recipe_.optim_args.contains("momentum"));
    if (key == "offload_optimizer") return recipe_.offload_dir.empty();
    return key != "offload_dir_weights" ||
           (!recipe_.offload_dir.empty() && (recipe_.bf16 || recipe_.fp16) && !recipe_.pure_bf16);
  }
  // Returns whether a value of one of Fettle's own keys must be translated, such as `stage: orpo`.
  static bool has_own_translation(const std::string& name, const GivenValue& given) {
    return given.node.IsScalar() && std::ranges::any_of(translations(), [&](const Translation& row) {
             return row.key == name && row.value == given.node.Scalar();
           });
  }

  void take_key(const Key& key, const std::string& name, const GivenValue& given) {
    // In torchtune's recipes, lr_scheduler, optimizer and dataset are maps. The entries of a map are read one by one.
    if (given.node.IsMap() && begins_known_key(name) && !is_map(key)) {
      take_inner(name, given);
      return;
    }
    const bool sets = key.name == "dataset" || key.name == "eval_dataset";
    set(key, name, sets ? GivenValue{dataset_items(given), given.where} : given);
  }

  // A key without a value counts as not given. As an override, it restores the default.
  void set(const Key& key, const std::string& name, const GivenValue& given) {
    if (given.node.IsNull()) {
      if (once_) return;
      set_value(recipe_, key, given);
      recipe_.places.erase(std::string(key.name));
      return;
    }
    const std::string before = value_text(recipe_, key);
    set_value(recipe_, key, given);
    remember(key, name, given, before != value_text(recipe_, key));
  }

  SetBy by_whom() const { return overriding_ ? SetBy::kOverride : SetBy::kRecipe; }

  bool take_entry(const std::string& name, const GivenValue& given) {
    auto dot = name.find('.');
    const Key* key = dot == std::string::npos ? nullptr : find_key(name.substr(0, dot));
    if (!key || !is_map(*key)) return false;
    set_entry(recipe_, *key, name.substr(dot + 1), given);
    recipe_.places.set(std::string(key->name), given.where, by_whom());
    return true;
  }

  bool take_translation(const std::string& name, const GivenValue& given) {
    std::vector<std::string_view> wanted;
    bool known = false;
    std::string text = given.node.IsScalar() ? given.node.Scalar() : "";
    for (const Translation& row : translations()) {
      if (row.key != name) continue;
      known = true;
      auto truth = bool_from_text(text);
      const std::string_view start = row.value.ends_with('*') ? row.value.substr(0, row.value.size() - 1) : "";
      const bool begins = row.value.ends_with('*') && text.starts_with(start);
      bool fits = row.value == text || begins || (truth && row.value == (*truth ? "true" : "false"));
      if (fits && !given.node.IsMap() && !given.node.IsSequence()) {
        for (const auto& [key, value] : row.sets) {
          const YAML::Node rest = start.empty() ? given.node : YAML::Node(text.substr(start.size()));
          if (row.if_unset) {
            wishes_.insert({std::string(key), {std::string(value), name, given.where, "", overriding_}});
            continue;
          }
          const std::string outer = std::exchange(by_, by_.empty() ? name : by_);
          take(std::string(key), {value == "*" ? rest : YAML::Node(std::string(value)), given.where});
          by_ = outer;
        }
        return true;
      }
      if (!row.value.empty()) wanted.push_back(row.value);
    }
    if (!known || given.node.IsNull()) return known;
    throw UserError("{}: {}: found {}, wanted one of {}", given.where, name, describe_node(given.node),
                    fmt::join(wanted, ", "));
  }

  void take_settings(const Settings& settings, const std::string& name, const GivenValue& given) {
    for (const auto& [key, value] : settings.wishes)
      wishes_.insert(
          {key, {value, name, given.where, key == "lr_scheduler_type" ? settings.scheduler : value, overriding_}});
    for (const std::string& note : settings.notes) warn("{}: {}: {}", given.where, name, note);
    if (!settings.wishes.empty()) return;
    const WithoutEffect* row = find_without_effect(name);
    internal_check(row != nullptr, "the settings key {} is not in the table of keys without effect", name);
    if (settings.unread.empty()) return accept(*row, name, given);
    warn(
        "{}: {} has no effect here: {}; {} cannot be read; if that file asks for offload, set offload_optimizer or "
        "offload_param",
        given.where, name, row->reason, settings.unread);
  }

  // Reads optim_config.adamw_betas, a list with the values of adam_beta1 and adam_beta2. Returns false for other keys.
  bool take_parts(const std::string& name, const GivenValue& given) {
    if (name != "optim_config.adamw_betas" || given.node.size() != 2) return false;
    take("adam_beta1", {given.node[0], given.where});
    take("adam_beta2", {given.node[1], given.where});
    return true;
  }

  void accept(const WithoutEffect& row, const std::string& name, const GivenValue& given) {
    if (given.node.IsNull()) return;
    if (given.node.IsScalar() && !row.neutral.empty() && given.node.Scalar() == row.neutral) return;
    const auto truth = given.node.IsScalar() ? bool_from_text(given.node.Scalar()) : std::nullopt;
    if (truth && row.neutral == (*truth ? "true" : "false")) return;
    if (!row.reason.empty()) {
      warn("{}: {} has no effect here: {}", given.where, name, row.reason);
      return;
    }
    idle_.push_back(name);
    idle_where_ = recipe_.places.file().empty() || !once_ ? "overrides" : recipe_.places.file().string();
  }

  void refuse_unless_neutral(const NotAvailable& row, const std::string& name, const GivenValue& given) {
    if (given.node.IsNull() || ((given.node.IsMap() || given.node.IsSequence()) && given.node.size() == 0)) return;
    const bool one_item = given.node.IsSequence() && given.node.size() == 1 && given.node[0].IsScalar();
    std::string text = given.node.IsScalar() ? given.node.Scalar() : one_item ? given.node[0].Scalar() : "";
    auto truth = bool_from_text(text);
    for (std::string_view neutral : row.neutral) {
      bool same_number = neutral != "" && !text.empty() && std::isdigit(static_cast<unsigned char>(neutral.back())) &&
                         std::atof(text.c_str()) == std::atof(std::string(neutral).c_str()) &&
                         text.find_first_not_of("+-.0123456789e") == std::string::npos;
      if (neutral == text || same_number || (truth && neutral == (*truth ? "true" : "false"))) return;
    }
    std::string remedy = row.remedy.empty() ? "remove the key" : std::string(row.remedy);
    throw UserError("{}: {} is not available in this version; {}", given.where, name, remedy);
  }

  [[noreturn]] void refuse_unknown(const std::string& name, const GivenValue& given) {
    auto near = nearest(name, known_names());
    throw UserError("{}: unknown key '{}'{}", given.where, name,
                    near ? fmt::format("; did you mean '{}'?", *near) : "; the command's --help-keys lists all keys");
  }

  void remember(const Key& key, const std::string& name, const GivenValue& given, bool changed) {
    std::string canonical(key.name);
    const std::string& written = by_.empty() ? name : by_;
    auto [earlier, first] = given_as_.emplace(canonical, std::make_pair(written, given.where));
    if (once_ && !first && changed) {
      throw UserError("{}: {} is given twice with different values: as '{}' here, and as '{}' at {}; keep one of them",
                      given.where, key.name, written, earlier->second.first, earlier->second.second);
    }
    recipe_.places.set(canonical, given.where, by_whom());
  }

  // Returns the items of `dataset` or `eval_dataset`. An item that is a map is an entry of dataset_info.json and
  // becomes its JSON text. A YAML file becomes the data sets that it lists.
  static YAML::Node dataset_items(const GivenValue& given) {
    std::vector<YAML::Node> items;
    if (given.node.IsSequence())
      for (const auto& item : given.node) items.push_back(item);
    else
      items.push_back(given.node);
    YAML::Node out(YAML::NodeType::Sequence);
    bool changed = false;
    for (const YAML::Node& item : items) {
      const std::string text = item.IsScalar() ? item.Scalar() : "";
      std::error_code ignored;
      if (item.IsMap()) {
        changed = true;
        out.push_back(json_of(item).dump());
      } else if ((text.ends_with(".yaml") || text.ends_with(".yml")) &&
                 std::filesystem::is_regular_file(text, ignored)) {
        changed = true;
        for (const std::string& entry : listed_sets(yaml_of(text), text)) out.push_back(entry);
      } else {
        out.push_back(item);
      }
    }
    return changed ? out : given.node;
  }

  static nlohmann::ordered_json json_of(const YAML::Node& node) {
    if (node.IsMap()) {
      auto out = nlohmann::ordered_json::object();
      for (const auto& pair : node) out[describe_key(pair.first)] = json_of(pair.second);
      return out;
    }
    if (node.IsSequence()) {
      auto out = nlohmann::ordered_json::array();
      for (const auto& item : node) out.push_back(json_of(item));
      return out;
    }
    if (node.IsNull()) return nullptr;
    const std::string text = node.Scalar();
    if (text == "true" || text == "false") return text == "true";
    if (const std::optional<int64_t> number = digits_value(text)) return *number;
    return text;
  }

  // `is_text` is true if the map was a text, so that all of it is at given.where.
  void take_inner(const std::string& name, const GivenValue& given, bool is_text = false) {
    for (const auto& pair : given.node) {
      const std::string inner = describe_key(pair.first), nested = name + "." + inner;
      const GivenValue value{pair.second, is_text || overriding_ ? given.where : same_file(given.where, pair.first)};
      take(is_section(name) && !is_known(nested) ? inner : nested, value);
    }
  }

  // Returns whether the name is a section of Unsloth's recipes, which only groups keys.
  static bool is_section(const std::string& name) {
    return name == "data" || name == "training" || name == "lora" || name == "logging";
  }

  static bool is_known(const std::string& name) {
    const std::vector<std::string_view> names = known_names();
    return std::ranges::find(names, name) != names.end();
  }

  // Returns the map that a text such as '{"min_lr_rate": 0.1}' describes, an empty map for an empty text; otherwise a
  // null node.
  static YAML::Node json_map(const YAML::Node& node) {
    if (node.IsScalar() && node.Scalar().empty()) return YAML::Node(YAML::NodeType::Map);
    if (!node.IsScalar() || !node.Scalar().starts_with('{')) return {};
    try {
      return parse_yaml(node.Scalar());  // JSON is YAML too
    } catch (const YAML::Exception&) {
      return {};
    }
  }

  static std::string describe_key(const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : "?"; }

  static std::string same_file(const std::string& where, const YAML::Node& node) {
    auto colon = where.rfind(':');
    if (colon == std::string::npos) return where;
    return fmt::format("{}:{}", where.substr(0, colon), node.Mark().line + 1);
  }

  Recipe& recipe_;
  bool once_;  // true for files: a key that is given twice with different values is an error
  std::map<std::string, std::pair<std::string, std::string>> given_as_;
  Wishes wishes_;
  bool overriding_ = false;  // the value that is being read comes from an override
  std::string by_;           // the other tool's key whose translation is being read; empty: none
  std::vector<std::string> idle_;
  std::string idle_where_;
};

// Returns the content of the recipe; an empty map if the file is empty or there is no file.
YAML::Node root_of(const std::filesystem::path& file) {
  const YAML::Node root = file.empty() ? YAML::Node() : yaml_of(file);
  if (root.IsNull()) return YAML::Node(YAML::NodeType::Map);
  if (!root.IsMap()) throw UserError("{}: found {}, wanted lines of `key: value`", file.string(), describe_node(root));
  return root;
}

// Returns whether another key of LLaMA-Factory's recipe makes this key meaningless there.
bool is_overruled(const std::string& key, const YAML::Node& root, const std::string& where) {
  if (key == "packing") return is_on(root["neat_packing"]);
  if (key != "max_length" || !root["cutoff_len"].IsDefined() || root["cutoff_len"].IsNull()) return false;
  warn("{}: max_length has no effect here: cutoff_len limits the rows, and max_new_tokens the replies", where);
  return true;
}

// Returns whether the key is data_seed and repeats the seed of the run. `all` has the keys of the file and the
// overrides.
bool repeats_seed(const std::string& key, const YAML::Node& value, const YAML::Node& all) {
  if (key != "data_seed" || !value.IsScalar()) return false;
  const YAML::Node seed = all["seed"];
  const bool given = seed.IsDefined() && seed.IsScalar();
  return value.Scalar() == (given ? seed.Scalar() : std::to_string(Recipe{}.seed));
}

using Words = std::vector<std::pair<std::string, GivenValue>>;  // overrides by name, in order

// Reads the file. An override replaces a key of another tool that has the same name, so such keys are skipped. Returns
// the wishes of the file.
Reader::Wishes read_file(Recipe& recipe, const YAML::Node& root, const YAML::Node& all, const Dialect& dialect,
                         const Words& words) {
  const std::string file = recipe.places.file().string();
  Reader reader(recipe, true);
  for (const auto& pair : root) {
    std::string where = fmt::format("{}:{}", file, pair.first.Mark().line + 1);
    if (!pair.first.IsScalar())
      throw UserError("{}: found {} as a key, wanted a name", where, describe_node(pair.first));
    const std::string key = pair.first.Scalar();
    const auto replaces = [&](const auto& word) { return word.first == key; };
    if (dialect.handled.contains(key) || (!find_key(key) && std::ranges::any_of(words, replaces))) continue;
    if ((dialect.tool.empty() && is_overruled(key, root, where)) || repeats_seed(key, pair.second, all)) continue;
    reader.take(key, {pair.second, where});
  }
  reader.take_meant(dialect.meant, file);
  reader.report_idle();
  return reader.wishes();
}

// Returns the value of an override as YAML. For keys of type text, the value is the literal text, so that a prompt may
// contain colons and quotes. A value that begins like a list is read as one if the key takes_text_or_list. The word
// null means the default for all keys.
YAML::Node override_value(const std::string& name, const std::string& text, const std::string& where) {
  const Key* key = find_key(name);
  const bool list = text.starts_with('[') && takes_text_or_list(name);
  const bool literal = key && !list && (key->one_or_two || std::holds_alternative<std::string Recipe::*>(key->member));
  if (literal && text != "null") return YAML::Node(text);
  try {
    return parse_yaml(text);
  } catch (const YAML::Exception& broken) {
    throw UserError("{}: not a valid value: {}", where, broken.msg);
  }
}

// ms-swift's model_name is a text for rows. In a recipe without model_name_or_path, the user probably means that
// key.
void refuse_model_name_alone(const Recipe& recipe, const YAML::Node& all, const Words& words) {
  const YAML::Node name = all["model_name"];
  if (!recipe.model_name_or_path.empty() || !name.IsDefined() || name.IsNull()) return;
  const auto word = std::ranges::find(words, "model_name", &Words::value_type::first);
  throw UserError(
      "{}: model_name replaces {{{{NAME}}}} in rows, but model_name_or_path is missing; did you mean "
      "model_name_or_path?",
      word == words.end() ? fmt::format("{}:{}", recipe.places.file().string(), name.Mark().line + 1)
                          : word->second.where);
}

// Only a text may be empty. For other keys, an empty word is more likely an unset variable of the shell.
void refuse_empty(const std::string& name, const std::string& where) {
  const Key* key = find_key(name);
  if (!key || std::holds_alternative<std::string Recipe::*>(key->member)) return;
  throw UserError("{}: the value is empty; write {}=null for the default", where, name);
}

// Turns LoRA's dropout off where the recipe's tool does so, unless disable_dropout says otherwise.
void turn_dropout_off(Recipe& recipe, const Dialect& dialect) {
  const bool by_default = recipe.disable_dropout == "auto" && dialect.without_dropout.contains(recipe.stage);
  if (recipe.lora_dropout == 0 || (!by_default && recipe.disable_dropout != "true")) return;
  recipe.lora_dropout = 0;
  if (by_default)
    info("lora_dropout is 0: {} turns dropout off in stage {}, unless disable_dropout is false",
         dialect.tool.empty() ? "LLaMA-Factory" : dialect.tool, recipe.stage);
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Recipe recipe;
  recipe.places = KeyPlaces(file);
  const YAML::Node root = root_of(file);
  Words words;
  YAML::Node all(YAML::NodeType::Map);
  for (const auto& pair : root) all[pair.first] = pair.second;
  for (const std::string& item : overrides) {
    auto sign = item.find('=');
    std::string where = fmt::format("override '{}'", item);
    if (sign == std::string::npos || sign == 0) throw UserError("{}: wanted key=value", where);
    std::string name = item.substr(0, sign);
    name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
    if (const Key* key = find_key(name); key && key->secret) where = fmt::format("override '{}=...'", name);
    if (sign + 1 == item.size()) refuse_empty(name, where);
    words.emplace_back(name, GivenValue{override_value(name, item.substr(sign + 1), where), where});
    all[name] = words.back().second.node;
  }
  const std::string place = file.empty() ? "the command line" : file.string();
  const std::optional<Dialect> other = read_dialect(root, all, place);
  const Dialect dialect = other.value_or(Dialect{});
  Reader reader(recipe, false, read_file(recipe, root, all, dialect, words));
  for (const auto& [name, given] : words)
    if (!dialect.handled_words.contains(name) && !repeats_seed(name, given.node, all))
      reader.take_override(name, given);
  reader.take_meant(dialect.meant_words, "the command line");
  reader.grant_wishes(false);
  refuse_model_name_alone(recipe, all, words);
  if (other) reader.take_usual(dialect, place);
  reader.grant_wishes(true);  // after the tool's defaults, which may set the method and the dtype
  turn_dropout_off(recipe, dialect);
  // Transformers then saves no checkpoint during a run. The other strategies ignore save_steps.
  if (recipe.save_strategy == "steps" && recipe.save_steps == 0) recipe.save_strategy = "no";
  reader.report_idle();
  check_combinations(recipe);
  return recipe;
}

}  // namespace fettle
