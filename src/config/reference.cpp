#include <fmt/format.h>

#include "config/checks.h"
#include "config/keys.h"

namespace fettle {
namespace {

// Other tools' names for the key.
std::string alias_text(const Key& key) {
  std::vector<std::string> names;
  for (std::string_view alias : key.aliases) names.push_back(fmt::format("`{}`", alias));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string default_text(const Key& key) {
  static const Recipe defaults;
  return value_text(defaults, key);
}

template <typename Visit>
void for_each_group(const Visit& visit) {
  for (Group group : {Group::kModel, Group::kMethod, Group::kData, Group::kTraining, Group::kOutput, Group::kExport,
                      Group::kGeneration, Group::kHardware}) {
    visit(group);
  }
}

}  // namespace

std::string recipe_reference_markdown() {
  std::string page =
      "# Recipe keys\n\n"
      "A recipe is a yaml file of these keys; `key=value` after it on the command line overrides one\n"
      "(`mesh.fsdp=4` one entry of a map). Names are LLaMA-Factory's and Hugging Face's; the names that other tools\n"
      "use for the same thing are read too. An unknown key is an error; a key that cannot matter here is accepted\n"
      "with a line saying so; a key of a feature that Fettle does not have is an error that names it.\n\n"
      "This page is generated from the key table (`src/config/keys.cpp`): `scripts/write_recipe_reference`.\n";
  for_each_group([&](Group group) {
    page += fmt::format("\n## {}\n\n| key | takes | default | meaning | also read as |\n|---|---|---|---|---|\n",
                        group_title(group));
    for (const Key& key : recipe_keys()) {
      if (key.group != group) continue;
      std::string initial = default_text(key);
      page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, describe_type(key),
                          initial.empty() ? "" : fmt::format("`{}`", initial), key.help, alias_text(key));
    }
  });
  return page;
}

std::string recipe_reference_text() {
  std::string text;
  for_each_group([&](Group group) {
    text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", group_title(group));
    for (const Key& key : recipe_keys()) {
      if (key.group != group) continue;
      std::string initial = default_text(key);
      text += fmt::format("  {:<28} {}\n{:31}{}{}\n", key.name, key.help, "", describe_type(key),
                          initial.empty() ? "" : fmt::format("; default {}", initial));
    }
  });
  return text;
}

std::string to_yaml(const Recipe& recipe) {
  Recipe defaults;
  defaults.stage = recipe.stage;
  fill_dependent_defaults(defaults);
  defaults.stage = Recipe().stage;
  std::string text;
  for (const Key& key : recipe_keys()) {
    std::string value = value_text(recipe, key);
    if (value == value_text(defaults, key)) continue;
    text += fmt::format("{}: {}\n", key.name, value.empty() ? "\"\"" : value);
  }
  return text;
}

}  // namespace fettle
