// Defines Digest, which computes the checksum that a hub states for a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace fettle {

// Move-only.
class Digest {
 public:
  // The length of `etag`, the stated checksum, selects the algorithm: 64 digits for the SHA-256 of the content (large
  // files, and all files of ModelScope), 40 digits for the SHA-1 of git's blob (small files). `size` is the file's size
  // in bytes; the SHA-1 includes it, because a git blob starts with its size.
  Digest(const std::string& etag, int64_t size);

  void add(const void* bytes, size_t count);
  // Returns the checksum of all bytes added, in lower-case hexadecimal digits. Call it once.
  std::string text();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

}  // namespace fettle
