#include "config/foreign/nodes.h"

#include <fmt/format.h>

namespace fettle {

std::string place_of(const std::string& file, const YAML::Node& node) {
  return node.Mark().is_null() ? file : fmt::format("{}:{}", file, node.Mark().line + 1);
}

std::string text_of(const YAML::Node& node) {
  return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
}

}  // namespace fettle
