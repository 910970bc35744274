#include "board/recipe_form.h"

#include <variant>

#include "base/error.h"
#include "config/keys.h"
#include "config/recipe.h"
#include "stages/stages.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string kind_of(const Member& member) {
  if (std::holds_alternative<bool Recipe::*>(member)) return "flag";
  if (std::holds_alternative<std::string Recipe::*>(member)) return "text";
  if (std::holds_alternative<std::vector<std::string> Recipe::*>(member)) return "list";
  if (std::holds_alternative<std::map<std::string, int64_t> Recipe::*>(member) ||
      std::holds_alternative<std::map<std::string, std::string> Recipe::*>(member))
    return "map";
  return "number";
}

}  // namespace

ordered_json recipe_form_json() {
  const Recipe defaults;
  const KeyTexts texts = stage_key_text();
  ordered_json out = ordered_json::array();
  for (const Key& key : recipe_keys()) {
    if (key.secret) continue;
    const auto text = texts.find(key.name);
    const auto& values = text == texts.end() ? key.values : text->second.values;
    std::string help(key.help);
    out.push_back({{"name", key.name},
                   {"group", group_title(key.group)},
                   {"kind", kind_of(key.member)},
                   {"type", describe_type(key)},
                   {"values", ordered_json(std::vector<std::string>(values.begin(), values.end()))},
                   {"default", value_text(defaults, key)},
                   {"help", help},
                   {"of_one_run", key.of_one_run}});
  }
  return out;
}

std::string recipe_yaml(const std::vector<std::string>& words, const std::string& output_dir) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    const size_t dashes = std::min(name.find_first_not_of('-'), name.size());  // `--key=value` sets the key, too
    if (const Key* key = find_key(name.substr(dashes)); key != nullptr && key->secret)
      throw UserError("{} is secret, so a recipe file does not keep it; set HF_TOKEN before `fettle board` starts",
                      key->name);
  }
  std::vector<std::string> all = words;
  if (!output_dir.empty()) all.push_back("output_dir=" + output_dir);
  return to_yaml(read_recipe({}, all));
}

}  // namespace fettle
