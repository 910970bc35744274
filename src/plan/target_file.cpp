#include "plan/target_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/pattern.h"
#include "config/nearest.h"
#include "config/yaml_text.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct FilePlace {
  std::string file;
  // Returns "figures.yaml:3", or only the file when the line is not known.
  std::string at(const YAML::Node& node) const {
    return node.Mark().line < 0 ? file : fmt::format("{}:{}", file, node.Mark().line + 1);
  }
};

// A key and the member that it sets. Numbers must lie between `least` and `most`.
template <typename Struct>
struct Key {
  std::string_view name;
  std::variant<std::string Struct::*, double Struct::*, int Struct::*, int64_t Struct::*> member;
  double least = 0, most = 0;
  double unit = 1;          // the member is the file's number times this factor
  const char* form = "";    // a regular expression that text must match
  bool required = true;     // the file must have the key unless `like` names a target
  const char* sample = "";  // text that matches `form`, for messages
};

const std::vector<Key<Target>> kFigures = {
    {"name", &Target::name, 0, 0, 1, "[A-Za-z0-9 _.-]{1,60}", false, "my-gpu"},
    {"title", &Target::title, 0, 0, 1, "[A-Za-z0-9 ()/_.-]{1,60}", false, "My GPU (24 GB)"},
    {"plugin", &Target::plugin, 0, 0, 1, "[a-z]+", true, "cuda"},
    {"memory_gib", &Target::memory_bytes, 0.1, 1e5, kGiB},
    {"bf16_tflops", &Target::bf16_tflops, 1e-3, 1e7},
    {"f32_tflops", &Target::f32_tflops, 1e-3, 1e7},
    {"memory_gb_per_s", &Target::memory_gb_per_s, 1e-3, 1e7},
    {"link_gb_per_s", &Target::link_gb_per_s, 1e-3, 1e7},
    {"link_peers", &Target::link_peers, 0, 1e4, 1, "", false},
    {"domain_devices", &Target::domain_devices, 0, 1e5, 1, "", false},
    {"network_gb_per_s", &Target::network_gb_per_s, 1e-3, 1e7},
    {"host_gb_per_s", &Target::host_gb_per_s, 1e-3, 1e7, 1, "", false},
    {"config", &Target::config, 0, 0, 1, "", false, "a GpuTargetConfigProto"},
};

const std::vector<Key<Chip>> kChip = {
    {"capability", &Chip::capability, 0, 0, 1, "[1-9][0-9]?\\.[0-9]a?|gfx[0-9a-f]{3,5}(:[a-z]+[+-])*", true,
     "9.0 or gfx942"},
    {"cores", &Chip::cores, 1, 1e5},
    {"fpus_per_core", &Chip::fpus_per_core, 1, 1e5},
    {"threads_per_core", &Chip::threads_per_core, 1, 1e5},
    {"threads_per_warp", &Chip::threads_per_warp, 1, 128, 1, "", false},
    {"shared_memory_per_core", &Chip::shared_memory_per_core, 1, 1e9},
    {"shared_memory_per_block", &Chip::shared_memory_per_block, 1, 1e9},
    {"l2_bytes", &Chip::l2_bytes, 1, 1e12},
    {"clock_ghz", &Chip::clock_ghz, 1e-3, 100},
    {"nvlinks", &Chip::nvlinks, 0, 1000, 1, "", false},
};

template <typename Struct>
void set(Struct& to, const Key<Struct>& key, const YAML::Node& node, const FilePlace& place) {
  const std::string text = node.IsScalar() ? node.Scalar() : "a list or a map";
  if (const auto member = std::get_if<std::string Struct::*>(&key.member)) {
    if (!node.IsScalar() || (key.form[0] != '\0' && !Pattern(key.form).match(text)))
      throw UserError("{}: {} is '{}', wanted text like {}", place.at(node), key.name, text, key.sample);
    to.*(*member) = text;
    return;
  }
  const bool whole = !std::holds_alternative<double Struct::*>(key.member) && key.unit == 1;
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value) || !(value >= key.least && value <= key.most) ||
      (whole && value != std::floor(value)))
    throw UserError("{}: {} is '{}', wanted a {}number from {} to {}", place.at(node), key.name, text,
                    whole ? "whole " : "", key.least, key.most);
  value *= key.unit;
  if (const auto real = std::get_if<double Struct::*>(&key.member)) to.*(*real) = value;
  if (const auto small = std::get_if<int Struct::*>(&key.member)) to.*(*small) = static_cast<int>(value);
  if (const auto large = std::get_if<int64_t Struct::*>(&key.member)) to.*(*large) = static_cast<int64_t>(value);
}

// Sets the members for the map's keys. Ignores the keys in `others`, which the caller reads. With `all`, throws when a
// required key is missing.
template <typename Struct>
void read(Struct& to, const std::vector<Key<Struct>>& keys, const std::vector<std::string_view>& others,
          const YAML::Node& map, bool all, const FilePlace& place) {
  std::vector<std::string_view> names = others;
  for (const Key<Struct>& key : keys) names.push_back(key.name);
  for (const auto& entry : map) {
    const std::string name = entry.first.Scalar();
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return k.name == name; });
    if (key != keys.end()) {
      set(to, *key, entry.second, place);
    } else if (std::find(others.begin(), others.end(), name) == others.end()) {
      const auto near = nearest(name, names);
      throw UserError("{}: '{}' is not a key of a target{}; see docs/targets.md", place.at(entry.first), name,
                      near ? fmt::format("; did you mean {}?", *near) : "");
    }
  }
  if (!all) return;
  for (const Key<Struct>& key : keys) {
    if (key.required && !map[std::string(key.name)])
      throw UserError("{}: {} is missing; add it, or set `like: mi300x` to use the value of a known target",
                      place.at(map), key.name);
  }
}

YAML::Node load(const std::filesystem::path& file) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(file, unreadable))
    throw UserError("{}: the file does not exist; wanted a target description (docs/targets.md)", file.string());
  try {
    YAML::Node root = parse_yaml(read_file(file));
    if (!root.IsMap()) throw UserError("{}: wanted keys and values that describe a target", file.string());
    return root;
  } catch (const YAML::ParserException& error) {
    throw UserError("{}:{}: invalid yaml: {}", file.string(), error.mark.line + 1, error.msg);
  }
}

}  // namespace

Target read_target(const std::filesystem::path& file) {
  const YAML::Node root = load(file);
  const FilePlace place{file.string()};
  Target target;
  const YAML::Node like = root["like"];
  if (like) {
    try {
      target = target_named(like.IsScalar() ? like.Scalar() : "");
    } catch (const UserError& error) {
      throw UserError("{}: like: {}", place.at(like), error.what());
    }
    target.title = "";
  }
  target.name = file.stem().string();
  target.config = "";  // empty: it is computed from the figures
  read(target, kFigures, {"like", "chip"}, root, !like, place);
  if (target.title.empty()) target.title = target.name;
  const Vendor* vendor = vendor_named(target.plugin);
  if (vendor == nullptr || vendor->target_platform.empty())
    throw UserError("{}: plugin is '{}', wanted a plugin that can compile for devices that are not present: {}",
                    place.at(root["plugin"]), target.plugin, fmt::join(vendors_with_targets(), " or "));
  const YAML::Node chip = root["chip"];
  if (chip && !chip.IsMap()) throw UserError("{}: chip is not a map of keys and numbers", place.at(chip));
  if (chip && !target.config.empty())
    throw UserError("{}: chip and config are alternatives; remove one of them", place.at(chip));
  if (!chip && target.config.empty() && !like)
    throw UserError("{}: chip and config are both missing; set one of them, or `like: mi300x`", place.at(root));
  if (chip) read(target.chip, kChip, {}, chip, !like, place);
  if (target.config.empty()) {
    // Checks this here, because the plugin ends the whole process when it gets a chip of another vendor.
    if (vendor_of_capability(target.chip.capability) != vendor)
      throw UserError(
          "{}: capability {} does not belong to plugin {}; use a chip of that plugin's vendor, or change `plugin`",
          place.at(root), target.chip.capability, target.plugin);
    target.config = config_text(target);
  }
  return target;
}

Target find_target(const std::string& name_or_file) {
  const std::filesystem::path path(name_or_file);
  const std::string ending = path.extension().string();
  if (name_or_file.find('/') != std::string::npos || ending == ".yaml" || ending == ".yml" || ending == ".json")
    return read_target(path);
  return target_named(name_or_file);
}

}  // namespace fettle
