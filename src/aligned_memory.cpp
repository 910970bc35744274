// Replaces the C library's posix_memalign, free and realloc, in this program and in the libraries that it loads. Large
// aligned blocks then come from a MemoryPool. The CPU plugin needs this: it allocates the temporaries and results of a
// step with posix_memalign.
//
// Does not replace malloc, so the pool can use malloc for its own records.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/memory_pool.h"

extern "C" {
void* __libc_memalign(size_t alignment, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void __libc_free(void* block);
}

namespace fettle {
namespace {

constexpr size_t kLarge = size_t{1} << 20;
constexpr size_t kReserve = size_t{4} << 40;  // bytes of address space, which take no memory until they are used

// The pool is never destroyed, because other objects may free blocks of the pool when the program ends.
MemoryPool* pool() {
  alignas(MemoryPool) static char place[sizeof(MemoryPool)];
  static MemoryPool* const made = new (place) MemoryPool(kReserve);
  return made;
}

// Null until the pool's first use. free() reads this pointer instead of calling pool(), which would create a pool.
MemoryPool* in_use = nullptr;

bool is_pooled(const void* block) {
  const MemoryPool* const made = __atomic_load_n(&in_use, __ATOMIC_ACQUIRE);
  return made != nullptr && made->owns(block);
}

void* allocate(size_t alignment, size_t bytes) {
  if (bytes >= kLarge) {
    MemoryPool* const made = pool();
    __atomic_store_n(&in_use, made, __ATOMIC_RELEASE);
    if (void* const block = made->allocate(bytes, alignment)) return block;
  }
  return __libc_memalign(alignment, bytes);
}

}  // namespace
}  // namespace fettle

#define FETTLE_REPLACES extern "C" __attribute__((visibility("default")))

FETTLE_REPLACES int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int before = errno;
  void* const found = fettle::allocate(alignment, bytes);
  errno = before;
  if (found == nullptr) return ENOMEM;
  *block = found;
  return 0;
}

FETTLE_REPLACES void free(void* block) {
  if (block == nullptr) return;
  if (!fettle::is_pooled(block)) return __libc_free(block);
  const int before = errno;
  fettle::in_use->release(block);
  errno = before;
}

FETTLE_REPLACES void* realloc(void* block, size_t bytes) {
  if (block == nullptr || !fettle::is_pooled(block)) return __libc_realloc(block, bytes);
  if (bytes == 0) {
    free(block);
    return nullptr;
  }
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  const size_t size = fettle::in_use->size_of(block);
  std::memcpy(moved, block, size < bytes ? size : bytes);
  free(block);
  return moved;
}
