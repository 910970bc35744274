// Implements FAULT_CALL=allocate, which makes large allocations of Fettle's own code fail. faults.cpp describes the
// other settings.
//
//   FAULT_MIN  allocations of fewer bytes never fail (1000000)
//
// A failing allocation sets errno to ENOMEM, whatever errno FAULT_ERRNO names. An allocation is Fettle's own when the
// first caller outside of libstdc++ is the program or one of its libraries (such as fettle_columns.so), not a plugin or
// a system library. The log shows it as "BYTES FILE+OFFSET", where FILE+OFFSET is the caller.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "verdict.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

size_t smallest = ~size_t{0};  // bytes; nothing fails before start() has run
thread_local bool asking = false;

__attribute__((constructor)) void start() {
  if (!is_chosen("allocate")) return;
  void* frame = nullptr;
  backtrace(&frame, 1);  // the first call of backtrace loads a library
  const char* text = getenv("FAULT_MIN");
  smallest = text == nullptr ? 1'000'000 : strtoull(text, nullptr, 10);
}

std::string file_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// Returns the "FILE+OFFSET" of Fettle's code that requested the memory, or "" when other code did.
std::string caller() {
  void* frames[16];
  const int count = backtrace(frames, 16);
  Dl_info here{}, info{};
  dladdr(reinterpret_cast<void*>(&start), &here);
  for (int i = 0; i < count; ++i) {
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) return "";
    const std::string file = file_name(info.dli_fname);
    if (info.dli_fbase == here.dli_fbase || file.starts_with("libstdc++")) continue;
    if (!file.starts_with("fettle")) return "";
    char offset[32];
    snprintf(offset, sizeof offset, "+0x%zx",
             reinterpret_cast<size_t>(frames[i]) - reinterpret_cast<size_t>(info.dli_fbase));
    return file + offset;
  }
  return "";
}

template <typename Call>
void* allocate(size_t bytes, void* failed, Call go) {
  if (bytes < smallest || asking) return go();
  asking = true;
  const std::string who = caller();
  const int error = who.empty() ? 0 : verdict("allocate", std::to_string(bytes) + " " + who);
  asking = false;
  if (error > 0) {
    errno = ENOMEM;
    return failed;
  }
  void* const result = go();
  if (error == kKillAfter) syscall(SYS_kill, getpid(), SIGKILL);
  return result;
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  return allocate(bytes, nullptr, [&] { return __libc_malloc(bytes); });
}
void* calloc(size_t count, size_t size) {
  return allocate(count * size, nullptr, [&] { return __libc_calloc(count, size); });
}
void* realloc(void* old, size_t bytes) {
  return allocate(bytes, nullptr, [&] { return __libc_realloc(old, bytes); });
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return allocate(bytes, nullptr, [&] { return __libc_memalign(alignment, bytes); });
}
void* memalign(size_t alignment, size_t bytes) {
  return allocate(bytes, nullptr, [&] { return __libc_memalign(alignment, bytes); });
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* const made = allocate(bytes, nullptr, [&] { return __libc_memalign(alignment, bytes); });
  if (made == nullptr) return ENOMEM;
  *out = made;
  return 0;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return allocate(bytes, MAP_FAILED,
                  [&] { return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, fd, offset)); });
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  return mmap(at, bytes, protection, flags, fd, offset);
}

}  // extern "C"
