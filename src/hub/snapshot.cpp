#include "hub/snapshot.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/files/private_files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "hub/download.h"
#include "hub/hub_api.h"
#include "hub/refusal.h"
#include "hub/variables.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// The commits that the hub has named to this process, by repository and revision. All parts of a run use the same
// commit.
std::mutex asked_mutex;
std::map<std::string, std::string> asked_commits;
// Why the hub named no commit, by repository and revision. All parts of a run then use the copy in the cache.
std::map<std::string, std::string> failed_questions;

std::string key_of(const HubSettings& settings, const RepoName& repo) {
  return fmt::format("{} {} {} {} {}", settings.endpoint, settings.cache.string(), repo.plural(), repo.id,
                     repo.revision);
}

// Lists the files of a snapshot's folder, for a commit whose listing is not in the cache. The entries have no etag.
Listing list_folder(const fs::path& folder) {
  Listing out;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    if (it->is_regular_file(failed))
      out.push_back({.path = it->path().lexically_relative(folder).generic_string(),
                     .size = static_cast<int64_t>(it->file_size(failed))});
  std::sort(out.begin(), out.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return out;
}

}  // namespace

// Asks the hub for the commit and its files. When the hub fails, takes the copy in the cache instead.
void Snapshot::ask() {
  const std::string revision = revision_of(settings_, repo_);
  const std::string known = cached_.read_ref(revision);
  const bool copied = !known.empty() && fs::is_directory(cached_.snapshot(known));
  const std::string key = key_of(settings_, repo_);
  std::lock_guard lock(asked_mutex);
  if (const auto failed = failed_questions.find(key); failed != failed_questions.end())
    return take_cached(failed->second);
  try {
    std::string& asked = asked_commits[key];
    if (asked.empty() && is_hex(revision, 40) && read_listing(cached_.tree(revision))) asked = revision;
    const bool again = !asked.empty();
    if (!again) asked = find_commit(settings_, repo_, copied ? 1 : 3);
    commit_ = asked;
    std::optional<Listing> listing;
    if (again || settings_.hub == Hub::kHuggingFace) listing = read_listing(cached_.tree(commit_));
    if (!listing) {
      try {
        listing = list_files(settings_, repo_, commit_);
      } catch (...) {
        asked.clear();
        throw;
      }
      make_private_folder(settings_.cache);
      write_listing(cached_.tree(commit_), *listing);
    }
    files_ = *std::move(listing);
    if (fs::is_directory(cached_.snapshot(commit_))) write_ref();
  } catch (const HttpFailure& failure) {
    if (copied) {
      info("{}: {}; using the copy of commit {} in the cache", repo_.id, failure.what(), known.substr(0, 12));
      return take_cached(failed_questions[key] = failure.what());
    }
    throw UserError("{} is not on this machine and cannot be downloaded: {}. {}", repo_.id, failure.what(),
                    offline_remedy(settings_, repo_));
  } catch (const HubRefusal& refusal) {
    if (!copied || refusal.reason() == HubRefusal::Reason::kNoRevision) throw;
    warn("{}; using the copy of commit {} in the cache", refusal.what(), known.substr(0, 12));
    take_cached(failed_questions[key] = refusal.what());
  }
}

// Names the commit as that of the revision, for runs without a network. Until the folder has a file, the cache names
// the commit before it, whose files are there.
void Snapshot::write_ref() const {
  if (settings_.hub == Hub::kHuggingFace) cached_.write_ref(revision_of(settings_, repo_), commit_);
}

void Snapshot::take_cached(const std::string& why) {
  without_network_ = why;
  commit_ = cached_.read_ref(revision_of(settings_, repo_));
  if (commit_.empty() || !fs::is_directory(cached_.snapshot(commit_)))
    throw UserError("{} is not on this machine: it is not in {}, and {}. {}", repo_.id, settings_.cache.string(), why,
                    offline_remedy(settings_, repo_));
  if (std::optional<Listing> listing = read_listing(cached_.tree(commit_)))
    files_ = *std::move(listing);
  else
    files_ = list_folder(cached_.snapshot(commit_));
}

Snapshot Snapshot::open(const HubSettings& settings, const RepoName& repo) {
  const InterruptScope interrupts;
  Snapshot out(settings, repo);
  if (settings.offline)
    out.take_cached(fmt::format("{} forbids downloads", offline_variable()));
  else
    out.ask();
  out.folder_ = out.cached_.snapshot(out.commit_);
  return out;
}

bool Snapshot::can_fetch(const std::string& path) const {
  const HubFile* file = find_file(files_, path);
  internal_check(file != nullptr, "Snapshot::can_fetch: {} has no file {}", repo_.id, path);
  return online() || file->etag.empty() || cached_.holds(commit_, *file) || cached_.has_blob(*file);
}

void Snapshot::fetch(const std::vector<std::string>& paths) const {
  std::vector<const HubFile*> missing;
  std::vector<Download> downloads;
  for (const std::string& path : paths) {
    const HubFile* file = find_file(files_, path);
    internal_check(file != nullptr, "Snapshot::fetch: {} has no file {}", repo_.id, path);
    // A file without an etag comes from list_folder, so the folder has it.
    if (file->etag.empty() || cached_.holds(commit_, *file)) continue;
    missing.push_back(file);
    if (!cached_.has_blob(*file)) downloads.push_back({*file, file_url(settings_, repo_, commit_, path)});
  }
  if (missing.empty()) return;
  if (!downloads.empty() && !without_network_.empty())
    throw UserError("the copy of {} in {} lacks {}{}, and {}. {}", repo_.id, cached_.path().string(),
                    downloads[0].file.path,
                    downloads.size() > 1 ? fmt::format(" and {} more files", downloads.size() - 1) : "",
                    without_network_, offline_remedy(settings_, repo_));
  const std::string commit = settings_.hub == Hub::kHuggingFace ? commit_.substr(0, 7) : commit_;
  download(settings_, repo_, cached_, std::move(downloads), fmt::format("{} ({})", repo_.id, commit));
  std::map<std::string, int> uses;
  for (const HubFile* file : missing) ++uses[file->etag];
  for (const HubFile* file : missing) {
    cached_.link(commit_, *file, --uses[file->etag] > 0);
    if (file == missing.front()) write_ref();
  }
}

void Snapshot::keep() const {
  std::error_code failed;
  if (fs::create_directories(folder_, failed); !failed) write_ref();
}

void Snapshot::mark_missing(const std::vector<std::string>& paths) const {
  if (!without_network_.empty() || settings_.hub != Hub::kHuggingFace) return;
  for (const std::string& path : paths)
    if (!has(path)) cached_.mark_missing(commit_, path);
}

}  // namespace fettle
