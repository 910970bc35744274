// Defines DataSource and find_source: the rows that an item of the recipe's `dataset` names. An item is an entry of
// LLaMA-Factory's dataset_info.json, or a path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/prompt_format.h"
#include "hub/settings.h"

namespace fettle {

// Where rows are and how to read them.
struct DataSource {
  std::string name;                          // the name that the recipe gives
  std::vector<std::filesystem::path> files;  // in order
  std::string formatting;  // alpaca, sharegpt, openai, alpaca_prompt, text; "" detects it from each row's columns
  std::map<std::string, std::string> columns;  // what (prompt, query, response, ...) -> the row's column
  std::map<std::string, std::string> tags;     // role_tag, content_tag, user_tag, ... -> the row's word
  std::optional<int64_t> num_samples;          // rows to take, chosen by the seed
  std::optional<int64_t> first_rows;           // only this many, from the first file on
  std::optional<double> first_share;           // only this share of the rows, from the first file on
  bool ranking = false;                        // the rows are preference pairs
  bool drop_system = false;                    // the system message of a conversation is left out
  std::optional<PromptFormat> prompt;          // alpaca_prompt: the prompt's text, instead of Alpaca's

  // Returns the row's column that holds the part `what`, such as "prompt": the column that the entry names, else
  // `otherwise`.
  std::string column(const std::string& what, const std::string& otherwise = "") const;
  std::string tag(const std::string& what, const std::string& otherwise) const;
};

// `name` is an entry itself as JSON, a file, a folder (of which the split `train` is read, see hub_folder.h), a pattern
// with * or ?, or an entry of dataset_dir/dataset_info.json. With `hub`, it may also be the name of a data set on that
// hub (ORG/NAME or ORG/NAME@REVISION). Fetches files that are on a hub. Throws UserError for an unknown name and for an
// unknown key of an entry; the message suggests the nearest known one.
DataSource find_source(const std::string& name, const std::filesystem::path& dataset_dir,
                       const std::optional<HubSettings>& hub = std::nullopt);

}  // namespace fettle
