// Defines size_text and with_commas, which write numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace fettle {

// "12.34 GB" (GB = 10^9 bytes), or MB, KB or bytes, with `decimals` decimals. Negative numbers get a minus sign.
std::string size_text(int64_t bytes, int decimals = 2);

// 1234567 as "1,234,567".
std::string with_commas(int64_t number);

}  // namespace fettle
