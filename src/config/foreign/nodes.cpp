#include "config/foreign/nodes.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace fettle {

std::string place_of(const std::string& file, const YAML::Node& node) {
  return node.Mark().is_null() ? file : fmt::format("{}:{}", file, node.Mark().line + 1);
}

std::string text_of(const YAML::Node& node) {
  return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
}

double number_of(const YAML::Node& node, double otherwise) {
  const std::string value = text_of(node);
  char* end = nullptr;
  const double read = std::strtod(value.c_str(), &end);
  return value.empty() || *end != '\0' || !std::isfinite(read) ? otherwise : read;
}

}  // namespace fettle
