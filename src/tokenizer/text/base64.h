// Defines decode_base64: the bytes of rank files and charsmaps.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Sets `bytes` to what `text` spells in base64 (RFC 4648, section 4; padding may be left out). False when it does not.
bool decode_base64(std::string_view text, std::string& bytes);

}  // namespace fettle
