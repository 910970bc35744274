#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "config/checks.h"
#include "config/foreign/dialect.h"
#include "config/foreign/nodes.h"
#include "config/keys.h"
#include "config/known_keys.h"
#include "config/read/key_reader.h"
#include "config/read/wishes.h"
#include "config/value.h"
#include "config/yaml_text.h"

namespace fettle {
namespace {

// Sets the keys that the recipe of another tool means. `place` is its file.
void take_meant(const Dialect::Values& meant, const std::string& place, KeyReader& reader) {
  for (const auto& [key, value] : meant) reader.take(key, {value, place_of(place, value)});
}

// Sets the tool's defaults for keys that the recipe does not set.
void take_usual(const Dialect& dialect, const std::string& place, Recipe& recipe, KeyReader& reader) {
  std::vector<std::string> taken;
  const bool goes_on = !recipe.adapter_name_or_path.empty() && !recipe.create_new_adapter;
  for (const auto& [key, value] : dialect.usual) {
    if (recipe.places.has(key)) continue;
    if (key == "lora_dropout" && goes_on) continue;  // the adapter's own dropout counts (lora_options.h)
    if (key == "save_strategy" && recipe.places.has("save_steps") && recipe.save_steps != 0) continue;
    if ((key == "eval_strategy" || key == "eval_steps") && !suits("eval_strategy", recipe)) continue;
    reader.take(key, {value, place, SetBy::kTool});
    taken.push_back(fmt::format("{}: {}", key, value.Scalar()));
  }
  const std::string defaults = fmt::format("{}", fmt::join(taken, ", "));
  info("{}: read as a recipe of {}{}", place, dialect.tool,
       taken.empty() ? "" : ", with the defaults of that tool: " + defaults);
}

// Returns the content of the recipe; an empty map if the file is empty or there is no file.
YAML::Node root_of(const std::filesystem::path& file) {
  const YAML::Node root = file.empty() ? YAML::Node() : read_yaml(file);
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

// Reads the file. An override replaces a key of another tool that has the same name, so such keys are skipped.
void read_file(Recipe& recipe, const YAML::Node& root, const YAML::Node& all, const Dialect& dialect,
               const Words& words, Wishes& wishes) {
  const std::string file = recipe.places.file().string();
  KeyReader reader(recipe, KeyReader::Source::kFile, wishes);
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
  take_meant(dialect.meant, file, reader);
  reader.report_idle();
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

// Turns LoRA's dropout off where the recipe's tool does so, unless disable_dropout says otherwise. A copy of the recipe
// in Fettle's own format does not name the tool. So disable_dropout becomes true where that format has another default.
void turn_dropout_off(Recipe& recipe, const Dialect& dialect) {
  const bool by_default = recipe.disable_dropout == "auto" && dialect.without_dropout.contains(recipe.stage);
  recipe.dropout_is_off = by_default || recipe.disable_dropout == "true";
  if (by_default && !Dialect{}.without_dropout.contains(recipe.stage)) recipe.disable_dropout = "true";
  if (by_default && recipe.lora_dropout != 0)
    info("lora_dropout has no effect: {} turns dropout off in stage {}, unless disable_dropout is false",
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
    words.emplace_back(name, GivenValue{override_value(name, item.substr(sign + 1), where), where, SetBy::kOverride});
    all[name] = words.back().second.node;
  }
  const std::string place = file.empty() ? "the command line" : file.string();
  const std::optional<Dialect> other = read_dialect(root, all, place);
  const Dialect dialect = other.value_or(Dialect{});
  Wishes wishes;
  read_file(recipe, root, all, dialect, words, wishes);
  KeyReader reader(recipe, KeyReader::Source::kOverrides, wishes);
  for (const auto& [name, given] : words)
    if (!dialect.handled_words.contains(name) && !repeats_seed(name, given.node, all)) reader.take(name, given);
  for (const auto& [key, value] : dialect.meant_words) reader.take(key, {value, "the command line"});
  grant(wishes, false, recipe, reader);
  refuse_model_name_alone(recipe, all, words);
  if (other) take_usual(dialect, place, recipe, reader);
  grant(wishes, true, recipe, reader);  // after the tool's defaults, which may set the method and the dtype
  turn_dropout_off(recipe, dialect);
  // Transformers then saves no checkpoint during a run. The other strategies ignore save_steps.
  if (recipe.save_strategy == "steps" && recipe.save_steps == 0) recipe.save_strategy = "no";
  reader.report_idle();
  check_combinations(recipe);
  return recipe;
}

}  // namespace fettle
