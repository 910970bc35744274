#include "config/offload_wish.h"

#include <fstream>
#include <sstream>

#include "config/yaml_text.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

bool is_true(const YAML::Node& node) {
  return node.IsDefined() && node.IsScalar() && bool_from_text(node.Scalar()).value_or(false);
}

// Returns true for {device: cpu}; false without a device, or for none.
bool names_device(const YAML::Node& node) {
  if (!node.IsDefined() || !node.IsMap()) return false;
  const YAML::Node device = node["device"];
  return device.IsDefined() && device.IsScalar() && device.Scalar() != "none" && device.Scalar() != "";
}

// Returns the setting itself, or the content of the file that it names.
YAML::Node content(const YAML::Node& node, const fs::path& recipe, std::string& unread) {
  if (!node.IsScalar() || node.Scalar().empty()) return node;
  for (const fs::path& file : {fs::path(node.Scalar()), recipe.parent_path() / node.Scalar()}) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) continue;
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    try {
      return parse_yaml(text.str());  // JSON is YAML too
    } catch (const YAML::Exception&) {
      break;
    }
  }
  unread = node.Scalar();
  return {};
}

OffloadWish of_deepspeed(const YAML::Node& given, const fs::path& recipe) {
  OffloadWish wish;
  const YAML::Node config = content(given, recipe, wish.unread);
  if (!config.IsMap()) return wish;
  const YAML::Node zero = config["zero_optimization"];
  if (!zero.IsDefined() || !zero.IsMap()) return wish;
  wish.optimizer = names_device(zero["offload_optimizer"]) || is_true(zero["cpu_offload"]);
  wish.param = names_device(zero["offload_param"]) || is_true(zero["cpu_offload_params"]);
  return wish;
}

OffloadWish of_fsdp_config(const YAML::Node& given, const fs::path& recipe) {
  OffloadWish wish;
  YAML::Node config = content(given, recipe, wish.unread);
  if (!config.IsMap()) return wish;
  if (config["fsdp_config"].IsDefined() && config["fsdp_config"].IsMap())
    config = config["fsdp_config"];  // accelerate's
  for (const char* name : {"fsdp_offload_params", "offload_params", "cpu_offload", "fsdp_cpu_offload"})
    if (is_true(config[name])) wish.optimizer = wish.param = true;
  return wish;
}

OffloadWish of_fsdp(const YAML::Node& given) {
  std::string words;
  if (given.IsScalar()) words = given.Scalar();
  if (given.IsSequence())
    for (const auto& word : given)
      if (word.IsScalar()) words += " " + word.Scalar();
  const bool asks = (" " + words + " ").find(" offload ") != std::string::npos;
  return {asks, asks, ""};
}

}  // namespace

std::optional<OffloadWish> offload_wish(std::string_view key, const GivenValue& given, const fs::path& recipe) {
  if (key == "deepspeed") return of_deepspeed(given.node, recipe);
  if (key == "fsdp") return of_fsdp(given.node);
  if (key == "fsdp_config") return of_fsdp_config(given.node, recipe);
  if (!key.starts_with("fsdp_")) return std::nullopt;
  const bool asks = key.find("offload") != std::string_view::npos && is_true(given.node);
  return OffloadWish{asks, asks, ""};
}

}  // namespace fettle
