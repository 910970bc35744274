#include "sharding/rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

constexpr std::array kAxes{kStageAxis, "dp", "fsdp", "ep", "tp", "sp"};

// The default rule of a logical axis. A mesh axis splits the first dim whose rule names the mesh axis. So fsdp splits
// the first dim of a layer's matrices, which varies slowest in memory. To gather along the first dim, devices move
// contiguous memory. To gather along a later dim, compilers would transpose the weights of all layers. If a weight has
// experts, ep splits the experts. ep splits every other weight along the same dim as fsdp, because ep also splits the
// rows of a batch.
struct LogicalAxis {
  std::vector<std::string> split;  // the mesh axes that split it by default
  const char* meaning;             // for messages
};
const std::map<std::string, LogicalAxis> kLogicalAxes{
    {"vocab", {{"tp"}, "the size of the vocabulary"}},
    {"embed", {{"fsdp", "ep"}, "the hidden size"}},
    {"heads", {{"tp", "fsdp", "ep"}, "the size of all heads together"}},
    {"kv_heads", {{"tp", "fsdp", "ep"}, "the size of all key heads together"}},
    {"mlp", {{"tp", "fsdp", "ep"}, "the inner size of an MLP"}},
    {"experts", {{"ep"}, "the number of experts"}},
    {"layers", {{kStageAxis}, "the number of layers"}},
    {"stages", {{kStageAxis}, "the number of stages"}},
    {"rank", {{}, "the rank of an adapter"}},
    {"norm", {{}, "the size of a norm or bias"}},
    {"batch", {{"dp", "fsdp", "ep"}, "the number of rows"}},
    {"length", {{"sp"}, "the number of tokens in a row"}},
    {"act_embed", {{}, "the hidden size"}},
    {"act_heads", {{"tp"}, "the number of heads"}},
    {"act_kv_heads", {{"tp"}, "the number of key heads"}},
    {"act_mlp", {{"tp"}, "the inner size of an MLP"}},
    {"act_groups", {{"dp", "fsdp"}, "the number of groups of rows"}},
    {"act_experts", {{"ep"}, "the number of experts"}},
    {"act_vocab", {{"tp"}, "the size of the vocabulary"}},
};

// Returns whether a dim with the logical axis `axis` may stay unsplit. The model fixes the size of such a dim, so
// many meshes do not divide it. Every layer can also compute with the whole dim.
bool may_stay_whole(const std::string& axis) {
  return axis == "vocab" || axis == "act_vocab" || axis == "act_kv_heads";
}
// Returns whether `mesh_axis` may leave a dim with the logical axis `axis` unsplit. ep must divide the number of
// experts; it splits another dim only if it divides that dim. pp must divide the number of layers; it splits the batch
// only if it divides the number of rows.
bool may_stay_whole(const std::string& axis, const std::string& mesh_axis) {
  const bool experts = axis == "experts" || axis == "act_experts";
  return may_stay_whole(axis) || (mesh_axis == "ep" && !experts) || (mesh_axis == kStageAxis && axis == "batch");
}

}  // namespace

ShardingRules::ShardingRules(MeshAxes mesh, const std::map<std::string, std::string>& overrides)
    : mesh_(std::move(mesh)) {
  for (const auto& [name, axis] : kLogicalAxes) rules_[name] = axis.split;
  for (const auto& [logical, axes] : overrides) {
    if (!rules_.contains(logical))
      throw UserError("sharding: unknown logical axis '{}'; known are {}", logical,
                      fmt::join(
                          [] {
                            std::vector<std::string> names;
                            for (const auto& [name, axis] : kLogicalAxes) names.push_back(name);
                            return names;
                          }(),
                          ", "));
    std::vector<std::string> parsed;
    std::istringstream parts(axes);
    for (std::string axis; std::getline(parts, axis, '+');) {
      if (std::find(kAxes.begin(), kAxes.end(), axis) == kAxes.end())
        throw UserError("sharding.{}: unknown mesh axis '{}'; known are {}", logical, axis, fmt::join(kAxes, ", "));
      parsed.push_back(axis);
    }
    rules_[logical] = parsed;
  }
}

ShardingRules ShardingRules::outside_layers() const {
  ShardingRules out = *this;
  if (stages() > 1) out.rules_["batch"].emplace_back(kStageAxis);
  return out;
}

ShardingRules ShardingRules::for_one_row() const {
  ShardingRules out = *this;
  out.rules_["batch"].clear();
  out.rules_["length"].clear();
  return out;
}

Partition ShardingRules::lay(const LogicalAxes& axes, const Dims& dims, const std::string& what,
                             bool any_stays_whole) const {
  internal_check(axes.size() == dims.size(), "{}: {} logical axes for {}", what, axes.size(), to_string(dims));
  Partition out;
  std::set<std::string> used;
  const bool of_experts = std::ranges::find(axes, "experts") != axes.end();
  for (size_t i = 0; i < dims.size(); ++i) {
    std::vector<std::string> split;
    int64_t parts = 1;
    if (const auto rule = rules_.find(axes[i]); rule != rules_.end())
      for (const std::string& axis : rule->second)
        if (const int64_t size = mesh_.size_of(axis); size > 1 && !used.contains(axis)) {
          if (axis == "ep" && of_experts && axes[i] != "experts") continue;
          if ((any_stays_whole || may_stay_whole(axes[i], axis)) && dims[i] % (parts * size) != 0) continue;
          used.insert(axis);
          split.push_back(axis);
          parts *= size;
        }
    if (dims[i] % parts != 0)
      throw UserError(
          "{}: {} ({}) is not divisible by {} ({}); {} is {}; choose a mesh whose axes divide it (mesh: "
          "{{dp: {}}} always works, but each device stores all weights), or a smaller device_count",
          what, axes[i], dims[i], fmt::join(split, " x "), parts, axes[i], kLogicalAxes.at(axes[i]).meaning,
          mesh_.size());
    out.dims.push_back(split);
  }
  return out;
}

Partition ShardingRules::partition(const LogicalAxes& axes, const Dims& dims, const std::string& what) const {
  return lay(axes, dims, what, false);
}

Partition ShardingRules::fitting(const LogicalAxes& axes, const Dims& dims) const {
  return lay(axes, dims, "an array", true);
}

std::vector<std::string> ShardingRules::left_whole(const std::string& axis, int64_t dim) const {
  std::vector<std::string> out;
  if (!may_stay_whole(axis)) return out;
  const Partition taken = partition({axis}, {dim}, axis);
  for (const std::string& name : rules_.at(axis))
    if (mesh_.size_of(name) > 1 && std::find(taken.dims[0].begin(), taken.dims[0].end(), name) == taken.dims[0].end())
      out.push_back(name);
  return out;
}

Tensor ShardingRules::constrain(const Tensor& x, const LogicalAxes& axes) const {
  if (mesh_.size() == 1) return x;
  return sharding_constraint(x, partition(axes, x.dims(), "activation at " + PathScope::path()));
}

MeshAxes make_mesh(const std::map<std::string, int64_t>& mesh, int64_t devices) {
  MeshAxes out;
  if (mesh.empty() || mesh.contains("auto")) {
    if (devices > 1) out.axes.emplace_back("fsdp", devices);
    return out;
  }
  for (const auto& [name, size] : mesh)
    if (std::find(kAxes.begin(), kAxes.end(), name) == kAxes.end())
      throw UserError("mesh: the axis '{}' is not known; the axes are {}", name, fmt::join(kAxes, ", "));
  for (const char* axis : kAxes)
    if (const auto at = mesh.find(axis); at != mesh.end() && at->second > 1) out.axes.emplace_back(axis, at->second);
  if (out.size() != devices) {
    std::vector<std::string> factors;
    for (const auto& [name, size] : mesh) factors.push_back(fmt::format("{} {}", name, size));
    std::string remedy = "change the mesh";
    if (out.size_of("fsdp") == 1 && devices % out.size() == 0) {
      std::vector<std::string> whole;
      for (const auto& [axis, size] : out.axes) whole.push_back(fmt::format("{}: {}", axis, size));
      whole.push_back(fmt::format("fsdp: {}", devices / out.size()));
      remedy = fmt::format("set mesh: {{{}}}", fmt::join(whole, ", "));
    }
    throw UserError("mesh: {} = {} devices, but {} are in use; set device_count or {}", fmt::join(factors, " x "),
                    out.size(), devices, remedy);
  }
  return out;
}

std::string mesh_title(const MeshAxes& mesh) {
  std::vector<std::string> parts;
  for (const auto& [axis, size] : mesh.axes) parts.push_back(fmt::format("{} {}", axis, size));
  return parts.empty() ? "one device" : fmt::format("mesh {}", fmt::join(parts, " x "));
}

std::string mesh_key(const std::map<std::string, int64_t>& mesh) {
  std::vector<std::string> parts;
  for (const auto& [axis, size] : mesh)
    if (size > 1) parts.push_back(fmt::format("{}: {}", axis, size));
  return fmt::format("mesh: {{{}}}", parts.empty() ? "fsdp: 1" : fmt::format("{}", fmt::join(parts, ", ")));
}

}  // namespace fettle
