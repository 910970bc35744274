#include "config/key_help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "config/checks.h"
#include "config/keys.h"

namespace fettle {
namespace {

// Returns other tools' names for the key.
std::string alias_text(const Key& key) {
  std::vector<std::string> names;
  for (std::string_view alias : key.aliases) names.push_back(fmt::format("`{}`", alias));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string default_text(const Key& key) {
  static const Recipe defaults;
  return value_text(defaults, key);
}

// Returns `text` in lines of at most 100 columns. All lines but the first are indented like the help of a key.
std::string wrapped(std::string_view text) {
  constexpr size_t kIndent = 31, kColumns = 100;
  std::string out;
  size_t column = kIndent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > kIndent && column + 1 + one.size() > kColumns) {
      out += fmt::format("\n{:{}}", "", kIndent);
      column = kIndent;
    } else if (column > kIndent) {
      out += ' ';
      ++column;
    }
    out += one;
    column += one.size();
  }
  return out;
}

// Returns the help and the values of the key, from its row or from `texts`.
KeyText text_of(const Key& key, const KeyTexts& texts) {
  const auto found = texts.find(key.name);
  return found == texts.end() ? KeyText{std::string(key.help), key.values} : found->second;
}

std::string type_of(Key key, const KeyText& text) {
  key.values = text.values;
  return describe_type(key);
}

std::string help_text(const Key& key, const KeyTexts& texts) {
  const KeyText text = text_of(key, texts);
  const std::string initial = default_text(key);
  return fmt::format("  {:<28} {}\n{:31}{}\n", key.name, wrapped(text.help), "",
                     wrapped(type_of(key, text) + (initial.empty() ? "" : "; default " + initial)));
}

template <typename Visit>
void for_each_group(const Visit& visit) {
  for (Group group : {Group::kModel, Group::kMethod, Group::kData, Group::kTraining, Group::kOutput, Group::kExport,
                      Group::kGeneration, Group::kHardware}) {
    visit(group);
  }
}

}  // namespace

std::string recipe_reference_markdown(const KeyTexts& texts) {
  std::string page =
      "# Recipe keys\n\n"
      "A recipe is a YAML file of these keys. On the command line, `key=value` after the file overrides a key, and\n"
      "`mesh.fsdp=4` overrides one entry of a map. Names are those of LLaMA-Factory and Hugging Face. The last column\n"
      "lists other tools' names for the same key; Fettle reads them too.\n\n"
      "- An unknown key is an error that suggests the nearest known one.\n"
      "- A key of another tool that has no effect in Fettle gives a warning.\n"
      "- A key of a feature that Fettle does not have is an error, unless its value turns the feature off.\n\n"
      "`fettle COMMAND --help-keys` prints the same list. `scripts/write_recipe_reference` writes this page.\n";
  for_each_group([&](Group group) {
    page += fmt::format("\n## {}\n\n| key | takes | default | meaning | also read as |\n|---|---|---|---|---|\n",
                        group_title(group));
    for (const Key& key : recipe_keys()) {
      if (key.group != group) continue;
      const std::string initial = default_text(key);
      const KeyText text = text_of(key, texts);
      page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, type_of(key, text),
                          initial.empty() ? "" : fmt::format("`{}`", initial), text.help, alias_text(key));
    }
  });
  return page;
}

std::string recipe_reference_text(const KeyTexts& texts) {
  std::string text;
  for_each_group([&](Group group) {
    text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", group_title(group));
    for (const Key& key : recipe_keys()) {
      if (key.group != group) continue;
      text += help_text(key, texts);
    }
  });
  return text;
}

std::string key_help(const std::vector<std::string_view>& names, const KeyTexts& texts) {
  std::string text;
  for (std::string_view name : names) {
    const Key* key = find_key(name);
    internal_check(key != nullptr && key->name == name, "key_help: there is no recipe key '{}'", name);
    text += help_text(*key, texts);
  }
  return text;
}

std::string to_yaml(const Recipe& recipe) {
  const Recipe defaults;
  std::string text;
  for (const Key& key : recipe_keys()) {
    std::string value = value_text(recipe, key);
    if (!must_be_said(key, value != value_text(defaults, key), recipe.places)) continue;
    if (key.secret) {
      text += fmt::format("# {} is secret, so it is not written here; set the environment variable HF_TOKEN instead\n",
                          key.name);
      continue;
    }
    text += fmt::format("{}: {}\n", key.name, value.empty() ? "\"\"" : value);
  }
  return text;
}

}  // namespace fettle
