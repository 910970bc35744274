// Defines run_download and check_recipe_download, for the command `fettle download`.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace fettle {

struct DownloadOptions {
  std::string name;      // a repository of a hub, or a GGUF file in one (read_hub_gguf); or a recipe's file
  std::string revision;  // empty: the main branch
  bool dataset = false, modelscope = false;
  bool without_weights = false;      // a model's config and tokenizer only
  bool all = false;                  // every file of the repository
  std::vector<std::string> include;  // patterns of the files to fetch; * also matches /
  std::string subset, split;         // the part of a data set to fetch (HubPart); both empty: all
};

// Fetches a model, a GGUF file, an adapter or a data set into the hub's cache: the files that Fettle reads, or the
// files that the options ask for. Writes the path of the folder or of the GGUF file to `out`. Throws UserError for
// options that exclude each other, and the errors of Snapshot.
int run_download(const DownloadOptions& options, std::ostream& out);

// Throws UserError if an option does not apply to a recipe. Only --no-weights and --modelscope do.
void check_recipe_download(const DownloadOptions& options);

}  // namespace fettle
