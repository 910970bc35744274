// Defines what Fettle asks a hub: the commit of a revision, the files of a commit, and where a file is fetched from.
#pragma once

#include <string>

#include "base/error.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// A hub refused. The message says what was asked for and what the user can do.
class HubRefusal : public UserError {
 public:
  enum class Reason { kNoRepo, kNoRevision, kNoAccess, kOther };
  HubRefusal(Reason reason, const std::string& what) : UserError("{}", what), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

// Returns the commit of a branch, tag or commit ("main" when repo.revision is empty), in 40 digits. ModelScope's
// snapshots are named by the revision itself ("master" when it is empty). `attempts`: see http_get. Throws HubRefusal,
// and HttpFailure when the hub cannot be reached.
std::string find_commit(const HubSettings& settings, const RepoName& repo, int attempts);

// Returns all files of the commit. Throws as find_commit.
Listing list_files(const HubSettings& settings, const RepoName& repo, const std::string& commit);

std::string file_url(const HubSettings& settings, const RepoName& repo, const std::string& commit,
                     const std::string& path);
// The page of the repository, for messages.
std::string page_url(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
