#include "config/foreign/axolotl/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"

namespace fettle {
namespace {

// Returns whether the chat template is named after a family of models. Model folders of such a family contain the
// template.
bool is_of_a_family(std::string_view name) {
  static constexpr std::string_view kNames[] = {"gemma3",
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
                                                "command_a_rag",
                                                "nemotron",
                                                "nemotron_h",
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
                                                "llama3_2_vision",
                                                "voxtral"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Returns whether Fettle has no built-in template that equals Axolotl's template of this name, which belongs to no
// family.
bool is_missing(std::string_view name) {
  return name == "metharme" || name == "llava" || name == "alpaca";
}

// Returns Fettle's name of Axolotl's template `name`.
std::string fettles_name(const std::string& name) {
  return name == "phi_3" || name == "phi_35" ? "phi3" : name;
}
constexpr std::string_view kFallback = "tokenizer_default_fallback_";

// Returns "" if `name` means the model's own template; otherwise returns `name`.
std::string own_or_named(const std::string& name) {
  return name == "tokenizer_default" || name.starts_with(kFallback) || is_of_a_family(name) ? "" : name;
}

// Sets the template; "" means the model's own. An override that means the same in Fettle is read as it is. The override
// `template` wins over chat_template.
void set_template(ForeignRecipe& recipe, const std::string& name) {
  if (!recipe.is_word("chat_template")) {
    if (!name.empty()) recipe.mean("template", name);
  } else if (name != recipe.text("chat_template")) {
    recipe.handle_word("chat_template");
    if (recipe.is_word("template")) return;
    recipe.mean_word("template", name.empty() ? YAML::Node() : YAML::Node(name));
  }
}

// Tells which template is used if `name` means the model's own.
void describe_own(const std::string& name, const std::string& at) {
  if (is_of_a_family(name))
    info(
        "{}: chat_template: {} names a family of models; Fettle uses the template in the model folder, which is the "
        "same if the model belongs to this family",
        at, name);
  if (!name.starts_with(kFallback)) return;
  const std::string fallback = name.substr(kFallback.size());
  info("{}: chat_template: {}: Fettle uses the template in the model folder; if it has none, {}", at, name,
       is_missing(fallback) || is_of_a_family(fallback)
           ? fmt::format("save {} as chat_template.jinja in that folder", fallback)
           : "set template: " + fettles_name(fallback));
}

}  // namespace

void read_axolotl_template(ForeignRecipe& recipe, const std::vector<std::pair<std::string, std::string>>& of_sets) {
  const bool by_word = recipe.is_word("chat_template");
  const bool given = by_word || recipe.in_file("chat_template").IsDefined();
  const std::string of_recipe = recipe.text("chat_template");
  std::string name = of_recipe, at = given ? recipe.place("chat_template") : recipe.file();
  bool first = true;
  for (const auto& [of_set, at_set] : of_sets) {
    if (by_word) break;
    const std::string here = of_set.empty() ? of_recipe : of_set;
    if (!std::exchange(first, false) && own_or_named(here) != own_or_named(name))
      throw UserError(
          "{}: chat_template: found {} after {}, but all data sets of a run need the same template; use only one",
          at_set, here.empty() ? "the model's own" : here, name.empty() ? "the model's own" : name);
    if (!of_set.empty()) at = at_set;
    name = here;
  }
  if (name.empty()) return;
  recipe.handle_in_file("chat_template");
  if (is_missing(name))
    throw UserError(
        "{}: chat_template: {} is not available; save it as chat_template.jinja in the model folder, and set "
        "chat_template: tokenizer_default",
        at, name);
  set_template(recipe, fettles_name(own_or_named(name)));
  describe_own(name, at);
}

}  // namespace fettle
