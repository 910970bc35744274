// Defines decode_base64, for the bytes in rank files and charsmaps.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Decodes base64 (RFC 4648, section 4; padding is optional) from `text` into `bytes`. Returns false for invalid text.
bool decode_base64(std::string_view text, std::string& bytes);

}  // namespace fettle
