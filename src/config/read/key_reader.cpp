#include "config/read/key_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/settings_file.h"
#include "config/foreign/tables.h"
#include "config/known_keys.h"
#include "config/nearest.h"
#include "config/read/dataset_items.h"
#include "config/yaml_text.h"

namespace fettle {
namespace {

// Returns whether the name is a section of Unsloth's recipes, which only groups keys.
bool is_section(const std::string& name) {
  return name == "data" || name == "training" || name == "lora" || name == "logging";
}

// Returns whether the name is in a table.
bool is_known(const std::string& name) {
  const std::vector<std::string_view> names = known_names();
  return std::ranges::find(names, name) != names.end();
}

// Returns the map that a text such as '{"min_lr_rate": 0.1}' describes, an empty map for an empty text; otherwise a
// null node.
YAML::Node json_map(const YAML::Node& node) {
  if (node.IsScalar() && node.Scalar().empty()) return YAML::Node(YAML::NodeType::Map);
  if (!node.IsScalar() || !node.Scalar().starts_with('{')) return {};
  try {
    return parse_yaml(node.Scalar());  // JSON is YAML too
  } catch (const YAML::Exception&) {
    return {};
  }
}

// Returns `where`, a place in a file, with the line of the node.
std::string same_file(const std::string& where, const YAML::Node& node) {
  auto colon = where.rfind(':');
  if (colon == std::string::npos) return where;
  return fmt::format("{}:{}", where.substr(0, colon), node.Mark().line + 1);
}

// Returns whether a value of one of Fettle's own keys must be translated, such as `stage: orpo`.
bool has_own_translation(const std::string& name, const GivenValue& given) {
  return given.node.IsScalar() && std::ranges::any_of(translations(), [&](const Translation& row) {
           return row.key == name && row.value == given.node.Scalar();
         });
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

}  // namespace

void KeyReader::take(const std::string& name, const GivenValue& given) {
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
    take_inner(name, given.with(map), true);
  } else {
    refuse_unknown(name, given);
  }
}

void KeyReader::take_key(const Key& key, const std::string& name, const GivenValue& given) {
  // In torchtune's recipes, lr_scheduler, optimizer and dataset are maps. The entries of a map are read one by one.
  if (given.node.IsMap() && begins_known_key(name) && !is_map(key)) {
    take_inner(name, given);
    return;
  }
  const bool sets = key.name == "dataset" || key.name == "eval_dataset";
  set(key, name, sets ? given.with(dataset_items(given.node)) : given);
}

void KeyReader::set(const Key& key, const std::string& name, const GivenValue& given) {
  if (given.node.IsNull()) {
    if (source_ == Source::kFile) return;
    set_value(recipe_, key, given);
    recipe_.places.erase(std::string(key.name));
    return;
  }
  const std::string before = value_text(recipe_, key);
  set_value(recipe_, key, given);
  remember(key, name, given, before != value_text(recipe_, key));
}

bool KeyReader::take_entry(const std::string& name, const GivenValue& given) {
  auto dot = name.find('.');
  const Key* key = dot == std::string::npos ? nullptr : find_key(name.substr(0, dot));
  if (!key || !is_map(*key)) return false;
  set_entry(recipe_, *key, name.substr(dot + 1), given);
  recipe_.places.set(std::string(key->name), given.where, given.by);
  return true;
}

bool KeyReader::take_translation(const std::string& name, const GivenValue& given) {
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
          wishes_.insert({std::string(key), {std::string(value), name, given.where, given.by}});
          continue;
        }
        GivenValue meant = given.with(value == "*" ? rest : YAML::Node(std::string(value)));
        if (meant.meant_by.empty()) meant.meant_by = name;
        take(std::string(key), meant);
      }
      return true;
    }
    if (!row.value.empty()) wanted.push_back(row.value);
  }
  if (!known || given.node.IsNull()) return known;
  throw UserError("{}: {}: found {}, wanted one of {}", given.where, name, describe_node(given.node),
                  fmt::join(wanted, ", "));
}

void KeyReader::take_settings(const Settings& settings, const std::string& name, const GivenValue& given) {
  for (const auto& [key, value] : settings.wishes)
    wishes_.insert(
        {key, {value, name, given.where, given.by, key == "lr_scheduler_type" ? settings.scheduler : value}});
  for (const std::string& note : settings.notes) warn("{}: {}: {}", given.where, name, note);
  if (!settings.wishes.empty()) return;
  const WithoutEffect* row = find_without_effect(name);
  internal_check(row != nullptr, "the settings key {} is not in the table of keys without effect", name);
  if (settings.unread.empty()) return accept(*row, name, given);
  warn(
      "{}: {} has no effect here: {}. Fettle cannot read {}. If that file turns offload on, set offload_optimizer or "
      "offload_param",
      given.where, name, row->reason, settings.unread);
}

bool KeyReader::take_parts(const std::string& name, const GivenValue& given) {
  if (name != "optim_config.adamw_betas" || given.node.size() != 2) return false;
  take("adam_beta1", given.with(given.node[0]));
  take("adam_beta2", given.with(given.node[1]));
  return true;
}

void KeyReader::accept(const WithoutEffect& row, const std::string& name, const GivenValue& given) {
  if (given.node.IsNull()) return;
  if (given.node.IsScalar() && !row.neutral.empty() && given.node.Scalar() == row.neutral) return;
  const auto truth = given.node.IsScalar() ? bool_from_text(given.node.Scalar()) : std::nullopt;
  if (truth && row.neutral == (*truth ? "true" : "false")) return;
  if (!row.reason.empty()) {
    warn("{}: {} has no effect here: {}", given.where, name, row.reason);
    return;
  }
  idle_.push_back(name);
  idle_where_ =
      source_ == Source::kOverrides || recipe_.places.file().empty() ? "overrides" : recipe_.places.file().string();
}

void KeyReader::remember(const Key& key, const std::string& name, const GivenValue& given, bool changed) {
  std::string canonical(key.name);
  const std::string& written = given.meant_by.empty() ? name : given.meant_by;
  auto [earlier, first] = given_as_.emplace(canonical, std::make_pair(written, given.where));
  if (source_ == Source::kFile && !first && changed) {
    throw UserError("{}: {} is given twice with different values: as '{}' here, and as '{}' at {}; keep one of them",
                    given.where, key.name, written, earlier->second.first, earlier->second.second);
  }
  recipe_.places.set(canonical, given.where, given.by);
}

void KeyReader::take_inner(const std::string& name, const GivenValue& given, bool is_text) {
  for (const auto& pair : given.node) {
    const std::string inner = key_text(pair.first), nested = name + "." + inner;
    GivenValue value = given.with(pair.second);
    if (!is_text && given.by != SetBy::kOverride) value.where = same_file(given.where, pair.first);
    take(is_section(name) && !is_known(nested) ? inner : nested, value);
  }
}

void KeyReader::report_idle() const {
  if (!idle_.empty()) warn("{}: these keys have no effect here: {}", idle_where_, fmt::join(idle_, ", "));
}

}  // namespace fettle
