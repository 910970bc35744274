// Defines Snapshot: one commit of a repository, whose files are fetched when they are asked for.
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
  // Asks the hub for the commit of repo.revision and for its files, once in the life of the process. Asks nothing when
  // the revision is a commit whose files are known. When the hub cannot be reached or HF_HUB_OFFLINE is set, takes what
  // the cache has of the revision, and says so. Throws HubRefusal, and UserError with the remedy when there is neither
  // a network nor a copy.
  static Snapshot open(const HubSettings& settings, const RepoName& repo);

  const std::string& commit() const { return commit_; }
  // The files of the commit. Without a network they may be only those that the cache has.
  const Listing& files() const { return files_; }
  bool has(const std::string& path) const { return find_file(files_, path) != nullptr; }
  // The folder of this commit. It has the files that were fetched, now or before.
  const std::filesystem::path& folder() const { return folder_; }

  // Fetches those of the files that are not in the folder yet. All of them must be in files(). Throws UserError when
  // one cannot be fetched; none of the files in the folder is ever a part of one.
  void fetch(const std::vector<std::string>& paths) const;
  // Notes, for huggingface_hub, which of the files the commit lacks.
  void mark_missing(const std::vector<std::string>& paths) const;

 private:
  Snapshot(const HubSettings& settings, const RepoName& repo)
      : settings_(settings), repo_(repo), cached_(settings, repo) {}
  bool ask();
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
