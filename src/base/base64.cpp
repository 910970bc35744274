#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>

namespace fettle {

std::string encode_base64(std::string_view bytes) {
  // Bytes for one call of OpenSSL, whose lengths are int. A multiple of 3, because 3 bytes become 4 digits.
  constexpr size_t kPart = 3 << 20;
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // the last byte is the NUL that OpenSSL adds
  for (size_t from = 0; from < bytes.size(); from += kPart)
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data() + from / 3 * 4),
                    reinterpret_cast<const unsigned char*>(bytes.data() + from),
                    static_cast<int>(std::min(kPart, bytes.size() - from)));
  out.pop_back();
  return out;
}

bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  uint32_t bits = 0;
  int count = 0;
  const size_t digits = text.find_last_not_of('=') + 1, padding = text.size() - digits;
  if (digits % 4 == 1 || padding > 2 || (padding > 0 && text.size() % 4 != 0)) return false;
  for (char c : text.substr(0, digits)) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
  }
  return true;
}

}  // namespace fettle
