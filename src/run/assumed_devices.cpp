#include "run/assumed_devices.h"

#include "base/error.h"
#include "base/pattern.h"
#include "config/recipe.h"

namespace fettle {
namespace {

constexpr int64_t kMostDevices = 65'536;

}  // namespace

std::optional<int64_t> asked_devices(const Recipe& recipe) {
  if (recipe.device_count) return recipe.device_count;
  if (recipe.mesh.empty() || recipe.mesh_is_auto()) return std::nullopt;
  int64_t count = 1;
  for (const auto& [axis, size] : recipe.mesh) count *= size;
  return count;
}

TargetWords parse_target(const std::string& text) {
  static const Pattern form("([^:]+)(:(([1-9][0-9]{0,4})x)?([1-9][0-9]{0,4}))?");
  const std::optional<Pattern::Groups> match = form.match(text);
  if (!match) throw UserError("target: '{}' is not NAME, NAME:DEVICES or NAME:HOSTSxDEVICES (a100-80:2x8)", text);
  const std::string& hosts = (*match)[4];
  const std::string& devices = (*match)[5];
  TargetWords words{(*match)[1], hosts.empty() ? 1 : std::stoll(hosts), std::nullopt};
  if (!devices.empty()) words.devices = std::stoll(devices);
  if (words.hosts * words.devices.value_or(1) > kMostDevices)
    throw UserError("target: {} has {} devices; a plan can have at most {}", text, words.hosts * *words.devices,
                    kMostDevices);
  return words;
}

bool is_this_machine(const std::string& target) {
  return target.empty() || target == "this";
}

AssumedDevices assumed_devices(const Recipe& recipe) {
  if (recipe.device_count) return {*recipe.device_count, "device_count"};
  if (const auto asked = asked_devices(recipe)) return {*asked, "the recipe's mesh"};
  if (!is_this_machine(recipe.target))
    if (const TargetWords words = parse_target(recipe.target); words.devices)
      return {words.hosts * *words.devices, "target"};
  const char* unset =
      recipe.mesh_is_auto() ? "device_count is not set and mesh has no sizes" : "neither device_count nor mesh is set";
  return {1, fmt::format("{}; `fettle train` uses all devices that it finds", unset)};
}

}  // namespace fettle
