// Defines Snapshot: one commit of a repository. Its files are fetched on request.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/listing.h"
#include "hub/repo_folder.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

class Snapshot {
 public:
  // Finds the commit of repo.revision and the list of the commit's files. Asks the hub for both, once per process.
  // Sends no request when the revision is a commit whose list is in the cache. Uses the cache's copy of the revision
  // when settings.offline is true. Also uses the copy, with a message, when the hub cannot be reached or refuses; then
  // the process does not ask for this revision again.
  // Throws HubRefusal when the revision does not exist, and when the hub refuses and there is no copy. Throws UserError
  // with the remedy when there is neither a network nor a copy.
  static Snapshot open(const HubSettings& settings, const RepoName& repo);

  const std::string& commit() const { return commit_; }
  // Returns the files of the commit. Without a network, these may be only the files that the cache has.
  const Listing& files() const { return files_; }
  // Returns whether files can be fetched that the cache does not have.
  bool online() const { return without_network_.empty(); }
  bool has(const std::string& path) const { return find_file(files_, path) != nullptr; }
  // Returns whether fetch() can make the file appear in the folder: with a network any file of files(), without one
  // only those that the cache has. `path` must be in files().
  bool can_fetch(const std::string& path) const;
  // Returns the folder of this commit in the cache. It contains the files that were fetched so far.
  const std::filesystem::path& folder() const { return folder_; }

  // Fetches the files that the folder lacks. All `paths` must be in files(). At any time, every file in the folder is
  // complete. Throws UserError when a file cannot be fetched.
  void fetch(const std::vector<std::string>& paths) const;
  // Makes the folder. A later run without a network then finds this commit, even if no file of it was fetched.
  void keep() const;
  // Records in the cache which of these files the commit lacks, as huggingface_hub does. Does nothing without a
  // network, and for ModelScope.
  void mark_missing(const std::vector<std::string>& paths) const;

 private:
  Snapshot(const HubSettings& settings, const RepoName& repo)
      : settings_(settings), repo_(repo), cached_(settings, repo) {}
  void ask();
  void write_ref() const;
  void take_cached(const std::string& why);

  HubSettings settings_;
  RepoName repo_;
  RepoFolder cached_;
  std::string commit_;
  std::string without_network_;  // why nothing can be fetched; "" when it can
  std::filesystem::path folder_;
  Listing files_;
};

}  // namespace fettle
