#include "inspect/download_command.h"

#include <fnmatch.h>

#include <algorithm>

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

RepoName repo_of(const DownloadOptions& options) {
  const RepoKind kind = options.dataset ? RepoKind::kDataset : RepoKind::kModel;
  std::optional<RepoName> repo = read_repo_name(kind, options.name);
  if (!repo) throw UserError("'{}' is not a name on a hub; names are ORG/NAME", options.name);
  if (options.revision.empty()) return *repo;
  if (!repo->revision.empty())
    throw UserError("{} and --revision both give a revision; keep one of them", options.name);
  check_revision(options.revision);
  repo->revision = options.revision;
  return *repo;
}

fs::path fetch_files(const Snapshot& snapshot, const DownloadOptions& options,
                     bool (*by_default)(const std::string& path)) {
  std::vector<std::string> paths;
  for (const HubFile& file : snapshot.files()) {
    const auto fits = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), file.path.c_str(), 0) == 0; };
    const bool named = std::any_of(options.include.begin(), options.include.end(), fits);
    if (options.all || (options.include.empty() ? by_default(file.path) : named)) paths.push_back(file.path);
  }
  if (paths.empty()) throw UserError("{}: the repository has no file to fetch", options.name);
  snapshot.fetch(paths);
  return snapshot.folder();
}

bool is_row_file(const std::string& path) {
  return (is_data_file(path) && !is_hidden(path)) || path == "README.md";
}

fs::path fetch(const DownloadOptions& options) {
  const RepoName repo = repo_of(options);
  const bool scope = options.modelscope || hub_of_environment() == Hub::kModelScope;
  const HubSettings settings = read_hub_settings(scope ? Hub::kModelScope : Hub::kHuggingFace);
  if (!options.dataset && !options.all && options.include.empty()) {
    const Snapshot snapshot = Snapshot::open(settings, repo);
    if (snapshot.has("adapter_config.json") && !snapshot.has("config.json")) return fetch_adapter(settings, repo);
    using Weights = ModelRepository::Weights;
    return fetch_model(settings, repo, options.without_weights ? Weights::kIgnored : Weights::kRequired);
  }
  if (!options.subset.empty() || !options.split.empty()) {
    const std::vector<fs::path> files = fetch_split(settings, repo, {options.subset, options.split, ""});
    return files.front().parent_path();
  }
  return fetch_files(Snapshot::open(settings, repo), options, is_row_file);
}

}  // namespace

int run_download(const DownloadOptions& options, std::ostream& out) {
  if (!options.dataset && (!options.subset.empty() || !options.split.empty()))
    throw UserError("--subset and --split apply to data sets only; add --dataset");
  const bool names_files = options.all || !options.include.empty();
  if (names_files && (!options.subset.empty() || !options.split.empty()))
    throw UserError("--subset and --split choose the files to fetch; leave out --all and --include");
  if (options.without_weights && (options.dataset || names_files))
    throw UserError(
        "--no-weights fetches only a model's config and tokenizer; leave out --dataset, --all and --include");
  if (options.all && !options.include.empty()) throw UserError("--all and --include exclude each other; leave one out");
  out << fetch(options).string() << "\n";
  return 0;
}

}  // namespace fettle
