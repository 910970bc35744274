#include "inspect/download_command.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/fetch/fetch_model.h"
#include "data/read/data_files.h"
#include "data/read/hub_rows.h"
#include "hub/repo_name.h"
#include "hub/settings.h"
#include "hub/snapshot.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

RepoName with_revision(RepoName repo, const DownloadOptions& options) {
  if (options.revision.empty()) return repo;
  if (!repo.revision.empty()) throw UserError("{} and --revision both give a revision; keep one of them", options.name);
  check_revision(options.revision);
  repo.revision = options.revision;
  return repo;
}

RepoName repo_of(const DownloadOptions& options) {
  const RepoKind kind = options.dataset ? RepoKind::kDataset : RepoKind::kModel;
  const std::optional<RepoName> repo = read_repo_name(kind, options.name);
  if (!repo) throw UserError("'{}' is not a name on a hub; names are ORG/NAME", options.name);
  return with_revision(*repo, options);
}

bool names_files(const DownloadOptions& options) {
  return options.all || !options.include.empty();
}

bool names_part(const DownloadOptions& options) {
  return !options.subset.empty() || !options.split.empty();
}

fs::path fetch_files(const Snapshot& snapshot, const DownloadOptions& options) {
  std::vector<std::string> paths;
  for (const HubFile& file : snapshot.files()) {
    const auto fits = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), file.path.c_str(), 0) == 0; };
    if (options.all || std::ranges::any_of(options.include, fits)) paths.push_back(file.path);
  }
  if (paths.empty()) throw UserError("{}: the repository has no file to fetch", options.name);
  snapshot.fetch(paths);
  return snapshot.folder();
}

fs::path fetch(const DownloadOptions& options) {
  const bool scope = options.modelscope || hub_of_environment() == Hub::kModelScope;
  const HubSettings settings = read_hub_settings(scope ? Hub::kModelScope : Hub::kHuggingFace);
  if (const std::optional<HubGguf> gguf = read_hub_gguf(options.name);
      gguf && !options.dataset && !names_files(options)) {
    if (options.without_weights)
      throw UserError("{}: a GGUF file is fetched with its weights; leave out --no-weights", options.name);
    return fetch_gguf(settings, {with_revision(gguf->repo, options), gguf->wanted});
  }
  const RepoName repo = repo_of(options);
  if (names_files(options)) return fetch_files(Snapshot::open(settings, repo), options);
  if (names_part(options)) return fetch_split(settings, repo, {options.subset, options.split, ""})[0].parent_path();
  if (options.dataset) return fetch_rows(settings, repo);
  const Snapshot snapshot = Snapshot::open(settings, repo);
  if (is_adapter(snapshot)) return fetch_adapter(settings, repo);
  using Weights = ModelRepository::Weights;
  return fetch_model(settings, repo, options.without_weights ? Weights::kIgnored : Weights::kRequired);
}

}  // namespace

int run_download(const DownloadOptions& options, std::ostream& out) {
  if (!options.dataset && names_part(options))
    throw UserError("--subset and --split apply to data sets only; add --dataset");
  if (names_files(options) && names_part(options))
    throw UserError("--subset and --split choose the files to fetch; leave out --all and --include");
  if (options.without_weights && (options.dataset || names_files(options)))
    throw UserError(
        "--no-weights fetches only a model's config and tokenizer; leave out --dataset, --all and --include");
  if (options.all && !options.include.empty()) throw UserError("--all and --include exclude each other; leave one out");
  out << fetch(options).string() << "\n";
  return 0;
}

void check_recipe_download(const DownloadOptions& options) {
  const std::pair<bool, const char*> flags[] = {
      {!options.revision.empty(), "--revision"}, {options.dataset, "--dataset"},
      {!options.subset.empty(), "--subset"},     {!options.split.empty(), "--split"},
      {!options.include.empty(), "--include"},   {options.all, "--all"}};
  for (const auto& [given, flag] : flags)
    if (given)
      throw UserError("{}: a recipe says itself what to fetch; leave out {}, or name a repository instead",
                      options.name, flag);
}

}  // namespace fettle
