#include "checkpoint/saved/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/output_file.h"
#include "base/process_name.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

fs::path sibling(const fs::path& target, std::string_view kind) {
  fs::path path = target;
  path += fmt::format(".{}-{}", kind, process_name());
  return path;
}

// The parts of "NAME.tmp-PROCESS" or "NAME.old-PROCESS".
struct Leftover {
  std::string name;
  bool old;
  std::string owner;
};

std::optional<Leftover> leftover(const std::string& entry) {
  for (const std::string_view kind : {".tmp-", ".old-"}) {
    const size_t at = entry.rfind(kind);
    if (at == std::string::npos) continue;
    if (const std::string owner = entry.substr(at + kind.size()); is_process_name(owner))
      return Leftover{entry.substr(0, at), kind == ".old-", owner};
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

// Returns whether another file system, or another part of one, is mounted at `folder`. Such a folder cannot be renamed.
bool is_mount_point(const fs::path& folder) {
  struct statx own, parent;
  const auto read = [](const fs::path& path, struct statx& facts) {
    return statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &facts) == 0;
  };
  if (!read(folder, own) || !read(folder.parent_path(), parent)) return false;
  // Old kernels do not say what is a mount point. A subvolume of btrfs has a device of its own, but can be renamed.
  if ((own.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) return (own.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  return own.stx_dev_major != parent.stx_dev_major || own.stx_dev_minor != parent.stx_dev_minor;
}

void move(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) throw_file_error("create", to, errno);
}

// A process may write small files in a folder without having a presence there. So a recent file may belong to a process
// that is still writing it.
bool may_be_written(const fs::path& entry) {
  std::error_code code;
  // The file server's clock sets the times of both files, so they can be compared.
  const fs::path now = presence_file(entry.parent_path(), process_name());
  return fs::is_regular_file(entry, code) &&
         fs::last_write_time(now, code) - fs::last_write_time(entry, code) < std::chrono::hours(1);
}

// Removes the leftovers in `folder` that `meant` selects, if their process has ended. If an old folder was moved aside
// but not replaced, restores its name instead.
template <typename Meant>
std::vector<fs::path> clean(const fs::path& folder, Meant meant) {
  std::vector<fs::path> removed;
  std::vector<std::pair<fs::path, Leftover>> found;
  for (const fs::path& entry : entries_of(folder))
    if (const auto one = leftover(entry.filename().string()); one && meant(*one)) found.emplace_back(entry, *one);
  if (found.empty()) return removed;
  const auto presence = Presence::in(folder);
  std::error_code ignored;
  for (const auto& [entry, one] : found) {
    if (life_of(folder, one.owner) != Life::kDead) continue;
    const bool known = fs::exists(presence_file(folder, one.owner), ignored);
    if (!known && may_be_written(entry)) continue;
    if (one.old && !fs::exists(folder / one.name)) {
      move(entry, folder / one.name);
    } else {
      fs::remove_all(entry, ignored);
      removed.push_back(entry);
    }
  }
  return removed;
}

}  // namespace

void sync_tree(const fs::path& folder) {
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry))
      sync_tree(entry);
    else
      sync_path(entry);
  }
  sync_path(folder);
}

AtomicFolder::AtomicFolder(const fs::path& target, Existing existing) : existing_(existing) {
  std::error_code code;
  target_ = fs::weakly_canonical(fs::absolute(target), code);
  if (code) throw_file_error("create", target, code.value());
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (fs::exists(target_, code) && !fs::is_directory(target_, code))
    throw UserError("cannot create the folder {}: a file has that name; move it or choose another folder",
                    target_.string());
  if (is_mount_point(target_))
    throw UserError(
        "the folder {} is a mount point (a volume), which cannot be replaced as a whole; choose a folder inside "
        "it, such as {}",
        target_.string(), (target_ / "model").string());
  fs::create_directories(target_.parent_path(), code);
  if (code) throw_file_error("create", target_, code.value());
  presence_ = Presence::in(target_.parent_path());
  clean_leftovers(target_);
  if (existing_ == Existing::kRefuse && !entries_of(target_).empty())
    throw UserError("the folder {} is not empty; choose another folder, or empty this one", target_.string());
  working_ = sibling(target_, "tmp");
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
  presence_->check();
  replace();
  committed_ = true;
  presence_.reset();
}

void AtomicFolder::replace() {
  const bool replaces = existing_ == Existing::kReplace && fs::exists(target_);
  const fs::path old = sibling(target_, "old");
  if (!replaces) {
    move(working_, target_);
  } else if (renameat2(AT_FDCWD, working_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    move(working_, old);
  } else {
    // This file system cannot exchange two names. If the process dies between the two renames, clean_leftovers restores
    // `old`.
    move(target_, old);
    move(working_, target_);
  }
  sync_path(target_.parent_path());
  std::error_code ignored;
  if (replaces) fs::remove_all(old, ignored);
}

void clean_leftovers(const fs::path& target) {
  const fs::path parent = target.parent_path().empty() ? "." : target.parent_path();
  const std::string name = target.filename().string();
  clean(parent, [&](const Leftover& one) { return one.name == name; });
}

std::vector<fs::path> clean_folder(const fs::path& folder) {
  if (std::error_code ignored; !fs::is_directory(folder, ignored)) return {};
  const auto presence = Presence::in(folder);
  std::vector<fs::path> removed = clean(folder, [](const Leftover&) { return true; });
  remove_dead_presences(folder);
  return removed;
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
