// Defines throw_refusal, which explains why a hub refused a request and what the user can do.
#pragma once

#include "hub/hub_api.h"

namespace fettle {

// Throws HubRefusal for a reply other than 200. Asks the hub for similar names, or for the branches and tags, when the
// name or the revision does not exist.
[[noreturn]] void throw_refusal(const HubSettings& settings, const RepoName& repo, const HttpReply& reply);

// Returns what to do on a machine that cannot reach the hub, for example "Run `fettle download ...` where there is a
// network ...".
std::string offline_remedy(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
