// A library for LD_PRELOAD that makes chosen calls of a process fail, as if the disk were broken or full.
//
//   FAULT_CALL    the chosen calls: open, write, fsync, rename, mkdir, unlink, allocate (allocations.cpp); several are
//                 separated by commas
//   FAULT_PATH    chooses only calls whose path contains this text; if empty, all calls
//   FAULT_NTH     the number of the first chosen call that fails, counted from 1 in each process; 0: no call fails
//   FAULT_COUNT   the number of chosen calls that fail in a row (1); "all": the first one and all later ones
//   FAULT_ERRNO   how the calls fail: the name of an errno of kErrors (EIO), or
//                 KILL: the process gets SIGKILL instead of the call, or
//                 KILL_AFTER or TERM_AFTER: the process gets SIGKILL or SIGTERM right after the call
//   FAULT_LOG     a file that gets a line for each chosen call: "NUMBER CALL PATH", with " !" if the call failed
//   FAULT_BUDGET  the size of the disk in bytes. When the writes under FAULT_PATH have used all of them, the next
//                 FAULT_COUNT writes fail with ENOSPC. Deleting files frees nothing. The log then has lines with "fits"
//                 (NUMBER is the bytes so far) and "full"
//   FAULT_CLOCK   EPOCH+STEP: time() gives EPOCH seconds at first and STEP seconds more with every call
//
// Each call stands for several functions of libc. open: open, openat, creat, fopen. write: write, pwrite, writev,
// fwrite, ftruncate, fallocate. fsync: fsync, fdatasync. rename: rename, renameat, renameat2, link. unlink: unlink,
// unlinkat, rmdir, remove. NUMBER counts the chosen calls, so the log of a run with FAULT_NTH=0 shows how many there
// are. System calls that libc makes itself, such as those within fclose, are not seen.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "verdict.h"

namespace {

struct Named {
  const char* name;
  int number;
};
constexpr Named kErrors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},       {"ESTALE", ESTALE}, {"EACCES", EACCES},
                             {"EROFS", EROFS},   {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE}, {"ENOENT", ENOENT},
                             {"EXDEV", EXDEV},   {"EINVAL", EINVAL}, {"EPERM", EPERM},   {"EBADF", EBADF}};

std::string setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct Plan {
  std::string calls = "," + setting("FAULT_CALL") + ",", path = setting("FAULT_PATH"), log = setting("FAULT_LOG");
  long nth = atol(setting("FAULT_NTH").c_str());
  long count = setting("FAULT_COUNT") == "all" ? 1L << 62 : std::max(1L, atol(setting("FAULT_COUNT").c_str()));
  int error = [] {
    const std::string name = setting("FAULT_ERRNO");
    if (name == "KILL") return kKill;
    if (name == "KILL_AFTER") return kKillAfter;
    if (name == "TERM_AFTER") return kTermAfter;
    for (const Named& one : kErrors)
      if (name == one.name) return one.number;
    if (name.empty()) return EIO;
    fprintf(stderr, "FAULT_ERRNO: unknown name %s\n", name.c_str());
    abort();
  }();
  std::atomic<long> seen = 0;
  bool limited = !setting("FAULT_BUDGET").empty();
  long budget = atol(setting("FAULT_BUDGET").c_str());
  std::atomic<long> room = budget, refused = 0;
};

Plan& plan() {
  static Plan* const made = new Plan;  // never destroyed: calls come until the process ends
  return *made;
}

std::string path_of(int fd) {
  if (fd == AT_FDCWD) return "";
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<size_t>(length));
}

std::string path_at(int fd, const char* path) {
  return path[0] == '/' || fd == AT_FDCWD ? path : path_of(fd) + "/" + path;
}

void log_call(long number, const char* call, const std::string& path, bool fails) {
  const std::string& log = plan().log;
  if (log.empty()) return;
  const std::string line = std::to_string(number) + " " + call + " " + path + (fails ? " !\n" : "\n");
  const long fd = syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  syscall(SYS_write, fd, line.data(), line.size());
  syscall(SYS_close, fd);
}

// Returns whether a write of `bytes` bytes must fail because the disk is full.
bool is_full(const std::string& path, size_t bytes) {
  Plan& chosen = plan();
  if (!chosen.limited || path.find(chosen.path) == std::string::npos) return false;
  const long size = static_cast<long>(bytes);
  const long room = chosen.room.fetch_sub(size);
  if (room >= size) {
    log_call(chosen.budget - room + size, "fits", path, false);
    return false;
  }
  chosen.room += size;
  const long number = ++chosen.refused;
  log_call(number, "full", path, number <= chosen.count);
  return number <= chosen.count;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Makes the call unless it must fail. `failed` is the value that a failing call returns.
template <typename Result, typename Call>
Result meet(const char* call, const std::string& path, Result failed, Call go) {
  const int error = verdict(call, path);
  if (error > 0) {
    errno = error;
    return failed;
  }
  const Result result = go();
  if (error == kKillAfter || error == kTermAfter) syscall(SYS_kill, getpid(), error == kKillAfter ? SIGKILL : SIGTERM);
  return result;
}

mode_t mode_of(int flags, va_list& more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

template <typename Function, typename... Args>
int at_path(const char* call, const char* name, const std::string& path, Args... args) {
  return meet(call, path, -1, [&] { return real<Function>(name)(args...); });
}

// Writes `bytes` bytes unless the disk is full or the call must fail.
template <typename Result, typename Call>
Result meet_write(const std::string& path, size_t bytes, Result failed, Call go) {
  if (is_full(path, bytes)) {
    errno = ENOSPC;
    return failed;
  }
  return meet("write", path, failed, go);
}

}  // namespace

bool is_chosen(const char* call) {
  return plan().calls.find("," + std::string(call) + ",") != std::string::npos;
}

int verdict(const char* call, const std::string& path) {
  Plan& chosen = plan();
  if (!is_chosen(call)) return 0;
  if (path.find(chosen.path) == std::string::npos || (!chosen.log.empty() && path == chosen.log)) return 0;
  const long number = ++chosen.seen;
  const bool fails = chosen.nth > 0 && number >= chosen.nth && number - chosen.nth < chosen.count;
  log_call(number, call, path, fails);
  if (fails && chosen.error == kKill) syscall(SYS_kill, getpid(), SIGKILL);
  return fails ? chosen.error : 0;
}

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return at_path<int(const char*, int, ...)>("open", "open", path, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return at_path<int(const char*, int, ...)>("open", "open64", path, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return at_path<int(int, const char*, int, ...)>("open", "openat", path_at(folder, path), folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return at_path<int(int, const char*, int, ...)>("open", "openat64", path_at(folder, path), folder, path, flags, mode);
}
int creat(const char* path, mode_t mode) {
  return at_path<int(const char*, mode_t)>("open", "creat", path, path, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return meet("open", path, static_cast<FILE*>(nullptr),
              [&] { return real<FILE*(const char*, const char*)>("fopen")(path, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  return meet("open", path, static_cast<FILE*>(nullptr),
              [&] { return real<FILE*(const char*, const char*)>("fopen64")(path, mode); });
}

ssize_t write(int fd, const void* bytes, size_t count) {
  return meet_write(path_of(fd), count, ssize_t{-1},
                    [&] { return real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, count); });
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  return meet_write(path_of(fd), count, ssize_t{-1},
                    [&] { return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, count, offset); });
}
ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
  return meet_write(path_of(fd), count, ssize_t{-1}, [&] {
    return real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(fd, bytes, count, offset);
  });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return meet_write(path_of(fd), bytes, ssize_t{-1},
                    [&] { return real<ssize_t(int, const iovec*, int)>("writev")(fd, parts, count); });
}
size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  return meet_write(path_of(fileno(file)), size * count, size_t{0}, [&] {
    return real<size_t(const void*, size_t, size_t, FILE*)>("fwrite")(bytes, size, count, file);
  });
}
int ftruncate(int fd, off_t bytes) {
  return at_path<int(int, off_t)>("write", "ftruncate", path_of(fd), fd, bytes);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return at_path<int(int, int, off_t, off_t)>("write", "fallocate", path_of(fd), fd, mode, offset, bytes);
}

int fsync(int fd) {
  return at_path<int(int)>("fsync", "fsync", path_of(fd), fd);
}
int fdatasync(int fd) {
  return at_path<int(int)>("fsync", "fdatasync", path_of(fd), fd);
}

// A rename counts if FAULT_PATH is in the old or in the new name.
int rename(const char* from, const char* to) {
  return at_path<int(const char*, const char*)>("rename", "rename", std::string(from) + " -> " + to, from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return at_path<int(int, const char*, int, const char*)>("rename", "renameat",
                                                          path_at(from_folder, from) + " -> " + path_at(to_folder, to),
                                                          from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return at_path<int(int, const char*, int, const char*, unsigned)>(
      "rename", "renameat2", path_at(from_folder, from) + " -> " + path_at(to_folder, to), from_folder, from, to_folder,
      to, flags);
}
int link(const char* from, const char* to) {
  return at_path<int(const char*, const char*)>("rename", "link", std::string(from) + " -> " + to, from, to);
}

int mkdir(const char* path, mode_t mode) {
  return at_path<int(const char*, mode_t)>("mkdir", "mkdir", path, path, mode);
}
int unlink(const char* path) {
  return at_path<int(const char*)>("unlink", "unlink", path, path);
}
int unlinkat(int folder, const char* path, int flags) {
  return at_path<int(int, const char*, int)>("unlink", "unlinkat", path_at(folder, path), folder, path, flags);
}
int rmdir(const char* path) {
  return at_path<int(const char*)>("unlink", "rmdir", path, path);
}
int remove(const char* path) {
  return at_path<int(const char*)>("unlink", "remove", path, path);
}

time_t time(time_t* out) {
  static const std::string clock = setting("FAULT_CLOCK");
  static std::atomic<long> calls = 0;
  time_t now = 0;
  if (clock.empty()) {
    timespec exact{};
    clock_gettime(CLOCK_REALTIME, &exact);
    now = exact.tv_sec;
  } else {
    const size_t plus = clock.find('+');
    now = atoll(clock.c_str()) + (plus == std::string::npos ? 0 : calls++ * atoll(clock.c_str() + plus + 1));
  }
  if (out != nullptr) *out = now;
  return now;
}

}  // extern "C"
