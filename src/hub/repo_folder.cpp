#include "hub/repo_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files/output_file.h"
#include "base/files/private_files.h"
#include "base/log.h"
#include "base/process_name.h"
#include "hub/digest.h"
#include "hub/variables.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

std::string with_dashes(std::string id) {
  const size_t slash = id.find('/');
  return slash == std::string::npos ? id : id.replace(slash, 1, "--");
}

fs::path place_of(const HubSettings& settings, const RepoName& repo) {
  if (settings.cache.empty())
    throw UserError("HOME is not set, so there is no folder to keep {} in; set {}", repo.id,
                    variables_of(settings.hub).cache);
  if (settings.hub == Hub::kModelScope) return settings.cache / repo.plural() / with_dashes(repo.id);
  return settings.cache / (repo.plural() + "--" + with_dashes(repo.id));
}

// Returns the size of the file; -1 when there is no such file.
int64_t size_of(const fs::path& file) {
  std::error_code missing;
  const auto size = fs::file_size(file, missing);
  return missing ? -1 : static_cast<int64_t>(size);
}

bool has_content(const fs::path& file, const HubFile& wanted) {
  Digest digest(wanted.etag, wanted.size);
  std::ifstream in(file, std::ios::binary);
  std::string block(size_t{1} << 20, '\0');
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0)
    digest.add(block.data(), static_cast<size_t>(in.gcount()));
  return digest.text() == wanted.etag;
}

[[noreturn]] void throw_unwritable(Hub hub, const fs::path& path, const std::string& why) {
  throw UserError("{}: {}; check the folder's permissions, or set {} to another folder", path.string(), why,
                  variables_of(hub).cache);
}

}  // namespace

RepoFolder::RepoFolder(const HubSettings& settings, const RepoName& repo)
    : hub_(settings.hub), cache_(settings.cache), path_(place_of(settings, repo)) {}

fs::path RepoFolder::lock(const std::string& etag) const {
  return cache_ / ".locks" / path_.filename() / (etag + ".lock");
}

std::string RepoFolder::read_ref(const std::string& revision) const {
  if (is_hex(revision, 40)) return revision;
  if (links_change()) return fs::is_directory(snapshot(revision)) ? revision : "";
  std::ifstream in(path_ / "refs" / revision);
  std::string commit;
  return in && std::getline(in, commit) && is_hex(commit, 40) ? commit : "";
}

void RepoFolder::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision != commit && read_ref(revision) != commit) write_cache_file(path_ / "refs" / revision, commit);
}

bool RepoFolder::holds(const std::string& commit, const HubFile& file) const {
  const fs::path pointer = snapshot(commit) / file.path;
  if (size_of(pointer) != file.size) return false;
  std::error_code failed;
  const fs::path target = fs::read_symlink(pointer, failed);
  if (!links_change()) return true;  // a file of a commit never changes
  if (!failed) return target.filename() == file.etag;
  return has_content(pointer, file);  // ModelScope's own library stores files instead of links
}

bool RepoFolder::has_blob(const HubFile& file) const {
  const int64_t size = size_of(blob(file.etag));
  if (size == file.size) return true;
  if (size < 0) return false;
  warn("{} has {} bytes, but {} should have {}; the file is fetched again", blob(file.etag).string(), size, file.path,
       file.size);
  std::error_code failed;
  fs::remove(blob(file.etag), failed);
  return false;
}

void RepoFolder::link(const std::string& commit, const HubFile& file, bool needed_again) const {
  if (holds(commit, file)) return;  // another process may have made the link meanwhile
  const fs::path pointer = snapshot(commit) / file.path;
  std::error_code failed;
  fs::create_directories(pointer.parent_path(), failed);
  if (failed) throw_unwritable(hub_, pointer.parent_path(), failed.message());
  // A link to another blob is replaced in one step, so that other processes find one of the two at any time.
  const fs::path fresh = pointer.parent_path() / fmt::format(".{}.tmp-{}", pointer.filename().string(), random_hex(2));
  // The number of folders between link and blob varies: file.path and a revision of ModelScope may contain slashes.
  fs::create_symlink(blob(file.etag).lexically_relative(pointer.parent_path()), fresh, failed);
  const bool moves_blob = failed && !needed_again;
  if (failed && needed_again) fs::copy_file(blob(file.etag), fresh, failed);
  if (moves_blob || !failed) fs::rename(moves_blob ? blob(file.etag) : fresh, pointer, failed);
  if (!failed) return;
  const std::string why = failed.message();
  fs::remove(fresh, failed);
  if (!holds(commit, file)) throw_unwritable(hub_, pointer, why);
}

void RepoFolder::mark_missing(const std::string& commit, const std::string& path) const {
  const fs::path mark = path_ / ".no_exist" / commit / path;
  std::error_code failed;
  if (!fs::exists(mark, failed)) write_cache_file(mark, "");
}

void RepoFolder::make() const {
  if (!make_private_folder(cache_)) throw_unwritable(hub_, cache_, std::strerror(errno));
  std::error_code failed;
  for (const char* name : {"blobs", "snapshots", "refs"}) {
    fs::create_directories(path_ / name, failed);
    if (failed) throw_unwritable(hub_, path_ / name, failed.message());
  }
}

}  // namespace fettle
