// Defines fetch_split and fetch_rows, which fetch one split of a data set on a hub, or all of its rows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// Which part of a data set is wanted.
struct HubPart {
  std::string subset;  // empty: the default subset, or the only one
  std::string split;   // empty: train, or the only split
  std::string folder;  // folder of the files in the repository; empty: all folders
  // Paths or patterns (see matches_path) of the files within `folder`; empty: the files of the split.
  std::vector<std::string> files = {};
};

// Fetches only the files that choose_split (hub_folder.h) finds in the repository's listing, and returns their paths.
// If part.files is set, it alone decides which files these are, and their order.
// Fetches files of the branch refs/convert/parquet instead when this branch exists, and either a Python script makes
// the data set or the listing has no data file. (Only Hugging Face has this branch; it is not used for a `repo` with a
// revision.) In this branch, the hub keeps rows as SUBSET/SPLIT/NNNN.parquet. Throws UserError like Snapshot and
// choose_split, and when no file can be read as rows.
std::vector<std::filesystem::path> fetch_split(const HubSettings& settings, const RepoName& repo, const HubPart& part);

// Fetches all files that fetch_split may read: those of all subsets and splits. Returns the folder in the cache that
// has them. Throws UserError like fetch_split.
std::filesystem::path fetch_rows(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
