// Defines Row and read_rows: the rows of a data file in order, each with its line number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fettle {

// One row. Parsing takes most of the time of reading JSON, so the caller parses a row, perhaps on another thread.
struct Row {
  int64_t line = 0;              // where the row begins, from 1; in Parquet and Arrow files the number of the row
  std::string text;              // JSON that parse() must still read; "" when `value` is set
  nlohmann::ordered_json value;  // an object: column -> value
  std::string bad;               // why the row cannot be read; "" when it can

  // Sets `value` from `text`, or sets `bad` to the fault: not JSON, not an object, a repeated key, not UTF-8, or nested
  // too deeply.
  void parse();
};

// The ending of the name decides how the file is read: .json (an array of objects, or one object a line); .jsonl or
// .ndjson; .csv (separated by commas, else by ; tab or | as in the head line) and .tsv, both with a head line and with
// strings as values; .txt (each line that is not blank is a row {"text": line}); any of these with .gz or .zst;
// .parquet, .arrow and .feather (Arrow's file and stream formats). Calls `take` for each row until it returns false. A
// row that cannot be used, for example because it is larger than 256 MiB, has `bad` set. Throws UserError when the file
// cannot be read, is cut off or broken, or holds no rows.
void read_rows(const std::filesystem::path& file, const std::function<bool(Row)>& take);

// The files that `path` names, sorted: a file itself, the data files of a folder and its subfolders, or the files that
// match a pattern (* ? [ ], also in names of folders). Throws UserError when there is none, or a folder cannot be read.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);
// Whether `path` is a file, a folder, or a pattern that matches a file.
bool names_something(const std::filesystem::path& path);

// Whether the name has the ending of a file of rows. False for files that describe a data set (dataset_info.json, ...).
bool is_data_file(const std::filesystem::path& file);

// Returns the lower-case ending that decides how the file is read, without .gz or .zst (".jsonl" for rows.JSONL.gz).
std::string kind_of(const std::filesystem::path& file);

}  // namespace fettle
