#include "models/quantisation.h"

#include <fmt/format.h>

namespace fettle {

double Quantisation::bits() const {
  if (type == Type::kMxfp4) return 4 + 8.0 / kMxfp4Block;
  if (in_groups()) {
    const double of_group = 8.0 + 8 * static_cast<double>(byte_size(scales));
    return (four_bits() ? 4 : 8) + (group > 0 ? of_group / static_cast<double>(group) : 0);
  }
  if (type == Type::kFloat8 && group > 0) return 8 + 32.0 / static_cast<double>(group * block_rows);
  if (!four_bits()) return 8;
  return 4 + (nested ? 8.0 / kBlock + 32.0 / (kBlock * kNestedBlock) : 32.0 / kBlock);
}

std::string Quantisation::name() const {
  if (type == Type::kMxfp4) return "mxfp4";
  if (in_groups())
    return fmt::format("{} integers with a scale for {}", four_bits() ? "4-bit" : "8-bit",
                       group > 0 ? fmt::format("{} inputs", group) : "each output");
  if (type == Type::kFloat8)
    return group > 0 ? fmt::format("8-bit floats with a factor for {} x {} values", block_rows, group)
                     : "8-bit floats with a factor for each output";
  if (!four_bits()) return "int8";
  const std::string base = type == Type::kNf4 ? "nf4" : "fp4";
  return nested ? base + " with double quantization" : base;
}

}  // namespace fettle
