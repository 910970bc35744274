#include "data/read/hub_folder.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/pattern.h"
#include "base/text.h"
#include "config/yaml_text.h"
#include "data/read/data_files.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Splits = std::map<std::string, Names>;

std::string names_of(const Splits& splits) {
  Names names;
  for (const auto& [name, files] : splits)
    if (!name.empty()) names.push_back(name);
  return names.empty() ? "unknown (no file name shows one)" : fmt::format("{}", fmt::join(names, ", "));
}

// Returns how messages call the folder, or its subset. As in set_title, the subset is in brackets.
std::string title_of(const DataFolder& folder, const std::string& subset = "") {
  const std::string title = folder.name.empty() ? folder.path.string() : folder.name;
  return subset.empty() ? title : fmt::format("{} ({})", title, subset);
}

// Returns the files of one split. In `splits`, the key "" has the files that belong to no split. `subset` is for
// messages.
Names choose(const DataFolder& folder, const std::string& subset, const Splits& splits, const std::string& split) {
  const bool one = splits.size() == 1, unnamed = splits.contains("");
  auto found = splits.find(split.empty() ? "train" : split);
  const bool any = split.empty() || (split == "train" && one && unnamed);
  if (found == splits.end() && any && (one || (unnamed && splits.size() == 2)))
    found = std::prev(splits.end());  // the only split with a name, or else the files without one
  if (found == splits.end())
    throw UserError("{}: there is no split '{}'; the splits are {}. {}", title_of(folder, subset),
                    split.empty() ? "train" : split, names_of(splits),
                    folder.name.empty() || splits.empty() || splits.rbegin()->first.empty()
                        ? "Name one of them with `split` in dataset_info.json, or name the files in `dataset`"
                        : naming_remedy(folder.name, folder.item, subset, splits.rbegin()->first));
  if (!one) {
    size_t all = 0;
    for (const auto& item : splits) all += item.second.size();
    info("data: {}: the split {}, {} of {} files", title_of(folder, subset), found->first, found->second.size(), all);
  }
  Names files = found->second;
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the split (train, validation or test) that a word in `path` names; "" when no word does.
std::string split_of_words(const std::string& path) {
  static const std::map<std::string, std::string> kWords = {
      {"train", "train"},      {"training", "train"}, {"validation", "validation"},
      {"valid", "validation"}, {"val", "validation"}, {"dev", "validation"},
      {"test", "test"},        {"testing", "test"},   {"eval", "test"},
      {"evaluation", "test"},
  };
  static const Pattern kWord("[a-z]+");
  for (const Pattern::Groups& word : kWord.find_all(lower_case(path)))
    if (const auto known = kWords.find(word[0]); known != kWords.end()) return known->second;
  return "";
}

// Returns the files that are below the subfolder `within`; all files when `within` is empty. Leaves out copies in other
// formats.
Names files_below(const DataFolder& folder, const std::string& within) {
  Names out;
  for (const std::string& file : folder.files)
    if (within.empty() || file.starts_with(within + "/")) out.push_back(file);
  return without_copies(folder.path, std::move(out));
}

// Sorts the files below the subfolder `within` into splits by their names. Words in the name of `within` itself do not
// count.
Splits splits_by_name(const DataFolder& folder, const std::string& within) {
  static const Pattern kShard("(.+)-[0-9]{5}-of-[0-9]{5}[^/]*[.].*");
  static const Names kNoSplit = {"data", "part", "shard", "chunk", "default"};
  Splits shards, words, beside;  // `beside` has the words of files that are not shards
  for (const std::string& file : files_below(folder, within)) {
    const auto shard = kShard.match(fs::path(file).filename().string());
    const std::string word = split_of_words(within.empty() ? file : file.substr(within.size() + 1));
    const bool is_shard = shard && std::find(kNoSplit.begin(), kNoSplit.end(), (*shard)[1]) == kNoSplit.end();
    if (is_shard) shards[(*shard)[1]].push_back(file);
    words[word].push_back(file);
    if (!is_shard) beside[word].push_back(file);
  }
  if (!shards.empty()) {
    // The shards of a split are all of it. So a file such as train.jsonl beside them is a part of no split. Beside
    // shards of one split with another name, all other files are, so that this split stays the one that is read.
    const bool one_other = shards.size() == 1 && !shards.contains("train");
    for (auto& [word, files] : beside) {
      Names& to = shards[one_other || shards.contains(word) ? "" : word];
      to.insert(to.end(), files.begin(), files.end());
    }
    return shards;
  }
  // If the names of some files say test or validation and no name says train, the files without such a word are the
  // training split.
  if (auto rest = words.extract(""); rest) {
    rest.key() = words.empty() || words.contains("train") ? "" : "train";
    words.insert(std::move(rest));
  }
  return words;
}

// Sorts the files below the subfolder `within` into splits by the subfolder of `within` that they are in.
Splits splits_by_subfolder(const DataFolder& folder, const std::string& within) {
  Splits out;
  for (const std::string& file : files_below(folder, within)) {
    const std::string name = within.empty() ? file : file.substr(within.size() + 1);
    if (const size_t end = name.find('/'); end != std::string::npos) out[name.substr(0, end)].push_back(file);
  }
  return out;
}

std::vector<std::string> texts(const YAML::Node& node) {
  if (node.IsScalar()) return {node.as<std::string>()};
  std::vector<std::string> out;
  if (node.IsSequence())
    for (const auto& item : node)
      if (item.IsScalar()) out.push_back(item.as<std::string>());
  return out;
}

// Returns the YAML between the first two `---` lines of README.md; a null node when there is none.
YAML::Node readme_head(const fs::path& folder) {
  std::ifstream in(folder / "README.md");
  std::string line, head;
  if (!std::getline(in, line) || !line.starts_with("---")) return {};
  while (std::getline(in, line) && !line.starts_with("---")) head += line + "\n";
  return parse_yaml(head);
}

YAML::Node choose_config(const DataFolder& folder, const YAML::Node& configs, const std::string& subset) {
  std::vector<std::string> names;
  std::vector<YAML::Node> fitting;
  for (const auto& config : configs) {
    names.push_back(config["config_name"].as<std::string>("default"));
    const bool by_itself = configs.size() == 1 || names.back() == "default" || config["default"].as<bool>(false);
    if (subset.empty() ? by_itself : names.back() == subset) fitting.push_back(config);
  }
  if (!fitting.empty()) return fitting[0];
  throw UserError(
      "{}: {}; its subsets are {}. {}", title_of(folder),
      subset.empty() ? "none of its subsets is the default" : fmt::format("there is no subset '{}'", subset),
      fmt::join(names, ", "),
      folder.name.empty() ? "Name one of them with `subset` in dataset_info.json"
                          : naming_remedy(folder.name, folder.item, names[0], ""));
}

// Returns the files that README.md lists for `split`; nullopt when the `configs` of README.md name neither files nor a
// folder.
std::optional<Names> by_readme(const DataFolder& folder, const std::string& subset, const std::string& split) {
  const YAML::Node head = readme_head(folder.path);
  if (!head.IsMap() || !head["configs"] || head["configs"].size() == 0) return std::nullopt;
  const YAML::Node config = choose_config(folder, head["configs"], subset);
  const fs::path within = fs::path(config["data_dir"].as<std::string>("")).lexically_normal();
  const YAML::Node patterns = config["data_files"];
  if (!patterns) {
    std::string prefix = within.generic_string();
    while (prefix.ends_with('/')) prefix.pop_back();
    if (prefix.empty() || prefix == ".") return std::nullopt;
    return choose(folder, subset, splits_by_name(folder, prefix), split);
  }
  std::map<std::string, Names> wanted;
  if (patterns.IsSequence() && patterns.size() > 0 && patterns[0].IsMap())
    for (const auto& item : patterns) wanted[item["split"].as<std::string>("train")] = texts(item["path"]);
  else
    wanted["train"] = texts(patterns);
  Splits splits;
  for (const auto& [name, list] : wanted)
    for (const std::string& path : folder.files)
      if (std::any_of(list.begin(), list.end(),
                      [&](const std::string& one) { return matches_path((within / one).lexically_normal(), path); }))
        splits[name].push_back(path);
  if (splits.empty())
    throw UserError("{}: README.md names files that do not exist; fetch them, or name the files in `dataset`",
                    title_of(folder));
  return choose(folder, subset, splits, split);
}

}  // namespace

std::string naming_remedy(const std::string& name, const std::string& item, const std::string& subset,
                          const std::string& split) {
  const bool short_form = split.empty() && item == "hf_hub_url: " + name;
  return fmt::format("Write, for example, `{}` in `dataset`",
                     short_form ? name + ":" + subset
                                : fmt::format("{{{}{}{}}}", item, subset.empty() ? "" : ", subset: " + subset,
                                              split.empty() ? "" : ", split: " + split));
}

Names choose_split(const DataFolder& folder, const std::string& subset, const std::string& split) {
  try {
    if (std::optional<Names> said = by_readme(folder, subset, split)) return *std::move(said);
  } catch (const YAML::Exception& error) {
    throw UserError(
        "{}:{}: `configs` is not in the Hugging Face Hub's format. Each entry needs config_name. It also needs "
        "data_dir, or data_files (a path, or a list of split and path). Correct the entries, or name the files in "
        "`dataset`",
        (folder.path / "README.md").string(), std::max(1, error.mark.line + 2));
  }
  if (files_below(folder, subset).empty())
    throw UserError("{}: there is no subset '{}': README.md does not name it, and no subfolder has this name",
                    title_of(folder), subset);
  std::error_code none;
  const bool saved = fs::exists(folder.path / subset / kSavedSplits, none);
  return choose(folder, subset, saved ? splits_by_subfolder(folder, subset) : splits_by_name(folder, subset), split);
}

std::vector<fs::path> split_files(const fs::path& folder, const std::string& subset, const std::string& split) {
  DataFolder here{folder, {}};
  for (const fs::path& file : files_within(folder))
    here.files.push_back(file.lexically_relative(folder).generic_string());
  std::vector<fs::path> out;
  for (const std::string& name : choose_split(here, subset, split)) out.push_back(folder / name);
  return without_repeats(std::move(out));
}

}  // namespace fettle
