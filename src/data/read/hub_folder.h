// Defines choose_split, which finds the files of one split in a data set folder laid out as on the Hugging Face Hub.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

// The file that save_to_disk of the datasets library writes beside a folder for each split.
inline constexpr const char* kSavedSplits = "dataset_dict.json";

// A folder and the names of its data files. If the data set has a README.md or kSavedSplits, it must be on disk. The
// data files need not be on disk yet.
struct DataFolder {
  std::filesystem::path path;
  std::vector<std::string> files;  // paths inside the folder, sorted
  // Of a data set on a hub: its name, and what names the folder in an item of the recipe's `dataset`, such as
  // "hf_hub_url: ORG/NAME". Messages show these instead of the path of the cache.
  std::string name = {}, item = {};
};

// Returns the sentence which says how to name a subset or a split ("" for none) of a data set on a hub. `name` and
// `item` are as in DataFolder.
std::string naming_remedy(const std::string& name, const std::string& item, const std::string& subset,
                          const std::string& split);

// Returns the files of `split` ("" means train, or the only split) and `subset` ("" means the default subset, or the
// only one), sorted by name. The first of these rules that applies decides:
// - the `configs` in the head of the folder's README.md;
// - if there is a dataset_dict.json, the names of the subfolders;
// - names like train-00000-of-00002.parquet, perhaps with more before the dot: the part before the numbers is the
//   split; other files beside these belong to the split that a word in their names says (see below), but only if it has
//   no files with such numbers;
// - words in the names of files and subfolders (train, training; validation, valid, val, dev; test, testing, eval,
//   evaluation);
// - without any of these, all files.
// If README.md does not name files, one of several files that differ only in their ending is read (without_copies). A
// subset that README.md does not name is a subfolder. Throws UserError, which lists the splits or subsets, when the
// wanted split or subset does not exist.
std::vector<std::string> choose_split(const DataFolder& folder, const std::string& subset, const std::string& split);
// Returns the files that choose_split chooses in a folder that is completely on disk. If links give a file several
// names among them, only the first one counts. Throws like files_within and choose_split.
std::vector<std::filesystem::path> split_files(const std::filesystem::path& folder, const std::string& subset,
                                               const std::string& split);

}  // namespace fettle
