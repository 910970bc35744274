#include "data/read/data_files.h"

#include <fmt/ranges.h>
#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/within.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/pattern.h"
#include "base/text.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSavedState = "state.json";  // save_to_disk of the datasets library writes it

bool is_markdown(std::string_view kind) {
  return kind == ".md" || kind == ".markdown";
}

bool is_pattern(const fs::path& path) {
  return path.string().find_first_of("*?[") != std::string::npos;
}

bool has_known_end(const fs::path& file) {
  return std::find(kDataEnds.begin(), kDataEnds.end(), kind_of(file)) != kDataEnds.end();
}

// Returns whether the file is about the data and not a part of it.
bool is_description(const fs::path& file) {
  static const std::array<std::string_view, 5> kDescriptions = {"dataset_info.json", "dataset_infos.json",
                                                                "dataset_dict.json", kSavedState, "config.json"};
  static const Pattern kCache("cache-[0-9a-f]{16}.*[.]arrow");  // the results of `map` in the datasets library
  const std::string name = file.filename().string(), lower = lower_case(name);
  const bool about = lower.starts_with("readme") || lower.starts_with("license");
  return name.empty() || name[0] == '.' || (about && (is_markdown(kind_of(file)) || !has_known_end(file))) ||
         std::find(kDescriptions.begin(), kDescriptions.end(), name) != kDescriptions.end() || kCache.match(name);
}

// Returns the path without the ending that kind_of returns, and without .gz or .zst.
std::string stem_of(const fs::path& file) {
  const std::string path = file.generic_string();
  return path.substr(0, lower_case(path).rfind(kind_of(file)));
}

// Prints a note, each text only once.
void info_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(text).second) info("{}", text);
}

// Prints a note about files of a folder that are not read.
void tell_left_out(const fs::path& folder, const std::vector<fs::path>& files, const std::vector<fs::path>& read) {
  const std::set<fs::path> known(read.begin(), read.end());
  std::map<std::string, int64_t> kinds;
  int64_t count = 0;
  for (const auto& file : files) {
    if (is_description(file) || known.contains(file)) continue;
    ++count;
    ++kinds[file.extension().empty() ? "no ending" : file.extension().string()];
  }
  if (count == 0) return;
  std::vector<std::string> names;
  for (const auto& [kind, number] : kinds) names.push_back(fmt::format("{} {}", number, kind));
  constexpr size_t kShown = 6;
  const size_t shown = std::min(kShown, names.size());
  info_once(fmt::format("data: {}: {} file{} of other kinds {} left out ({}{})", folder.string(), count,
                        count == 1 ? "" : "s", count == 1 ? "is" : "are",
                        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                        shown < names.size() ? ", ..." : ""));
}

// Returns the names of the shards that state.json of save_to_disk lists; none if the file has another form.
std::set<std::string> saved_shards(const fs::path& state) {
  const auto read = parse_json_or_discard<nlohmann::json>(read_file(state));
  std::set<std::string> names;
  if (!read.is_object() || !read.contains("_data_files") || !read["_data_files"].is_array()) return names;
  for (const auto& shard : read["_data_files"])
    if (const std::string name = text_in(shard, "filename"); !name.empty()) names.insert(name);
  return names;
}

// Leaves out shards of an earlier save_to_disk. The datasets library does not remove them from the folder. If none of
// the shards of the last save_to_disk is there, leaves out nothing, because the files probably have new names.
std::vector<fs::path> without_earlier_shards(const fs::path& folder, std::vector<fs::path> files) {
  const std::set<fs::path> present(files.begin(), files.end());
  std::map<fs::path, std::set<fs::path>> saved;  // by folder: the shards of the last save_to_disk
  for (const fs::path& file : files)
    if (file.filename() == kSavedState)
      for (const std::string& name : saved_shards(file))
        if (const fs::path shard = file.parent_path() / name; present.contains(shard))
          saved[file.parent_path()].insert(shard);
  const size_t left_out = std::erase_if(files, [&](const fs::path& file) {
    const auto shards = saved.find(file.parent_path());
    return file.extension() == ".arrow" && !is_description(file) && shards != saved.end() &&
           !shards->second.contains(file);
  });
  if (left_out > 0)
    info_once(fmt::format(
        "data: {}: {} .arrow file{} left out, because {} does not list {} (probably of an earlier save_to_disk)",
        folder.string(), left_out, left_out == 1 ? " is" : "s are", kSavedState, left_out == 1 ? "it" : "them"));
  return files;
}

// Returns whether the link at `at` leads to a folder that the walk is in, or to one around it. Followed, it would come
// back to itself.
bool leads_back(const fs::recursive_directory_iterator& at) {
  std::error_code gone;
  const fs::path target = fs::canonical(at->path(), gone);
  fs::path walked = at->path();
  for (int up = at.depth(); up >= 0; --up) {
    walked = walked.parent_path();
    if (is_within(fs::canonical(walked, gone), target)) return true;
  }
  return false;
}

// Returns the files in `folder` and its subfolders as paths below it, also those that links lead to. So a file may have
// several paths. Leaves out hidden files and folders. Throws UserError for a subfolder that cannot be read, unless
// `options` skip these.
std::vector<fs::path> visible_files(const fs::path& folder, fs::directory_options options) {
  std::vector<fs::path> found;
  std::error_code error, gone;
  options |= fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end; at.increment(error)) {
    const fs::path below = at->path().lexically_relative(folder);
    const bool folder_link = at->is_symlink(gone) && at->is_directory(gone);
    if (is_hidden(below) || (folder_link && leads_back(at)))
      at.disable_recursion_pending();
    else if (at->is_regular_file(gone))
      found.push_back(below);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw UserError("the folder {} cannot be read: {}", folder.string(), error.message());
  return found;
}

// Returns the files that match a pattern in which a part is `**`.
std::vector<fs::path> files_matching_deep(const fs::path& pattern) {
  fs::path folder, rest;
  for (const auto& part : pattern) (rest.empty() && !is_pattern(part) ? folder : rest) /= part;
  std::vector<fs::path> found;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (const fs::path& file : visible_files(folder.empty() ? "." : folder, kSkip))
    if (matches_path(rest, file)) found.push_back(folder / file);
  return found;
}

// Returns the files that match a pattern without a `**`.
std::vector<fs::path> files_matching_here(const fs::path& pattern) {
  std::vector<fs::path> found;
  glob_t matches{};
  std::error_code error;
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0)
    for (size_t i = 0; i < matches.gl_pathc; ++i)
      if (fs::is_regular_file(matches.gl_pathv[i], error)) found.emplace_back(matches.gl_pathv[i]);
  globfree(&matches);
  return found;
}

// Returns the files that match a pattern. Files that describe a data set match only if the last part of the pattern is
// their name, as in the datasets library.
std::vector<fs::path> files_matching(const fs::path& pattern) {
  if (!is_pattern(pattern)) return {};
  const bool deep = std::ranges::any_of(pattern, [](const auto& part) { return part == "**"; });
  std::vector<fs::path> found = deep ? files_matching_deep(pattern) : files_matching_here(pattern);
  std::erase_if(found,
                [&](const fs::path& file) { return is_description(file) && file.filename() != pattern.filename(); });
  return found;
}

}  // namespace

bool is_text(std::string_view kind) {
  return kind == ".txt" || kind == ".text" || is_markdown(kind);
}

std::string kind_of(const fs::path& file) {
  fs::path name = file.filename();
  if (const std::string end = lower_case(name.extension().string()); end == ".gz" || end == ".zst") name = name.stem();
  return lower_case(name.extension().string());
}

bool is_hidden(const fs::path& path) {
  return std::ranges::any_of(path, [](const auto& part) { return part.string().starts_with('.'); });
}

bool is_data_file(const fs::path& file) {
  return !is_description(file) && has_known_end(file);
}

bool matches_path(const fs::path& pattern, const fs::path& path) {
  const std::vector<std::string> names(path.begin(), path.end());
  std::vector<bool> reached(names.size() + 1);  // reached[n]: the parts of the pattern so far match the first n names
  reached[0] = true;
  for (const fs::path& part : pattern) {
    std::vector<bool> next(reached.size());
    for (size_t n = 0; n < next.size(); ++n)
      if (part == "**")
        next[n] = reached[n] || (n > 0 && next[n - 1]);
      else
        next[n] = n > 0 && reached[n - 1] && fnmatch(part.c_str(), names[n - 1].c_str(), 0) == 0;
    reached = next;
  }
  return reached.back();
}

std::vector<fs::path> data_files_among(std::vector<fs::path> files) {
  std::erase_if(files, [](const auto& file) { return !is_data_file(file); });
  if (!std::ranges::all_of(files, [](const auto& file) { return is_text(kind_of(file)); }))
    std::erase_if(files, [](const auto& file) { return is_markdown(kind_of(file)); });
  return files;
}

std::vector<std::string> without_copies(const fs::path& folder, std::vector<std::string> files) {
  const auto rank = [](const fs::path& file) {
    const std::string kind = kind_of(file);
    return std::pair(std::ranges::find(kDataEnds, kind), kind != lower_case(file.extension().string()));
  };
  std::map<std::string, std::string> best;
  for (const std::string& file : files) {
    if (is_text(kind_of(file))) continue;
    const auto [at, added] = best.emplace(stem_of(file), file);
    if (!added && rank(file) < rank(at->second)) at->second = file;
  }
  std::erase_if(files, [&](const std::string& file) {
    const auto kept = best.find(stem_of(file));
    if (is_text(kind_of(file)) || kept->second == file) return false;
    info_once(fmt::format("data: {} is left out, because {} has its name and probably its rows",
                          (folder / file).string(), fs::path(kept->second).filename().string()));
    return true;
  });
  return files;
}

std::vector<fs::path> without_repeats(std::vector<fs::path> files) {
  std::set<fs::path> seen;
  std::erase_if(files, [&](const fs::path& file) {
    std::error_code gone;
    const fs::path real = fs::canonical(file, gone);
    return !gone && !seen.insert(real).second;
  });
  return files;
}

std::vector<fs::path> files_within(const fs::path& folder) {
  std::vector<fs::path> all = visible_files(folder, fs::directory_options::none);
  for (fs::path& file : all) file = folder / file;
  all = without_earlier_shards(folder, std::move(all));
  std::vector<fs::path> found = data_files_among(all);
  if (found.empty())
    throw UserError("the folder {} has no data file ({}, also with .gz or .zst)", folder.string(),
                    fmt::join(kDataEnds, " "));
  tell_left_out(folder, all, found);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> data_files(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return {path};
  std::vector<fs::path> found = files_matching(path);
  if (found.empty() && is_pattern(path)) throw UserError("no file matches {}", path.string());
  if (found.empty()) throw UserError("{}: there is no such file or folder", path.string());
  std::sort(found.begin(), found.end());
  return without_repeats(std::move(found));
}

bool names_something(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || !files_matching(path).empty();
}

}  // namespace fettle
