// Defines size_text and with_commas: numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace fettle {

// "12.34 GB" (10^9 bytes), MB, KB or bytes, with so many decimals; a sign where it is negative.
std::string size_text(int64_t bytes, int decimals = 2);

// 1234567 as "1,234,567".
std::string with_commas(int64_t number);

}  // namespace fettle
