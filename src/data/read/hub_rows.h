// Defines fetch_split: the files of one split of a data set on a hub.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// Which part of a data set is wanted.
struct HubPart {
  std::string subset;  // empty: the default or only one
  std::string split;   // empty: train, or the only one
  std::string folder;  // where the files are in the repository; empty: everywhere
};

// Fetches the files that choose_split (hub_folder.h) finds in the repository's listing, and no others. A data set that
// a Python script makes is taken from the branch refs/convert/parquet, where the hub keeps its rows as
// SUBSET/SPLIT/NNNN.parquet. Throws UserError like Snapshot and choose_split, and when no file can be read as rows.
std::vector<std::filesystem::path> fetch_split(const HubSettings& settings, const RepoName& repo, const HubPart& part);

}  // namespace fettle
