// Defines Row and read_rows, which reads the rows of a data file in order, each with its line number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// One row. Parsing takes most of the time of reading JSON. So read_rows leaves the JSON text of a row unparsed, and the
// caller calls parse(), perhaps on another thread.
struct Row {
  int64_t line = 0;                         // where the row is in the file (row_place)
  std::string text;                         // JSON text for parse(); "" when `value` is set
  nlohmann::ordered_json value;             // an object with the row's values by column
  std::vector<std::string> large_integers;  // integers of more than 64 bits in the text; `value` has floats instead
  std::string bad;                          // why the row cannot be read; "" when it can be read

  // Sets `value` and `large_integers` from `text`, or sets `bad` to the fault: not JSON, not an object, a repeated key,
  // not UTF-8, or nested too deeply.
  void parse();
};

// Returns where a row is, for messages. `line` is the first line of the row, from 1; in Parquet and Arrow files, the
// number of the row. The result is then "FILE:LINE". If `line` is negative, it is minus the number of the row, because
// rows of the file share lines. The result is then "FILE (row NUMBER)".
std::string row_place(const std::string& file, int64_t line);
// Returns FILE of a text that row_place made.
std::string file_of_place(const std::string& place);

// What becomes a row of a text file: a line that is not blank, the lines between blank lines, or the whole file. The
// names are those of the text loader of Hugging Face's datasets.
enum class TextRows { kLine, kParagraph, kDocument };
inline constexpr std::array<std::string_view, 3> kTextRowNames = {"line", "paragraph", "document"};
// Returns nullopt when the name is unknown.
std::optional<TextRows> text_rows_named(std::string_view name);

// The module that reads Parquet and Arrow files (src/data/columns).
inline constexpr const char* kColumnsModule = "fettle_columns.so";

// Reads the rows of a file, and calls `take` for each row until `take` returns false. The ending of the name decides
// the format:
// - .json: an array of objects, or one object per line; .jsonl and .ndjson: one object per line;
// - .csv and .tsv: a head line, then one row per record, with strings as values. If the head line of a .csv file has no
//   comma, the separator is ; or tab or |. A line such as `sep=;` before the head line names the separator. A column
//   without a name is called "Unnamed: N", where N counts the columns from 0;
// - .txt, .text, .md and .markdown: rows {"text": ...}, as `texts` says; line ends become \n;
// - any of these with .gz or .zst;
// - .parquet; .arrow and .feather (Arrow's file and stream formats).
// Sets Row::bad for a row that cannot be used, for example because it is larger than 256 MiB. Throws UserError when the
// file cannot be read, is cut off or broken, or has no rows.
void read_rows(const std::filesystem::path& file, const std::function<bool(Row)>& take,
               TextRows texts = TextRows::kLine);

}  // namespace fettle
