// Defines read_rows: the rows of a data file, one JSON object each, with the place they came from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fettle {

struct Row {
  nlohmann::ordered_json value;  // an object: column -> value
  std::string source;            // "file:line", from 1
};

struct RowSink {
  std::function<bool(Row)> row;                                                // false: no more rows are wanted
  std::function<void(const std::string& source, const std::string& why)> bad;  // a row that cannot be read
};

// Reads by the name's end: .json (an array of objects, or one object a line), .jsonl or .ndjson, .csv and .tsv (with a
// head line; values are strings), .txt (each line that is not blank is a row {"text": line}); each also compressed
// (.gz, .zst); and .parquet, .arrow and .feather (Arrow's file and stream formats), where the line is the row's number.
// Throws UserError for a file that cannot be read, is not UTF-8 text or holds no rows.
void read_rows(const std::filesystem::path& file, const RowSink& sink);

// The files that `path` names: itself, a folder's data files (in order of name, folders within included), or those
// that match its last part (* and ?). Throws UserError when there is none.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

}  // namespace fettle
