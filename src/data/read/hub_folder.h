// Defines split_files: which files of a folder are one split of a data set, as the Hugging Face Hub lays them out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

// The files of `split` ("" = train, or the only one there is) and `subset` ("" = the default or only one), in order:
// - as the `configs` in the head of the folder's README.md say, where there are any;
// - else by names like train-00000-of-00002.parquet: what stands before the numbers is the split;
// - else by words in the names of files and folders within (train, training; validation, valid, val, dev; test,
//   testing, eval, evaluation);
// - else all files, when none has such a word.
// A subset that README.md does not name is a folder within. Throws UserError listing the splits or subsets there are.
std::vector<std::filesystem::path> split_files(const std::filesystem::path& folder, const std::string& subset,
                                               const std::string& split);

}  // namespace fettle
