#include "data/read/rows.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/own_program.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "data/read/byte_stream.h"
#include "data/read/data_files.h"
#include "data/read/repeated_key.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using TakeRow = std::function<bool(Row)>;

constexpr size_t kLargestRow = size_t{1} << 28;
constexpr size_t kMostColumns = 100'000;
constexpr std::string_view kRowWord = " (row ";

// Returns the index of the first byte that is zero or not valid UTF-8; npos when there is none.
size_t find_bad_byte(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t i = 0; i < size;) {
    const int32_t begin = i;
    UChar32 code = 0;
    U8_NEXT(bytes, i, size, code);
    if (code <= 0) return static_cast<size_t>(begin);
  }
  return std::string_view::npos;
}

std::string why_bad_text(std::string_view text) {
  if (text.size() > kLargestRow)
    return fmt::format("the row is longer than {} MiB; is this a file of rows?", kLargestRow >> 20);
  const size_t bad = find_bad_byte(text);
  if (bad == std::string_view::npos) return "";
  if (text[bad] == 0) return "the row has a zero byte; is this a binary file?";
  return fmt::format(
      "byte {} of the line (0x{:02x}) is not UTF-8; convert the file, for example with `iconv -f windows-1252 -t "
      "utf-8`",
      bad + 1, static_cast<unsigned char>(text[bad]));
}

class Reader {
 public:
  Reader(const std::filesystem::path& file, const TakeRow& take) : bytes_(file), name_(file.string()), take_(take) {}

  void lines() {
    std::string line;
    for (int64_t number = 1; bytes_.line(line, kLargestRow); ++number)
      if (!is_blank(line) && !json(line, number)) return;
  }

  void json_file() {
    int64_t number = 1;
    const int first = skip_space(number);
    if (first == '[') {
      bytes_.next();
      return elements(number);
    }
    if (first != '{' && first >= 0)
      throw UserError("{}:{}: a JSON file of rows must begin with [ or {{, but this file begins with {}", name_, number,
                      first > ' ' && first < 0x7f ? fmt::format("'{}'", static_cast<char>(first))
                                                  : fmt::format("the byte 0x{:02x}", first));
    // Each line must be one object.
    std::string line;
    for (; bytes_.line(line, kLargestRow); ++number) {
      if (is_blank(line)) continue;
      if (continues(line))
        throw UserError("{}:{}: rows must be in a JSON array, or one object per line; this object has several lines",
                        name_, number);
      if (!json(line, number)) return;
    }
  }

  // If `separator_said` is true, line 1 only names the separator.
  void table(char separator, bool separator_said) {
    if (separator != ',' && separator != '\t') info("data: the columns of {} are separated by '{}'", name_, separator);
    std::vector<std::string> head, cells;
    int64_t number = 1;
    if (std::string line; separator_said && bytes_.line(line, kLargestRow)) ++number;
    int64_t begin = number;
    if (!record(separator, head, number)) return;
    name_columns(head, begin);
    while (true) {
      begin = number;
      if (!record(separator, cells, number)) return;
      if (cells.size() == 1 && cells[0].empty()) continue;
      Row row{.line = begin};
      for (const std::string& cell : cells)
        if (row.bad.empty()) row.bad = why_bad_text(cell);
      if (row.bad.empty() && cells.size() != head.size())
        row.bad = fmt::format("the row has {} cells, but the head line has {} columns", cells.size(), head.size());
      if (row.bad.empty())
        for (size_t i = 0; i < head.size(); ++i) row.value[head[i]] = std::move(cells[i]);
      if (!take_(std::move(row))) return;
    }
  }

  void text(TextRows rows) {
    std::string line, text;
    int64_t begin = 1;
    const auto take = [&] {
      if (is_blank(text)) return true;
      Row row{.line = begin, .bad = why_bad_text(text)};
      if (row.bad.empty()) row.value["text"] = std::move(text);
      return take_(std::move(row));
    };
    for (int64_t number = 1; bytes_.line(line, kLargestRow); ++number) {
      const bool begins = rows == TextRows::kLine || number == 1 ||
                          (rows == TextRows::kParagraph && (is_blank(line) || is_blank(text)));
      if (begins) {
        if (!take()) return;
        text = std::move(line);
        begin = number;
      } else if (text.size() <= kLargestRow) {
        text += '\n' + line;
      }
    }
    take();
  }

 private:
  // Gives names to columns that have none, as pandas does. pandas writes a table's index without a name. Throws
  // UserError for a head line without any name, and for two columns with the same name.
  void name_columns(std::vector<std::string>& head, int64_t line) const {
    if (std::ranges::all_of(head, [](const std::string& column) { return is_blank(column); }))
      throw UserError("{}:{}: the head line has no names; write the names of the columns into it", name_, line);
    std::string made;
    for (size_t i = 0; i < head.size(); ++i) {
      if (!is_blank(head[i])) continue;
      const std::string name = fmt::format("Unnamed: {}", i);
      std::string free = name;
      for (int64_t taken = 1; std::ranges::count(head, free) > 0; ++taken) free = fmt::format("{}.{}", name, taken);
      head[i] = free;
      made += (made.empty() ? "'" : ", '") + free + "'";
    }
    if (!made.empty()) info("data: columns of {} without a name are called {}", name_, made);
    for (const std::string& column : head)
      if (std::ranges::count(head, column) > 1)
        throw UserError(
            "{}:{}: two columns are called '{}'; rename one of them, or add a head line if line {} is a row", name_,
            line, column, line);
  }

  int skip_space(int64_t& number) {
    while (true) {
      const int c = bytes_.peek();
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c;
      if (bytes_.next() == '\n') ++number;
    }
  }

  // Returns whether the object that begins on `line` (the last line that was read) continues on the next line. An
  // object that was cut off does not continue: after it comes another row, a blank line or the end of the file.
  bool continues(std::string_view line) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (quoted) {
        if (line[i] == '\\')
          ++i;
        else if (line[i] == '"')
          quoted = false;
      } else if (line[i] == '"') {
        quoted = true;
      } else {
        depth += line[i] == '{' || line[i] == '[';
        depth -= line[i] == '}' || line[i] == ']';
      }
    }
    const int next = bytes_.peek();
    return !quoted && depth > 0 && next >= 0 && next != '{' && next != '\n' && next != '\r';
  }

  bool json(std::string& text, int64_t line) {
    if (text.size() > kLargestRow) return take_({.line = line, .bad = why_bad_text(text)});
    return take_({.line = line, .text = std::exchange(text, {})});
  }

  // Appends a byte, but stops at kLargestRow + 1 bytes. A text of this length shows that the row is too long.
  static void append(std::string& text, int byte) {
    if (text.size() <= kLargestRow) text += static_cast<char>(byte);
  }

  // Skips what is between two elements of an array. Returns the byte after it.
  int skip_to_element(int64_t& number) {
    int c = skip_space(number);
    for (; c == ','; c = skip_space(number)) bytes_.next();
    return c;
  }

  // Reads the elements of an array. Finds the end of each element by counting brackets, so that a broken element has a
  // place and reading continues after it. If the first two elements begin on the same line, all elements are numbered.
  void elements(int64_t number) {
    std::string text;
    bool numbered = false;
    int c = skip_to_element(number);
    for (int64_t element = 1; c != ']'; ++element) {
      if (c < 0) throw UserError("{}:{}: the array of rows is not closed by ], so the file was cut off", name_, number);
      const int64_t begin = number;
      text.clear();
      int depth = 0;
      bool quoted = false;
      while ((c = bytes_.peek()) >= 0) {
        if (!quoted && depth == 0 && (c == ',' || c == ']')) break;
        append(text, bytes_.next());
        if (c == '\n') ++number;
        if (quoted) {
          if (c == '\\' && bytes_.peek() >= 0)
            append(text, bytes_.next());
          else if (c == '"')
            quoted = false;
        } else if (c == '"') {
          quoted = true;
        } else {
          depth += c == '{' || c == '[';
          depth -= c == '}' || c == ']';
        }
      }
      if (c < 0 && (quoted || depth > 0))
        throw UserError("{}: the row that begins here is not closed, so the file was cut off",
                        row_place(name_, numbered ? -element : begin));
      c = skip_to_element(number);
      if (element == 1) numbered = c >= 0 && c != ']' && number == begin;
      if (!json(text, numbered ? -element : begin)) return;
    }
    bytes_.next();
    if (skip_space(number) >= 0)
      throw UserError("{}:{}: the file continues after the ] of its array; wanted one array, or one object per line",
                      name_, number);
  }

  // Reads one record of a table: cells with `separator` between them. Quoted cells may have separators, line ends and
  // doubled quotes. Returns false at the end of the file.
  bool record(char separator, std::vector<std::string>& cells, int64_t& number) {
    if (bytes_.peek() < 0) return false;
    const int64_t begin = number;
    cells.assign(1, "");
    bool quoted = false, was_quoted = false;
    for (int c = bytes_.next(); c >= 0; c = bytes_.next()) {
      if (c == '\n') ++number;
      if (quoted) {
        if (c != '"') {
          append(cells.back(), c);
        } else if (bytes_.peek() == '"') {
          append(cells.back(), bytes_.next());
        } else {
          quoted = false;
        }
      } else if (c == '"' && cells.back().empty() && !was_quoted) {
        quoted = was_quoted = true;
      } else if (c == separator) {
        if (cells.size() <= kMostColumns) cells.emplace_back();
        was_quoted = false;
      } else if (c == '\n') {
        return true;
      } else if (!(c == '\r' && bytes_.peek() == '\n')) {
        append(cells.back(), c);
      }
    }
    if (quoted) throw UserError("{}:{}: a quote that opens in this row is not closed", name_, begin);
    return true;
  }

  ByteStream bytes_;
  std::string name_;
  const TakeRow& take_;
};

// Returns the character that a line of the form `sep=;` names; nullopt for other lines. Excel reads such a first line.
std::optional<char> said_separator(std::string line) {
  std::erase(line, '"');
  if (line.size() != 5 || !lower_case(line).starts_with("sep=")) return std::nullopt;
  return line[4];
}

// Returns the separator of a .csv file: the one that the first line names, or else the first of comma, semicolon, tab
// and bar that occurs in this line. Returns a comma if none of them occurs.
char separator_of(const std::string& head) {
  if (const std::optional<char> said = said_separator(head)) return *said;
  const auto outside_quotes = [&](char wanted) {
    bool quoted = false;
    int64_t count = 0;
    for (char c : head) {
      if (c == '"') quoted = !quoted;
      count += !quoted && c == wanted;
    }
    return count;
  };
  for (char separator : {',', ';', '\t', '|'})
    if (outside_quotes(separator) > 0) return separator;
  return ',';
}

void read_table(const std::filesystem::path& file, std::string_view kind, Reader& reader) {
  if (kind == ".tsv") return reader.table('\t', false);
  std::string line;
  ByteStream(file).line(line, kLargestRow);
  reader.table(separator_of(line), said_separator(line).has_value());
}

// Reads a Parquet or Arrow file with a module.
void read_columns(const std::string& file, const TakeRow& take) {
  using Read = void (*)(const std::string&, const TakeRow&);
  static const Read read = [] {
    std::string fault;
    void* const found = symbol_of_module(kColumnsModule, "fettle_read_columns", fault);
    if (found == nullptr)
      throw UserError(
          "Parquet and Arrow files need {}, which cannot be loaded: {}; build the target fettle_columns, or convert "
          "the file to jsonl",
          module_file(kColumnsModule).string(), fault);
    return reinterpret_cast<Read>(found);
  }();
  read(file, take);
}

}  // namespace

void Row::parse() {
  if (text.empty() || !bad.empty()) return;
  bad = why_bad_text(text);
  if (!bad.empty()) return;
  try {
    value = parse_json<ordered_json>(text);
    large_integers = fettle::large_integers(text);
  } catch (const UserError& error) {
    bad = fmt::format("not valid JSON: {}", error.what());
    return;
  }
  if (const std::string key = repeated_key(text, value); !key.empty())
    bad = fmt::format("an object has the key '{}' twice; remove one of them", key);
  else if (!value.is_object())
    bad = fmt::format("a row must be a JSON object, but this is {}", value.type_name());
  text.clear();
}

std::string row_place(const std::string& file, int64_t line) {
  return line < 0 ? fmt::format("{}{}{})", file, kRowWord, -line) : fmt::format("{}:{}", file, line);
}

std::string file_of_place(const std::string& place) {
  const size_t row = place.ends_with(')') ? place.rfind(kRowWord) : std::string::npos;
  return place.substr(0, row == std::string::npos ? place.rfind(':') : row);
}

std::optional<TextRows> text_rows_named(std::string_view name) {
  const auto found = std::ranges::find(kTextRowNames, name);
  if (found == kTextRowNames.end()) return std::nullopt;
  return static_cast<TextRows>(found - kTextRowNames.begin());
}

void read_rows(const std::filesystem::path& file, const TakeRow& take, TextRows texts) {
  const std::string kind = kind_of(file);
  bool seen = false;
  const TakeRow noted = [&](Row row) { return seen = true, take(std::move(row)); };
  std::error_code unknown;
  if (const auto size = std::filesystem::file_size(file, unknown); !unknown) {
    if (size == 0) throw UserError("{} is empty; write it again", file.string());
    const MappedFile refuses_lfs_pointers(file);
  }
  if (kind == ".parquet" || kind == ".arrow" || kind == ".feather") {
    read_columns(file.string(), noted);
  } else {
    Reader reader(file, noted);
    if (kind == ".jsonl" || kind == ".ndjson")
      reader.lines();
    else if (kind == ".json")
      reader.json_file();
    else if (kind == ".csv" || kind == ".tsv")
      read_table(file, kind, reader);
    else if (is_text(kind))
      reader.text(texts);
    else
      throw UserError("{}: files of kind '{}' cannot be read; wanted one of {} (also with .gz or .zst)", file.string(),
                      kind, fmt::join(kDataEnds, " "));
  }
  if (!seen) throw UserError("{} has no rows; add rows to it", file.string());
}

}  // namespace fettle
