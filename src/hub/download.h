// Defines download, which fetches files of a repository into the cache, several at a time. A file gets its final name
// only after its checksum has been checked.
#pragma once

#include <string>
#include <vector>

#include "hub/listing.h"
#include "hub/repo_folder.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

struct Download {
  HubFile file;
  std::string url;
};

// Fetches those of `files` whose content (blob) the cache lacks. Each blob is written to blobs/ETAG.incomplete and
// renamed when its size and checksum are right. After an interruption, the next call continues the incomplete file.
// After a broken or stalled connection or a transient status (is_transient), Fettle tries again; after 5 attempts in a
// row without a new byte, the download fails. Waits for other processes that fetch the same blob. Shows progress under
// the name `title`. A signal ends the download and keeps the incomplete files. Throws HubRefusal when the hub refuses a
// file (its terms are not accepted), UserError when a file cannot be fetched or its content is wrong twice, and
// DoesNotFit when the disk is full.
void download(const HubSettings& settings, const RepoName& repo, const RepoFolder& folder, std::vector<Download> files,
              const std::string& title);

}  // namespace fettle
