#include "data/store/file_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "base/files/cache.h"
#include "base/files/output_file.h"
#include "data/store/read_progress.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

constexpr int64_t kBlock = int64_t{1} << 20;  // ContentKey::add_file reports progress for each block
constexpr size_t kHashLength = 32;

struct FileState {
  std::string text;  // differs after every change of the file
  int64_t bytes;
  nanoseconds changed;  // when the inode was changed
};

// Returns nullopt when the file cannot be opened. Opens the file because network file systems ask the server for its
// times then, and may otherwise return old ones.
std::optional<FileState> state_of(const fs::path& file) {
  const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle < 0) return std::nullopt;
  struct stat status {};
  const bool known = fstat(handle, &status) == 0;
  ::close(handle);
  if (!known) return std::nullopt;
  const auto time = [](const timespec& at) { return std::chrono::seconds(at.tv_sec) + nanoseconds(at.tv_nsec); };
  const nanoseconds changed = time(status.st_ctim);
  return FileState{fmt::format("1 {} {} {} {} {}\n", status.st_size, status.st_ino, time(status.st_mtim).count(),
                               changed.count(), fs::absolute(file).string()),
                   status.st_size, changed};
}

}  // namespace

std::string FileHashes::of(const fs::path& file) const {
  const nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  const std::optional<FileState> state = state_of(file);
  const fs::path remembered = folder_ / ContentKey().add(fs::absolute(file).string()).text();
  if (std::ifstream in(remembered); state && in) {
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.starts_with(state->text) && text.size() == state->text.size() + kHashLength) {
      std::error_code ignored;
      fs::last_write_time(remembered, fs::file_time_type::clock::now(), ignored);  // marks the hash as used now
      return text.substr(state->text.size());
    }
  }
  ReadProgress progress(fmt::format("data: hashing {}", file.filename().string()), state ? state->bytes : 0,
                        "the data files were hashed");
  const std::string hash = ContentKey().add_file(file, [&] { progress.add(kBlock); }).text();
  const std::optional<FileState> after = state_of(file);
  const bool precise = state && state->changed.count() % 1'000'000'000 != 0;
  if (precise && after && after->text == state->text && state->changed + settled_ < now)
    write_cache_file(remembered, state->text + hash);
  return hash;
}

void FileHashes::remove_unused(std::chrono::hours age) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const auto unused = fs::file_time_type::clock::now() - fs::last_write_time(entry.path(), error);
    if (!error && unused > age) fs::remove(entry.path(), error);
  }
}

}  // namespace fettle
