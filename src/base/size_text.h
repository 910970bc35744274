// Defines size_text and with_commas, which write numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace fettle {

// Returns for example "12.34 GB" (10^9 bytes), "12.34 MB" or "12.34 KB", with `decimals` decimals. Numbers below 100
// are written like "12 bytes". A negative number gets a minus sign.
std::string size_text(int64_t bytes, int decimals = 2);

// Returns "1,234,567" for 1234567.
std::string with_commas(int64_t number);

}  // namespace fettle
