// Defines size_text: a number of bytes as people read it.
#pragma once

#include <cstdint>
#include <string>

namespace fettle {

// "12.34 GB" (10^9 bytes), MB, KB or bytes, with so many decimals; a sign where it is negative.
std::string size_text(int64_t bytes, int decimals = 2);

}  // namespace fettle
