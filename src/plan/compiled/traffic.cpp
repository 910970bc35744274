#include "plan/compiled/traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"

namespace fettle {
namespace {

const std::set<std::string_view> kCollectives = {"all-gather",          "all-reduce",        "reduce-scatter",
                                                 "all-to-all",          "ragged-all-to-all", "collective-permute",
                                                 "collective-broadcast"};

// Returns "all-gather" for "all-gather-start"; "" when the opcode is not a collective.
std::string_view collective_of(std::string_view opcode) {
  if (opcode.ends_with("-start")) opcode.remove_suffix(6);
  return kCollectives.contains(opcode) ? opcode : std::string_view();
}

double payload_of(const HloComputation& computation, const HloInstruction& instruction, std::string_view collective) {
  double operands = 0;
  for (int operand : instruction.operands) operands += computation.instructions[operand].bytes();
  if (collective != "all-gather") return operands;
  // The results of an all-gather-start include its operands.
  return instruction.bytes() - (instruction.opcode.ends_with("-start") ? operands : 0);
}

// Returns the names of the axes along which the members' coordinates differ: "dp+fsdp". If there are fewer members than
// devices along these axes, the result begins with "part of ".
std::string axes_of(const std::vector<int64_t>& members, const MeshAxes& mesh) {
  std::string names;
  int64_t stride = mesh.size(), spanned = 1;
  for (const auto& [name, size] : mesh.axes) {
    stride /= size;
    const auto place = [&](int64_t device) { return device / stride % size; };
    if (std::all_of(members.begin(), members.end(), [&](int64_t d) { return place(d) == place(members[0]); })) continue;
    names += (names.empty() ? "" : "+") + name;
    spanned *= size;
  }
  return (static_cast<int64_t>(members.size()) < spanned ? "part of " : "") + names;
}

// Counts the members on each host that has members. Returns the smallest of these counts.
int64_t least_on_host(const std::vector<int64_t>& members, int64_t devices_per_host) {
  std::map<int64_t, int64_t> hosts;
  for (int64_t device : members) ++hosts[device / devices_per_host];
  int64_t least = static_cast<int64_t>(members.size());
  for (const auto& [host, count] : hosts) least = std::min(least, count);
  return least;
}

Transfer permute(const HloInstruction& instruction, const MeshAxes& mesh, int64_t devices_per_host, double payload) {
  Transfer out{"collective-permute"};
  std::set<std::string> axes;
  for (const auto& [source, target] : instruction.pairs) {
    if (source == target) continue;
    out.group = 2;
    if (source / devices_per_host != target / devices_per_host) out.network_bytes = payload;
    std::string name = axes_of({source, target}, mesh);
    if (name.starts_with("part of ")) name.erase(0, 8);  // the name of a pair has only the axes
    axes.insert(name);
  }
  for (const std::string& name : axes) out.axes += (out.axes.empty() ? "" : ", ") + name;
  out.payload_bytes = payload;
  out.link_bytes = payload - out.network_bytes;
  out.on_host = out.network_bytes > 0 ? 1 : out.group;
  return out;
}

}  // namespace

std::optional<Transfer> transfer_of(const HloComputation& computation, const HloInstruction& instruction,
                                    int64_t devices, const MeshAxes& mesh, int64_t devices_per_host) {
  internal_check(devices_per_host > 0, "plan: {} devices per host, wanted at least 1", devices_per_host);
  const std::string_view collective = collective_of(instruction.opcode);
  if (collective.empty()) return {};
  const double payload = payload_of(computation, instruction, collective);
  if (collective == "collective-permute") {
    Transfer out = permute(instruction, mesh, devices_per_host, payload);
    return out.group > 1 ? std::optional(std::move(out)) : std::nullopt;
  }
  std::vector<int64_t> members;
  if (instruction.groups.empty()) {
    for (int64_t device = 0; device < devices; ++device) members.push_back(device);
  } else {  // groups have equal sizes; the group with the smallest least_on_host is the slowest
    const auto worst =
        std::min_element(instruction.groups.begin(), instruction.groups.end(), [&](const auto& a, const auto& b) {
          return least_on_host(a, devices_per_host) < least_on_host(b, devices_per_host);
        });
    members = *worst;
  }
  if (members.size() < 2) return {};
  Transfer out{std::string(collective), axes_of(members, mesh), static_cast<int64_t>(members.size())};
  out.on_host = least_on_host(members, devices_per_host);
  out.payload_bytes = payload;
  const double n = static_cast<double>(out.group), m = static_cast<double>(out.on_host);
  double sent = payload * (n - 1) / n;
  if (collective == "all-reduce") sent *= 2;
  if (collective == "collective-broadcast") sent = payload;
  if (out.across_hosts()) out.network_bytes = collective.ends_with("all-to-all") ? payload * (n - m) / n : sent / m;
  out.link_bytes = sent - out.network_bytes;
  return out;
}

std::vector<Traffic> traffic_of(const HloModule& module, const MeshAxes& mesh, int64_t devices_per_host) {
  const std::vector<Executions> executions = executions_of(module, true);
  std::map<std::tuple<std::string, std::string, int64_t, bool>, Traffic> rows;
  for (int c = static_cast<int>(module.computations.size()) - 1; c >= 0; --c) {
    const HloComputation& computation = module.computations[c];
    const auto [all, asynchronous] = executions[c];
    if (all == 0) continue;
    for (const HloInstruction& instruction : computation.instructions) {
      const auto transfer = transfer_of(computation, instruction, module.devices, mesh, devices_per_host);
      if (!transfer) continue;
      Traffic& row = rows[{transfer->collective, transfer->axes, transfer->group, transfer->across_hosts()}];
      row.collective = transfer->collective;
      row.axes = transfer->axes;
      row.group = transfer->group;
      row.across_hosts = transfer->across_hosts();
      row.executions += all;
      row.asynchronous += instruction.opcode.ends_with("-start") ? all : asynchronous;
      row.payload_bytes += all * transfer->payload_bytes;
      row.link_bytes += all * transfer->link_bytes;
      row.network_bytes += all * transfer->network_bytes;
    }
  }
  std::vector<Traffic> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Traffic& a, const Traffic& b) { return a.sent_bytes() > b.sent_bytes(); });
  return sorted;
}

double collective_bytes(const std::vector<Traffic>& rows) {
  double bytes = 0;
  for (const Traffic& row : rows) bytes += row.sent_bytes();
  return bytes;
}

}  // namespace fettle
