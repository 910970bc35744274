#include "base/size_text.h"

#include <fmt/format.h>

#include <cmath>

namespace fettle {

std::string size_text(int64_t bytes, int decimals) {
  const auto value = static_cast<double>(bytes);
  if (std::abs(value) < 100) return fmt::format("{} bytes", bytes);
  if (std::abs(value) < 1e5) return fmt::format("{:.{}f} KB", value / 1e3, decimals);
  if (std::abs(value) < 1e9) return fmt::format("{:.{}f} MB", value / 1e6, decimals);
  return fmt::format("{:.{}f} GB", value / 1e9, decimals);
}

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > (number < 0 ? 4u : 3u);) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace fettle
