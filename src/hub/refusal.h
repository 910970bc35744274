// Defines throw_refusal, which explains why a hub refused a request and what the user can do.
#pragma once

#include "hub/hub_api.h"

namespace fettle {

// Throws HubRefusal for a reply other than 200. If the name does not exist, first asks the hub for similar names. If
// the revision does not exist, first asks for the branches and tags.
[[noreturn]] void throw_refusal(const HubSettings& settings, const RepoName& repo, const HttpReply& reply);

// Returns what to do on a machine that cannot reach the hub, for example "Run `fettle download ...` where there is a
// network ...".
std::string offline_remedy(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
