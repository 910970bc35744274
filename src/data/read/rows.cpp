#include "data/read/rows.h"

#include <dlfcn.h>
#include <glob.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/pattern.h"
#include "base/text.h"
#include "data/read/byte_stream.h"
#include "data/read/hub_folder.h"
#include "data/read/repeated_key.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using TakeRow = std::function<bool(Row)>;

constexpr size_t kLargestRow = size_t{1} << 28;
constexpr size_t kMostColumns = 100'000;
// If files with the same name have several of these endings, the first of these is read.
constexpr std::array<std::string_view, 12> kEnds = {".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".json",
                                                    ".csv",     ".tsv",   ".txt",     ".text",  ".md",     ".markdown"};

bool is_markdown(std::string_view kind) {
  return kind == ".md" || kind == ".markdown";
}
bool is_text(std::string_view kind) {
  return kind == ".txt" || kind == ".text" || is_markdown(kind);
}

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
      "byte {} of the line (0x{:02x}) is not UTF-8; convert the file, for example with `iconv -f latin1 -t utf-8`",
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

  // Reads the elements of an array. Finds the end of each element by counting brackets, so that a broken element has a
  // line number and reading continues after it.
  void elements(int64_t number) {
    std::string text;
    while (true) {
      int c = skip_space(number);
      if (c == ']') {
        bytes_.next();
        if (skip_space(number) >= 0)
          throw UserError(
              "{}:{}: the file continues after the ] of its array; wanted one array, or one object per line", name_,
              number);
        return;
      }
      if (c == ',') {
        bytes_.next();
        continue;
      }
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
        throw UserError("{}:{}: the row that begins here is not closed, so the file was cut off", name_, begin);
      if (!json(text, begin)) return;
    }
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

// Reads a Parquet or Arrow file with a separate module (src/data/columns), which is in the program's folder.
void read_columns(const std::string& file, const TakeRow& take) {
  using Read = void (*)(const std::string&, const TakeRow&);
  static const Read read = [] {
    std::error_code ignored;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "fettle_columns.so";
    void* module = dlopen(program.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = module ? "" : dlerror();
    void* found = module ? dlsym(module, "fettle_read_columns") : nullptr;
    if (!found)
      throw UserError(
          "Parquet and Arrow files need {}, which cannot be loaded: {}; build the target fettle_columns, or convert "
          "the file to jsonl",
          program.string(), why);
    return reinterpret_cast<Read>(found);
  }();
  read(file, take);
}

bool is_pattern(const std::filesystem::path& path) {
  return path.string().find_first_of("*?[") != std::string::npos;
}

bool has_known_end(const std::filesystem::path& file) {
  return std::find(kEnds.begin(), kEnds.end(), kind_of(file)) != kEnds.end();
}

// Returns whether the file is about the data and not a part of it.
bool is_description(const std::filesystem::path& file) {
  static const std::array<std::string_view, 5> kDescriptions = {"dataset_info.json", "dataset_infos.json",
                                                                "dataset_dict.json", "state.json", "config.json"};
  static const Pattern kCache("cache-[0-9a-f]{16}.*[.]arrow");  // the results of `map` in the datasets library
  const std::string name = file.filename().string(), lower = lower_case(name);
  const bool about = lower.starts_with("readme") || lower.starts_with("license");
  return name.empty() || name[0] == '.' || (about && (is_markdown(kind_of(file)) || !has_known_end(file))) ||
         std::find(kDescriptions.begin(), kDescriptions.end(), name) != kDescriptions.end() || kCache.match(name);
}

// Returns the path without the ending that kind_of returns, and without .gz or .zst.
std::string stem_of(const std::filesystem::path& file) {
  const std::string path = file.generic_string();
  return path.substr(0, lower_case(path).rfind(kind_of(file)));
}

// Prints a note about files of a folder that are not read, once for each folder.
void tell_left_out(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files,
                   const std::vector<std::filesystem::path>& read) {
  const std::set<std::filesystem::path> known(read.begin(), read.end());
  std::map<std::string, int64_t> kinds;
  int64_t count = 0;
  for (const auto& file : files) {
    if (is_description(file) || known.contains(file)) continue;
    ++count;
    ++kinds[file.extension().empty() ? "no ending" : file.extension().string()];
  }
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (count == 0 || !told.insert(folder.string()).second) return;
  std::vector<std::string> names;
  for (const auto& [kind, number] : kinds) names.push_back(fmt::format("{} {}", number, kind));
  constexpr size_t kShown = 6;
  const size_t shown = std::min(kShown, names.size());
  info("data: {}: {} file{} of other kinds {} left out ({}{})", folder.string(), count, count == 1 ? "" : "s",
       count == 1 ? "is" : "are", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
       shown < names.size() ? ", ..." : "");
}

// Returns the data files of `folder` and its subfolders, without the files that describe data sets.
std::vector<std::filesystem::path> files_within(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && !is_hidden(at->path().lexically_relative(folder))) all.push_back(at->path());
  }
  if (error) throw UserError("the folder {} cannot be read: {}", folder.string(), error.message());
  std::vector<std::filesystem::path> found = data_files_among(all);
  if (!found.empty()) tell_left_out(folder, all, found);
  return found;
}

// Returns the files that match a pattern in which a part is `**`. Leaves out hidden files and folders. Links to folders
// are not followed.
std::vector<std::filesystem::path> files_matching_deep(const std::filesystem::path& pattern) {
  std::filesystem::path folder, rest;
  for (const auto& part : pattern) (rest.empty() && !is_pattern(part) ? folder : rest) /= part;
  std::vector<std::filesystem::path> found;
  const std::filesystem::path root = folder.empty() ? std::filesystem::path(".") : folder;
  constexpr auto kFollow = std::filesystem::directory_options::skip_permission_denied |
                           std::filesystem::directory_options::follow_directory_symlink;
  constexpr int kDeepest = 64;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(root, kFollow, error), end; !error && at != end;
       at.increment(error)) {
    if (at.depth() > kDeepest)
      throw UserError("{}: a link leads to a folder above itself; remove it", at->path().string());
    const std::filesystem::path below = at->path().lexically_relative(root);
    std::error_code gone;
    if (!is_hidden(below) && at->is_regular_file(gone) && matches_path(rest, below)) found.push_back(folder / below);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw UserError("the folder {} cannot be read: {}", root.string(), error.message());
  return found;
}

std::vector<std::filesystem::path> files_matching(const std::filesystem::path& pattern) {
  std::vector<std::filesystem::path> found;
  if (!is_pattern(pattern)) return found;
  if (std::ranges::any_of(pattern, [](const auto& part) { return part == "**"; })) return files_matching_deep(pattern);
  glob_t matches{};
  std::error_code error;
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    for (size_t i = 0; i < matches.gl_pathc; ++i)
      if (std::filesystem::is_regular_file(matches.gl_pathv[i], error)) found.emplace_back(matches.gl_pathv[i]);
  globfree(&matches);
  return found;
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

std::string kind_of(const std::filesystem::path& file) {
  std::filesystem::path name = file.filename();
  if (const std::string end = lower_case(name.extension().string()); end == ".gz" || end == ".zst") name = name.stem();
  return lower_case(name.extension().string());
}

bool is_hidden(const std::filesystem::path& path) {
  return std::ranges::any_of(path, [](const auto& part) { return part.string().starts_with('.'); });
}

bool is_data_file(const std::filesystem::path& file) {
  return !is_description(file) && has_known_end(file);
}

std::vector<std::filesystem::path> data_files_among(std::vector<std::filesystem::path> files) {
  std::erase_if(files, [](const auto& file) { return !is_data_file(file); });
  if (!std::ranges::all_of(files, [](const auto& file) { return is_text(kind_of(file)); }))
    std::erase_if(files, [](const auto& file) { return is_markdown(kind_of(file)); });
  return files;
}

std::vector<std::string> without_copies(const std::filesystem::path& folder, std::vector<std::string> files) {
  const auto rank = [](const std::filesystem::path& file) {
    const std::string kind = kind_of(file);
    return std::pair(std::ranges::find(kEnds, kind), kind != lower_case(file.extension().string()));
  };
  std::map<std::string, std::string> best;
  for (const std::string& file : files) {
    if (is_text(kind_of(file))) continue;
    const auto [at, added] = best.emplace(stem_of(file), file);
    if (!added && rank(file) < rank(at->second)) at->second = file;
  }
  static std::mutex mutex;
  static std::set<std::filesystem::path> told;
  const std::lock_guard lock(mutex);
  std::erase_if(files, [&](const std::string& file) {
    const auto kept = best.find(stem_of(file));
    if (is_text(kind_of(file)) || kept->second == file) return false;
    if (told.insert(folder / file).second)
      info("data: {} is left out, because {} has its name and probably its rows", (folder / file).string(),
           std::filesystem::path(kept->second).filename().string());
    return true;
  });
  return files;
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
  if (std::filesystem::file_size(file, unknown) == 0 && !unknown)
    throw UserError("{} is empty; write it again, or leave it out of `dataset`", file.string());
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
                      kind, fmt::join(kEnds, " "));
  }
  if (!seen) throw UserError("{} has no rows; fill it, or leave it out of `dataset`", file.string());
}

std::vector<std::filesystem::path> data_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    found = files_within(path);
    if (found.empty())
      throw UserError("the folder {} has no data file ({}, also with .gz or .zst)", path.string(),
                      fmt::join(kEnds, " "));
  } else if (std::filesystem::exists(path, error)) {
    found.push_back(path);
  } else {
    found = files_matching(path);
    if (found.empty() && is_pattern(path)) throw UserError("no file matches {}", path.string());
    if (found.empty()) throw UserError("{}: there is no such file or folder", path.string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool names_something(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) || !files_matching(path).empty();
}

}  // namespace fettle
