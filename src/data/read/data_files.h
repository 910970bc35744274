// Defines data_files and files_within, which find the files of rows that a path, a pattern or a folder stands for.
// Names decide. The only file that is opened is state.json of the datasets library.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The endings of files that read_rows reads. If files with the same name have several of these endings, the first of
// these is read.
inline constexpr std::array<std::string_view, 12> kDataEnds = {".parquet", ".arrow", ".feather", ".jsonl",
                                                               ".ndjson",  ".json",  ".csv",     ".tsv",
                                                               ".txt",     ".text",  ".md",      ".markdown"};

// Returns the lower-case ending that decides how the file is read, without .gz or .zst (".jsonl" for rows.JSONL.gz).
std::string kind_of(const std::filesystem::path& file);
// Returns whether files of this kind hold plain text.
bool is_text(std::string_view kind);

// Returns the files that `path` names, sorted, each once. `path` is a file or a pattern (* ? [ ], also in names of
// folders; the part ** stands for any number of folders; files that describe data sets match only by their whole name).
// Throws UserError when there is no file.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);
// Returns the data files in a folder and in its subfolders, sorted. Links are followed, so a file may have several
// paths. Leaves out shards of an earlier save_to_disk, which state.json of the datasets library does not list. Notes on
// stderr give the numbers of these and of other files. Throws UserError when there is no data file, or a folder
// cannot be read.
std::vector<std::filesystem::path> files_within(const std::filesystem::path& folder);
// Leaves out paths that lead to the same file as an earlier one, by a link.
std::vector<std::filesystem::path> without_repeats(std::vector<std::filesystem::path> files);
// Returns whether `path` is a file, a folder, or a pattern that matches a file.
bool names_something(const std::filesystem::path& path);

// Returns whether the name has the ending of a file of rows. Returns false for files that describe data sets
// (dataset_info.json, README.md, ...).
bool is_data_file(const std::filesystem::path& file);
// Returns whether the name of the file or of a folder in `path` begins with a dot. `path` is relative.
bool is_hidden(const std::filesystem::path& path);

// Returns whether the pattern matches the path. A * matches within the name of a folder or file. The part ** matches
// any number of folders, also none.
bool matches_path(const std::filesystem::path& pattern, const std::filesystem::path& path);

// Returns the data files of a folder with these files. A Markdown file counts only if all data files are texts: beside
// files of rows in other formats, it probably describes them.
std::vector<std::filesystem::path> data_files_among(std::vector<std::filesystem::path> files);
// Leaves out data files with the same name as another and another ending, such as train.csv beside train.parquet: they
// probably have the same rows. Texts all stay. The paths are relative to `folder`. A note on stderr names each left-out
// file, once.
std::vector<std::string> without_copies(const std::filesystem::path& folder, std::vector<std::string> files);

}  // namespace fettle
