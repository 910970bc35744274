// Defines the requests to a hub: the commit of a revision, the files of a commit, and the address of a file.
#pragma once

#include <string>

#include "base/error.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// Returns the full commit hash (40 digits) of repo.revision, a branch, tag or commit. An empty revision means the
// branch main. For ModelScope, returns the revision itself, or "master" if it is empty or "main". `attempts`: see
// http_get. Throws HubRefusal, and HttpFailure when the hub cannot be reached.
std::string find_commit(const HubSettings& settings, const RepoName& repo, int attempts);

// Returns all files of the commit. Throws like find_commit.
Listing list_files(const HubSettings& settings, const RepoName& repo, const std::string& commit);

// Returns repo.revision, or the name of the hub's usual branch when it is empty. For ModelScope, the usual branch is
// "master", and "main" also means "master".
std::string revision_of(const HubSettings& settings, const RepoName& repo);
std::string file_url(const HubSettings& settings, const RepoName& repo, const std::string& commit,
                     const std::string& path);
// Returns the address of the repository's web page, for messages.
std::string page_url(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
