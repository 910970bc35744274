// Defines download: fetches files of a repository in parallel into the cache, each checked before it gets its name.
#pragma once

#include <string>
#include <vector>

#include "hub/listing.h"
#include "hub/repo_folder.h"
#include "hub/settings.h"

namespace fettle {

struct Download {
  HubFile file;
  std::string url;
};

// Makes the blobs of all files that are not there yet. A file is fetched into blobs/ETAG.incomplete, continues there
// after an interruption, and is renamed when its size and checksum are right. A broken or stalled connection and a
// transient status are tried again, 5 times without a new byte. Waits for other processes that fetch the same blob.
// Shows progress under the name `title`. An interrupt ends it with the parts kept. Throws UserError when a file cannot
// be fetched, when its content is wrong twice, and when the disk is full.
void download(const HubSettings& settings, const RepoFolder& folder, std::vector<Download> files,
              const std::string& title);

}  // namespace fettle
