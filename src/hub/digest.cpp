#include "hub/digest.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace fettle {

Digest::Digest(const std::string& etag, int64_t size) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  const EVP_MD* kind = etag.size() == 64 ? EVP_sha256() : EVP_sha1();
  internal_check(context_ && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1, "Digest: OpenSSL has no SHA");
  if (etag.size() == 64) return;
  const std::string head = fmt::format("blob {}", size);
  add(head.c_str(), head.size() + 1);  // includes the NUL at the end
}

void Digest::add(const void* bytes, size_t count) {
  internal_check(EVP_DigestUpdate(context_.get(), bytes, count) == 1, "Digest: OpenSSL failed");
}

std::string Digest::text() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  internal_check(EVP_DigestFinal_ex(context_.get(), bytes, &count) == 1, "Digest: OpenSSL failed");
  std::string out;
  for (unsigned int i = 0; i < count; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

}  // namespace fettle
