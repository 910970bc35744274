// Defines encode_base64 and decode_base64 (RFC 4648, section 4).
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Returns `bytes` in base64, with padding.
std::string encode_base64(std::string_view bytes);
// Decodes base64 from `text` into `bytes`; padding is optional. Returns false when `text` has a character that is not
// in base64's alphabet, padding of a wrong length, or a length that does not give a whole number of bytes.
bool decode_base64(std::string_view text, std::string& bytes);

}  // namespace fettle
