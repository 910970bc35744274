// Defines Row and read_rows: the rows of a data file in order, each with its line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fettle {

// Parsing is most of reading JSON, so it is left to the caller, who may do it on another thread.
struct Row {
  int64_t line = 0;              // from 1, where the row begins; in files of columns the row's number
  std::string text;              // JSON that parse() has yet to read; "" when `value` is there
  nlohmann::ordered_json value;  // an object: column -> value
  std::string bad;               // why the row cannot be read; "" when it can

  // Makes `value` of `text`, or says in `bad` why that cannot be: no JSON, no object, a key twice, not UTF-8, nested
  // too deep.
  void parse();
};

// Reads by the name's end: .json (an array of objects, or one object a line), .jsonl or .ndjson, .csv (with commas, or
// what its head line has instead: ; tab |) and .tsv (with a head line; values are strings), .txt (each line that is not
// blank is a row {"text": line}); each also compressed
// (.gz, .zst); and .parquet, .arrow and .feather (Arrow's file and stream formats). Calls `take` for each row until it
// gives false. Rows that are wrong alone, as one of more than 256 MiB, are given with `bad` set.
// Throws UserError for a file that cannot be read, is cut off or broken, or holds no rows.
void read_rows(const std::filesystem::path& file, const std::function<bool(Row)>& take);

// The files that `path` names: itself, a folder's data files (in order of name, folders within included), or those
// that match it as a pattern (* ? [ ], also in names of folders). Throws UserError when there is none, or a folder
// cannot be read.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);
// Whether `path` is a file, a folder, or a pattern that a file matches.
bool names_something(const std::filesystem::path& path);

// What a file is read as: its ending in lower case, without that of a compressed file (".jsonl" of rows.JSONL.gz).
std::string kind_of(const std::filesystem::path& file);

}  // namespace fettle
