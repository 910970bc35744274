#include "data/read/hub_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "data/read/data_files.h"
#include "data/read/hub_folder.h"
#include "hub/hub_api.h"
#include "hub/refusal.h"
#include "hub/snapshot.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
constexpr const char* kParquetBranch = "refs/convert/parquet";

std::string prefix_of(const std::string& folder) {
  std::string prefix = fs::path(folder).lexically_normal().generic_string();
  while (prefix.ends_with('/')) prefix.pop_back();
  return prefix.empty() || prefix == "." ? "" : prefix + "/";
}

// Returns the data files below the prefix, with paths relative to the prefix. Leaves out hidden files and folders.
std::vector<std::string> data_files_of(const Snapshot& snapshot, const std::string& prefix) {
  std::vector<fs::path> files;
  for (const HubFile& file : snapshot.files())
    if (file.path.starts_with(prefix)) files.emplace_back(file.path.substr(prefix.size()));
  std::erase_if(files, is_hidden);
  std::vector<std::string> out;
  for (const fs::path& file : data_files_among(std::move(files))) out.push_back(file.generic_string());
  return out;
}

std::vector<fs::path> fetched(const Snapshot& snapshot, std::vector<std::string> names, const std::string& prefix) {
  for (std::string& name : names) name = prefix + name;
  snapshot.fetch(names);
  std::vector<fs::path> out;
  for (const std::string& name : names) out.push_back(snapshot.folder() / name);
  return out;
}

// Returns the files below the prefix that `wanted` names, with paths relative to the prefix.
std::vector<std::string> files_named(const Snapshot& snapshot, const std::string& prefix, const std::string& wanted) {
  const fs::path path = fs::path(wanted).lexically_normal();
  std::vector<std::string> out;
  for (const HubFile& file : snapshot.files()) {
    if (!file.path.starts_with(prefix)) continue;
    const std::string name = file.path.substr(prefix.size());
    if (name == path || matches_path(path, name)) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

std::string script_of(const RepoName& repo) {
  return repo.id.substr(repo.id.find('/') + 1) + ".py";
}

using Parts = std::map<std::string, std::vector<std::string>>;

std::string name_with_revision(const RepoName& repo) {
  return repo.id + (repo.revision.empty() ? "" : "@") + repo.revision;
}

// Returns what names the data set in an item of `dataset`.
std::string item_of(const HubSettings& settings, const RepoName& repo, const std::string& folder) {
  return fmt::format("{}: {}{}{}", settings.hub == Hub::kModelScope ? "ms_hub_url" : "hf_hub_url",
                     name_with_revision(repo), folder.empty() ? "" : ", folder: ", folder);
}

// Returns the name of the subset or split to read. If `wanted` is not empty, it is the name. If `wanted` is empty, the
// name is `otherwise` if `parts` has it, or else the only name in `parts`. If `parts` does not have the name, throws
// UserError; `of_subset` says that these are the splits of a subset.
std::string choose_part(const RepoName& repo, const Parts& parts, const std::string& wanted,
                        const std::string& otherwise, const std::optional<std::string>& of_subset = std::nullopt) {
  if (parts.contains(wanted.empty() ? otherwise : wanted)) return wanted.empty() ? otherwise : wanted;
  if (wanted.empty() && parts.size() == 1) return parts.begin()->first;
  std::vector<std::string> names;
  for (const auto& [name, files] : parts) names.push_back(name);
  const std::string item = "hf_hub_url: " + repo.id;  // only Hugging Face has the branch
  throw UserError(
      "{} has no {} '{}'; it has {}. {}", repo.id, of_subset ? "split" : "subset", wanted.empty() ? otherwise : wanted,
      fmt::join(names, ", "),
      of_subset ? naming_remedy(repo.id, item, *of_subset, names.back()) : naming_remedy(repo.id, item, names[0], ""));
}

// Fetches the rows from the branch kParquetBranch. In this branch, the hub keeps a data set's rows as Parquet files.
std::vector<fs::path> fetch_converted(const Snapshot& snapshot, const RepoName& repo, const HubPart& part) {
  std::map<std::string, Parts> subsets;
  std::set<std::string> partial;
  for (const HubFile& file : snapshot.files()) {
    const size_t first = file.path.find('/'),
                 second = first == std::string::npos ? first : file.path.find('/', first + 1);
    if (second == std::string::npos || !file.path.ends_with(".parquet")) continue;
    const std::string subset = file.path.substr(0, first);
    std::string split = file.path.substr(first + 1, second - first - 1);
    if (split.starts_with("partial-")) {
      split = split.substr(8);
      partial.insert(subset + "/" + split);
    }
    subsets[subset][split].push_back(file.path);
  }
  if (subsets.empty()) throw UserError("{}: the branch {} has no rows", repo.id, kParquetBranch);
  Parts names;
  for (const auto& [subset, splits] : subsets) names[subset];
  const std::string subset = choose_part(repo, names, part.subset, "default");
  const std::string split = choose_part(repo, subsets[subset], part.split, "train", part.subset);
  if (partial.contains(subset + "/" + split))
    warn("{}: the hub converted only the first part of the split {} to Parquet; the other rows are missing", repo.id,
         split);
  return fetched(snapshot, subsets[subset][split], "");
}

// Returns the branch kParquetBranch if the rows come from it: a Python script makes the data set, or the repository has
// no data file. Returns nullopt if there is no such branch; without a network, if the cache lacks it. Also keeps
// `snapshot`, the main branch, because a run without a network opens that first.
std::optional<Snapshot> converted(const HubSettings& settings, RepoName repo, const Snapshot& snapshot,
                                  bool has_files) {
  if (has_files && !snapshot.has(script_of(repo))) return std::nullopt;
  if (settings.hub != Hub::kHuggingFace || !repo.revision.empty()) return std::nullopt;
  repo.revision = kParquetBranch;
  try {
    Snapshot rows = Snapshot::open(settings, repo);
    snapshot.keep();
    return rows;
  } catch (const HubRefusal& refusal) {
    if (snapshot.online() && refusal.reason() != HubRefusal::Reason::kNoRevision) throw;
  } catch (const UserError&) {
    if (snapshot.online()) throw;
  }
  return std::nullopt;
}

[[noreturn]] void throw_no_rows(const HubSettings& settings, const RepoName& repo, const Snapshot& snapshot,
                                const std::string& prefix) {
  const std::string where = prefix.empty() ? "" : " in " + prefix;
  if (!snapshot.online())
    throw UserError("{}: the copy in the cache has no file of rows{}. {}", repo.id, where,
                    offline_remedy(settings, repo));
  if (snapshot.has(script_of(repo)))
    throw UserError(
        "{}: a Python script makes the rows of this data set. Fettle does not run scripts, and the hub has no branch "
        "{} with the rows; convert the data set with the datasets library and name the file in `dataset`",
        repo.id, kParquetBranch);
  throw UserError("{} has no file of rows{}; Fettle reads .json, .jsonl, .csv, .tsv, .txt, .parquet and .arrow",
                  repo.id, where);
}

std::vector<std::string> files_where(const Snapshot& snapshot, bool (*wanted)(const fs::path& file)) {
  std::vector<std::string> out;
  for (const HubFile& file : snapshot.files())
    if (wanted(file.path)) out.push_back(file.path);
  return out;
}

bool is_shown_data_file(const fs::path& file) {
  return is_data_file(file) && !is_hidden(file);
}

// Returns whether the file says which files belong to which split.
bool names_splits(const fs::path& file) {
  return file.filename() == "README.md" || file.filename() == kSavedSplits;
}

}  // namespace

std::vector<fs::path> fetch_split(const HubSettings& settings, const RepoName& repo, const HubPart& part) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  const std::string prefix = prefix_of(part.folder);
  if (!part.files.empty()) {
    std::vector<std::string> all;
    for (const std::string& file : part.files) {
      const std::vector<std::string> named = files_named(snapshot, prefix, file);
      if (named.empty()) throw UserError("{} has no file {}{}", repo.id, prefix, file);
      all.insert(all.end(), named.begin(), named.end());
    }
    return fetched(snapshot, all, prefix);
  }
  const std::vector<std::string> files = data_files_of(snapshot, prefix);
  if (const std::optional<Snapshot> rows = converted(settings, repo, snapshot, !files.empty()))
    return fetch_converted(*rows, repo, part);
  if (files.empty()) throw_no_rows(settings, repo, snapshot, prefix);
  for (const std::string& about : {prefix + "README.md", prefix + kSavedSplits})
    if (snapshot.has(about)) snapshot.fetch({about});
  const DataFolder folder{snapshot.folder() / prefix, files, name_with_revision(repo),
                          item_of(settings, repo, part.folder)};
  return fetched(snapshot, choose_split(folder, part.subset, part.split), prefix);
}

fs::path fetch_rows(const HubSettings& settings, const RepoName& repo) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  const std::vector<std::string> files = files_where(snapshot, is_shown_data_file);
  snapshot.fetch(files_where(snapshot, names_splits));
  const std::optional<Snapshot> rows = converted(settings, repo, snapshot, !files.empty());
  if (!rows && files.empty()) throw_no_rows(settings, repo, snapshot, "");
  const Snapshot& from = rows ? *rows : snapshot;
  from.fetch(rows ? files_where(*rows, is_shown_data_file) : files);
  return from.folder();
}

}  // namespace fettle
