#include "checkpoint/saved/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/process_name.h"
#include "checkpoint/files.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

std::string tag(std::string_view kind) {
  return fmt::format(".{}-{}", kind, ProcessName::own().text());
}

fs::path sibling(const fs::path& target, std::string_view kind) {
  fs::path path = target;
  path += tag(kind);
  return path;
}

// The parts of "NAME.tmp-PROCESS" or "NAME.old-PROCESS".
struct Leftover {
  std::string name;
  bool old;
  ProcessName owner;
};

std::optional<Leftover> leftover(const std::string& entry) {
  for (const std::string_view kind : {".tmp-", ".old-"}) {
    const size_t at = entry.rfind(kind);
    if (at == std::string::npos) continue;
    if (const auto owner = ProcessName::parse(std::string_view(entry).substr(at + kind.size())))
      return Leftover{entry.substr(0, at), kind == ".old-", *owner};
  }
  return std::nullopt;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    entries.push_back(it->path());
  return entries;
}

void move(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) throw_file_error("create", to, errno);
}

// Removes the leftovers in `folder` for which `doomed` is true. An old folder that was not replaced gets its name back.
template <typename Doomed>
std::vector<fs::path> clean(const fs::path& folder, Doomed doomed) {
  std::vector<fs::path> removed;
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder)) {
    const std::optional<Leftover> found = leftover(entry.filename().string());
    if (!found || !doomed(*found)) continue;
    if (found->old && !fs::exists(folder / found->name)) {
      move(entry, folder / found->name);
    } else {
      fs::remove_all(entry, ignored);
      removed.push_back(entry);
    }
  }
  return removed;
}

void sync_tree(const fs::path& folder) {
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry))
      sync_tree(entry);
    else
      sync_path(entry);
  }
  sync_path(folder);
}

// Moves each file of `from` to `to` and replaces the file of the same name there.
void move_files(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::create_directories(to, code);
  if (code) throw_file_error("create", to, code.value());
  for (const fs::path& entry : entries_of(from)) {
    if (fs::is_directory(entry))
      move_files(entry, to / entry.filename());
    else
      move(entry, to / entry.filename());
  }
  sync_path(to);
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& target, Existing existing) : existing_(existing) {
  std::error_code code;
  target_ = fs::weakly_canonical(fs::absolute(target), code);
  if (code) throw_file_error("create", target, code.value());
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (fs::exists(target_, code) && !fs::is_directory(target_, code))
    throw UserError("cannot create the folder {}: a file has that name; move it or choose another folder",
                    target_.string());
  clean_leftovers(target_);
  if (existing_ == Existing::kRefuse && !entries_of(target_).empty())
    throw UserError("the folder {} is not empty; choose another one, or allow overwriting it", target_.string());
  working_ = existing_ == Existing::kMerge ? target_ / tag("tmp") : sibling(target_, "tmp");
  fs::remove_all(working_, code);
  fs::create_directories(working_, code);
  if (code) throw_file_error("create", working_, code.value());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(working_, ignored);
}

void AtomicFolder::commit() {
  internal_check(!committed_, "AtomicFolder::commit twice: {}", target_.string());
  sync_tree(working_);
  existing_ == Existing::kMerge ? merge() : replace();
  committed_ = true;
}

void AtomicFolder::replace() {
  const bool replaces = existing_ == Existing::kReplace && fs::exists(target_);
  const fs::path old = sibling(target_, "old");
  if (!replaces) {
    move(working_, target_);
  } else if (renameat2(AT_FDCWD, working_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    move(working_, old);
  } else {
    // This file system cannot exchange two names. If the process dies in between, clean_leftovers restores `old`.
    move(target_, old);
    move(working_, target_);
  }
  sync_path(target_.parent_path());
  std::error_code ignored;
  if (replaces) fs::remove_all(old, ignored);
}

void AtomicFolder::merge() {
  std::error_code ignored;
  std::erase_if(dropped_, [&](const std::string& file) { return fs::exists(working_ / file); });
  move_files(working_, target_);
  for (const std::string& file : dropped_) fs::remove(target_ / file, ignored);
  if (!dropped_.empty()) sync_path(target_);
  fs::remove_all(working_, ignored);
}

void clean_leftovers(const fs::path& target) {
  const fs::path parent = target.parent_path().empty() ? "." : target.parent_path();
  const std::string name = target.filename().string();
  clean(target, [](const Leftover& one) { return one.name.empty() && one.owner.is_gone(); });
  clean(parent, [&](const Leftover& one) { return one.name == name && one.owner.is_gone(); });
}

std::vector<fs::path> clean_folder(const fs::path& folder) {
  // Leftovers with this process's id come from an earlier process.
  return clean(folder, [](const Leftover& one) { return one.owner == ProcessName::own() || one.owner.is_gone(); });
}

void remove_folder(const fs::path& folder) {
  const fs::path doomed = sibling(folder, "tmp");
  if (rename(folder.c_str(), doomed.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw_file_error("delete", folder, errno);
  }
  std::error_code code;
  fs::remove_all(doomed, code);
  if (code) throw_file_error("delete", doomed, code.value());
}

}  // namespace fettle
