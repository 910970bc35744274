// Defines DataSource and find_source: an item of `dataset` names an entry of LLaMA-Factory's dataset_info.json or a
// path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hub/settings.h"

namespace fettle {

// Where rows are and how to read them.
struct DataSource {
  std::string name;                            // as the recipe gives it
  std::vector<std::filesystem::path> files;    // in order
  std::string formatting;                      // alpaca, sharegpt, openai; "" detects it from each row's columns
  std::map<std::string, std::string> columns;  // what (prompt, query, response, ...) -> the row's column
  std::map<std::string, std::string> tags;     // role_tag, content_tag, user_tag, ... -> the row's word
  std::optional<int64_t> num_samples;          // rows to take, chosen by the seed
  bool ranking = false;                        // the rows are preference pairs

  // Returns the name of the row's column for `what`: the entry's name for it, else `otherwise`.
  std::string column(const std::string& what, const std::string& otherwise = "") const;
  std::string tag(const std::string& what, const std::string& otherwise) const;
};

// `name` is a file, a folder (whose split `train` is taken, see hub_folder.h), a pattern with * or ?, or an entry of
// dataset_dir/dataset_info.json, or with `hub` the name of a data set there (ORG/NAME, also with @REVISION). The files
// of an entry or a data set that are on a hub are fetched. Throws UserError for an unknown name and for an unknown key
// of an entry; the message suggests the nearest known one.
DataSource find_source(const std::string& name, const std::filesystem::path& dataset_dir,
                       const std::optional<HubSettings>& hub = std::nullopt);

}  // namespace fettle
