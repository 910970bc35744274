#include "config/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "config/foreign/tables.h"
#include "config/keys.h"
#include "config/known_keys.h"
#include "config/nearest.h"
#include "config/value.h"

namespace fettle {
namespace {

enum class Takes {
  kTruth,   // true, false or nothing
  kChoice,  // a value or nothing
  kValue,   // one value
  kList,    // one or more values
  kAny,     // any number of values
};

bool is_flag(const std::string& word) {
  return word.starts_with("--");
}

// Returns whether the word is a flag of one letter, as -q.
bool is_short_flag(const std::string& word) {
  return word.size() == 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

bool contains_truth(const Key& key) {
  return std::ranges::find(key.values, "true") != key.values.end() ||
         std::ranges::any_of(key.spellings, [](const auto& spelling) { return spelling.first == "true"; });
}

Takes takes_of(const Key& key) {
  if (std::holds_alternative<bool Recipe::*>(key.member)) return Takes::kTruth;
  if (std::holds_alternative<std::vector<std::string> Recipe::*>(key.member)) return Takes::kList;
  return contains_truth(key) ? Takes::kChoice : Takes::kValue;
}

// Returns what the flag takes; nullopt if `name` is neither a key of Fettle nor a known key of another tool.
std::optional<Takes> takes_of(const std::string& name) {
  if (takes_text_or_list(name)) return Takes::kList;
  if (const Key* key = find_key(name)) return takes_of(*key);
  const Key* map = find_key(name.substr(0, name.find('.')));
  if (map != nullptr && is_map(*map)) return Takes::kValue;
  bool translated = false, truth = true;
  for (const Translation& row : translations()) {
    if (row.key != name) continue;
    translated = true;
    truth = truth && (row.value == "true" || row.value == "false");
  }
  if (translated) return truth ? Takes::kTruth : Takes::kValue;
  if (name == "deepspeed" || name == "accelerate_config" || name.starts_with("fsdp")) return Takes::kChoice;
  if (find_without_effect(name) != nullptr || find_not_available(name) != nullptr) return Takes::kAny;
  if (begins_known_key(name)) return Takes::kValue;
  return std::nullopt;
}

bool takes_false(const std::string& name) {
  const Key* key = find_key(name);
  return takes_of(name) == Takes::kTruth ||
         (key != nullptr && std::ranges::find(key->values, "false") != key->values.end());
}

// Returns whether `word`, the word after a flag, is a recipe file or a key=value word. Such a word is not the flag's
// value.
bool is_word_of_recipe(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos) return takes_of(word.substr(0, equals)).has_value();
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

// Returns how many of the arguments that follow a flag are its values.
size_t count_values(const std::string& name, Takes takes, std::span<const std::string> next) {
  const bool none = next.empty() || is_flag(next[0]);
  if (none) return 0;
  const auto is_more = [](const std::string& word) {
    return !is_flag(word) && !is_short_flag(word) && !is_word_of_recipe(word);
  };
  const Key* key = find_key(name);
  switch (takes) {
    case Takes::kTruth: {
      const bool spelling = key != nullptr && std::ranges::any_of(key->spellings, [&](const auto& known) {
                              return known.first == next[0];
                            });
      return spelling || bool_from_text(next[0]) ? 1 : 0;
    }
    case Takes::kChoice: return key == nullptr || is_more(next[0]) ? 1 : 0;
    case Takes::kValue: return 1;
    case Takes::kList:
    case Takes::kAny: {
      // The first value of a list may be any word: `--dataset sets.yaml` names a YAML file of data sets. A later YAML
      // file is the recipe.
      const size_t first = takes == Takes::kList ? 1 : 0;
      return std::ranges::find_if_not(next.begin() + first, next.end(), is_more) - next.begin();
    }
  }
  return 0;
}

std::string written(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

[[noreturn]] void refuse_flag(const std::string& flag, const std::vector<std::string>& own) {
  std::vector<std::string> flags = own;
  for (const std::string_view name : known_names()) flags.push_back(fmt::format("--{}", name));
  const auto near = nearest(flag, {flags.begin(), flags.end()});
  throw UserError("{}: neither a flag of this command nor a recipe key{}", flag,
                  near ? fmt::format("; did you mean '{}'?", *near) : "; the command's --help-keys lists all keys");
}

}  // namespace

SplitFlags split_flags(const std::vector<std::string>& arguments, const std::vector<std::string>& own) {
  SplitFlags out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.others.insert(out.others.end(), arguments.begin() + i, arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (!is_flag(argument) || std::ranges::find(own, flag) != own.end()) {
      out.others.push_back(argument);
      continue;
    }
    std::string name = written(flag.substr(2));
    const std::span next = std::span(arguments).subspan(i + 1);
    if (name == "config" && (equals != std::string::npos || !next.empty())) {
      out.others.insert(out.others.begin(), equals == std::string::npos ? next[0] : argument.substr(equals + 1));
      i += equals == std::string::npos ? 1 : 0;
      continue;
    }
    auto takes = takes_of(name);
    const bool negated =
        !takes && equals == std::string::npos && name.starts_with("no_") && takes_false(name.substr(3));
    if (negated) {
      out.words.push_back(name.substr(3) + "=false");
      continue;
    }
    if (!takes) refuse_flag(flag, own);
    if (equals != std::string::npos) {
      out.words.push_back(name + argument.substr(equals));
      continue;
    }
    const size_t count = count_values(name, *takes, next);
    if (count == 0 && (*takes == Takes::kValue || *takes == Takes::kList))
      throw UserError("{}: the value is missing; write {} VALUE or {}=VALUE", flag, flag, flag);
    const std::vector<std::string> values(next.begin(), next.begin() + count);
    const std::string value = count == 0 ? "true" : count == 1 ? values[0] : nlohmann::json(values).dump();
    out.words.push_back(name + "=" + value);
    i += count;
  }
  return out;
}

std::string secret_key_of(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return "";
  const size_t begin = std::min(word.find_first_not_of('-'), equals);
  const std::string name = word.substr(begin, equals - begin);
  const Key* key = find_key(name.substr(name.rfind('.') + 1));
  return key != nullptr && key->secret ? name : "";
}

}  // namespace fettle
