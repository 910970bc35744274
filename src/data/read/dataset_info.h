// Defines DataSource and find_source, which finds the rows that an item of the recipe's `dataset` names: an entry of
// LLaMA-Factory's dataset_info.json, a path, or a name on a hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/prompt_format.h"
#include "data/read/rows.h"
#include "hub/settings.h"

namespace fettle {

// Where rows are and how to read them.
struct DataSource {
  std::string name;                          // the name that the recipe gives
  std::vector<std::filesystem::path> files;  // the files of the rows, in this order
  std::string formatting;  // alpaca, sharegpt, openai, alpaca_prompt, text; "" detects it from each row's columns
  std::map<std::string, std::string> columns;  // the column of each part of a row (prompt, query, response, ...)
  // Field and role names in the rows, by tag: {"role_tag", "from"}, ... A role may have several names.
  std::multimap<std::string, std::string> tags;
  std::optional<int64_t> num_samples;  // number of rows to take; the seed chooses them
  std::optional<int64_t> first_rows;   // number of rows to take: the first ones of the set
  std::optional<double> first_share;   // share of the rows to take: the first ones of the set
  bool ranking = false;                // the rows are preference pairs
  bool drop_system = false;            // the system message of a conversation is left out
  bool only_marked = false;            // only messages with a field such as `train: true` are trained
  std::optional<TextRows> sample_by;   // rows of text files; none: DataSpec::sample_by
  std::optional<PromptFormat> prompt;  // alpaca_prompt: the text of the prompt; none: Alpaca's

  // Returns the column that the entry names for the part `what` (for example "prompt"). Returns `otherwise` if the
  // entry names none. tag() returns the first name that the entry gives for the tag `what`, or else `otherwise`.
  std::string column(const std::string& what, const std::string& otherwise = "") const;
  std::string tag(const std::string& what, const std::string& otherwise) const;
};

// Return how messages and tables call an item of the recipe's `dataset`: its name; of JSON: "ORG/NAME (subset, split)".
std::string set_title(const std::string& name);
std::vector<std::string> set_titles(const std::vector<std::string>& names);

// Finds the data set `name`. It may be
// - an entry as JSON text, or the name of an entry in dataset_dir/dataset_info.json;
// - a file, a folder (its split `train`, see hub_folder.h), or a pattern with *, **, ? or [ ];
// - NAME#N: N rows of the set NAME;
// - with `hub`, the name of a data set on that hub: ORG/NAME or ORG/NAME@REVISION; also NAME if dataset_dir is ONLINE;
// - with `hub`, ORG/NAME:SUBSET: a subset of a data set on that hub.
// Relative paths are looked for in the current folder, then in dataset_dir; those of dataset_info.json the other way
// around. A dataset_dir of the form REMOTE:ORG/NAME is a data set on the hub, with its own dataset_info.json. Fetches
// files that are on a hub. Throws UserError for an unknown name and for an unknown key of an entry; the message
// suggests the nearest known name or key.
DataSource find_source(const std::string& name, const std::filesystem::path& dataset_dir,
                       const std::optional<HubSettings>& hub = std::nullopt);

}  // namespace fettle
