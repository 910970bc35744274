// Defines DataSource and find_source: what an item of `dataset` names, by LLaMA-Factory's dataset_info.json or a path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

// Where rows are and how to read them.
struct DataSource {
  std::string name;                            // as the recipe has it
  std::vector<std::filesystem::path> files;    // in order
  std::string formatting;                      // alpaca, sharegpt, or empty: told by each row's columns
  std::map<std::string, std::string> columns;  // what (prompt, query, response, ...) -> the row's column
  std::map<std::string, std::string> tags;     // role_tag, content_tag, user_tag, ... -> the row's word
  std::optional<int64_t> num_samples;          // take as many, chosen by the seed
  bool ranking = false;                        // the rows are pairs of replies

  // The row's column for `what`: as the entry says, else `otherwise`.
  std::string column(const std::string& what, const std::string& otherwise = "") const;
  std::string tag(const std::string& what, const std::string& otherwise) const;
};

// `name` is a file, a folder (of which the split train is taken, see hub_folder.h), a pattern with * or ?, or an entry
// of dataset_dir/dataset_info.json. Throws UserError naming the nearest entry for an unknown name, and the nearest key
// for an unknown key of the entry.
DataSource find_source(const std::string& name, const std::filesystem::path& dataset_dir);

}  // namespace fettle
