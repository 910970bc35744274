// Defines RepoFolder: the folder of one repository in the cache. Its layout is that of huggingface_hub:
//
//   models--ORG--NAME/refs/REVISION           the commit of the branch or tag of which a file was fetched last
//   models--ORG--NAME/blobs/ETAG              a file's content, named by its checksum
//   models--ORG--NAME/blobs/ETAG.incomplete   the part of a blob that an earlier download fetched
//   .../blobs/ETAG.NAME.incomplete            the part that a process is fetching
//   models--ORG--NAME/snapshots/COMMIT/PATH   a link to a blob
//   models--ORG--NAME/.no_exist/COMMIT/PATH   marks a file that was requested but is not in the commit
//   models--ORG--NAME/trees/COMMIT.json       the listing of the commit
//   .locks/models--ORG--NAME/ETAG.lock        locked by the process that fetches the blob
#pragma once

#include <filesystem>
#include <string>

#include "hub/listing.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

class RepoFolder {
 public:
  // Throws UserError when the settings have no cache folder. The folder of a data set begins with datasets-- instead of
  // models--. For ModelScope, the folder is models/ORG--NAME or datasets/ORG--NAME.
  RepoFolder(const HubSettings& settings, const RepoName& repo);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path snapshot(const std::string& commit) const { return path_ / "snapshots" / commit; }
  std::filesystem::path blob(const std::string& etag) const { return path_ / "blobs" / etag; }
  std::filesystem::path lock(const std::string& etag) const;
  std::filesystem::path tree(const std::string& commit) const { return path_ / "trees" / (commit + ".json"); }

  // Returns the commit to which `revision` pointed when a file of it was fetched last; "" when it is unknown.
  std::string read_ref(const std::string& revision) const;
  void write_ref(const std::string& revision, const std::string& commit) const;

  // Returns whether the snapshot has the complete file with this content. For Hugging Face, compares only the size.
  bool holds(const std::string& commit, const HubFile& file) const;
  // Returns whether the cache has the blob in its full size. Removes a blob of another size, with a warning.
  bool has_blob(const HubFile& file) const;
  // Makes the snapshot's link to the blob. Does nothing if the snapshot has the file already. On a file system without
  // links, moves the blob to the snapshot, or copies it if `needed_again` (another file with the same content follows).
  // Throws UserError when that fails.
  void link(const std::string& commit, const HubFile& file, bool needed_again = false) const;
  void mark_missing(const std::string& commit, const std::string& path) const;
  // Makes the folders. A new cache folder is private (mode 0700); folders inside it follow the umask. Throws UserError
  // when that fails.
  void make() const;

 private:
  // ModelScope names snapshots by their branch, so a snapshot's content may change.
  bool links_change() const { return hub_ == Hub::kModelScope; }

  Hub hub_;
  std::filesystem::path cache_, path_;
};

}  // namespace fettle
