#include "plan/machine.h"

#include <algorithm>

#include "base/error.h"
#include "plan/target_file.h"
#include "run/assumed_devices.h"
#include "run/device_request.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

namespace {

constexpr int64_t kHostDevices = 8;  // devices in a usual GPU server

}  // namespace

int64_t linked_devices(const Target& target, int64_t hosts, int64_t per_host) {
  const int64_t hosts_of_rack = target.domain_devices / per_host;
  if (hosts_of_rack < 2) return per_host;
  if (hosts <= hosts_of_rack) return hosts * per_host;
  return hosts % hosts_of_rack == 0 ? hosts_of_rack * per_host : per_host;
}

std::string topology_shape(const Target& target, int64_t hosts, int64_t per_host) {
  const int64_t linked = linked_devices(target, hosts, per_host);
  return fmt::format("{}x{}x{}", hosts * per_host / linked, linked / per_host, per_host);
}

Machine::Machine(Target target, std::shared_ptr<const Plugin> plugin, int64_t hosts, int64_t per_host,
                 double utilization, KernelSet kernels)
    : target_(std::move(target)),
      plugin_(std::move(plugin)),
      hosts_(hosts),
      per_host_(per_host),
      linked_(fettle::linked_devices(*target_, hosts, per_host)) {
  memory_ = share_memory(plugin_->vendor(), target_->memory_bytes, 0, utilization, count());
  topology_ = Topology::create(plugin_, target_->config, topology_shape(*target_, hosts, per_host));
  run_target_ = {.count = count(),
                 .platform = std::string(plugin_->vendor().name),
                 .title = fmt::format("{} x {}", count(), target_->title),
                 .capability = target_->chip.capability,
                 .kernels = std::move(kernels),
                 .room = {memory_.limit, "the device's limit"}};
}

namespace {

// Returns the capability without the ending that only some devices or targets write: "9.0a" becomes "9.0".
std::string_view plain_capability(std::string_view capability) {
  capability = capability.substr(0, capability.find(':'));
  return capability.starts_with("gfx") ? capability : capability.substr(0, capability.find('a'));
}

// Returns the target with the devices' rates; nullopt if they are not known.
std::optional<Target> rates_of(const Devices& devices, const std::string& wanted) {
  if (!is_this_machine(wanted)) {
    Target target = find_target(parse_target(wanted).name);
    if (target.plugin == devices.vendor() &&
        plain_capability(target.chip.capability) == plain_capability(devices.capability()))
      return target;
  }
  const MemoryShare& memory = devices.memory();  // the limit may be a small share of the card's memory
  const Target* known =
      target_of_kind(devices.client().devices()[0].kind, memory.total > 0 ? memory.total : memory.limit);
  return known == nullptr ? std::nullopt : std::optional(*known);
}

}  // namespace

Machine::Machine(Devices& devices, const std::string& target)
    : target_(rates_of(devices, target)),
      hosts_(devices.host_count()),
      per_host_(devices.count() / hosts_),
      linked_(target_ ? fettle::linked_devices(*target_, hosts_, per_host_) : per_host_),
      run_target_(target_of(devices)),
      here_(&devices) {}

MachineSize machine_size(const Request& request) {
  if (is_this_machine(request.target())) {
    const Devices devices(request.devices());
    return {1, devices.count(), devices.title(), devices.capability()};
  }
  const TargetWords words = parse_target(request.target());
  const int64_t asked = request.device_count().value_or(1);
  MachineSize size{words.hosts, words.devices.value_or(asked), "", ""};
  if (words.devices && request.device_count() && asked != size.count())
    throw UserError("target: {} has {} devices, but the recipe's mesh or device_count asks for {}", request.target(),
                    size.count(), asked);
  const Target target = find_target(words.name);
  if (!words.devices && asked > std::max<int64_t>(kHostDevices, target.domain_devices))
    throw UserError(
        "target: {0} does not say how many hosts have the {1} devices that the recipe's mesh or device_count asks for; "
        "write {0}:HOSTSxDEVICES (such as {0}:2x8), or {0}:{1} for one host",
        request.target(), asked);
  size.title = fmt::format("{} x {}", size.count(), target.title);
  size.capability = target.chip.capability;
  return size;
}

Machine Machine::of(const Request& request) {
  if (is_this_machine(request.target())) {
    auto devices = std::make_unique<Devices>(request.devices());
    Machine here(*devices);
    here.owned_ = std::move(devices);
    return here;
  }
  const Target target = find_target(parse_target(request.target()).name);
  const MachineSize size = machine_size(request);
  const std::shared_ptr<const Plugin> plugin =
      Plugin::load(request.devices().plugin.empty() ? target.plugin : request.devices().plugin);
  if (!plugin->vendor().target_platform.empty() && plugin->vendor().name != target.plugin)
    throw UserError("target: {} needs plugin {}, but the recipe sets {}; remove `plugin` from the recipe", target.title,
                    target.plugin, plugin->name());
  return Machine(target, plugin, size.hosts, size.per_host, request.devices().memory_utilization,
                 select_kernels(plugin->vendor().name, request.devices().kernels, target.chip.capability));
}

const MemoryShare& Machine::memory() const {
  return here_ != nullptr ? here_->memory() : memory_;
}

std::optional<Machine> Machine::multiplied(int64_t times) const {
  if (here_ != nullptr) return std::nullopt;
  int64_t per_host = per_host_;
  while (times % 2 == 0 && hosts_ == 1 && per_host * 2 <= kHostDevices) {
    per_host *= 2;
    times /= 2;
  }
  return Machine(*target_, plugin_, hosts_ * times, per_host, memory_.utilization, run_target_.kernels);
}

namespace {

// Adds the workspace of the program's kernels, which the compiler does not count if no device is present. Kernels run
// one after the other, so only the largest workspace counts.
CompiledStep with_workspace(CompiledStep step, const Program& program) {
  int64_t workspace = 0;
  for (const KernelUse& use : program.kernels()) workspace = std::max(workspace, use.cost.workspace);
  step.memory.temp += workspace;
  step.memory.peak += workspace;
  return step;
}

}  // namespace

CompiledStep Machine::compile(const Program& program, bool tf32) const {
  if (here_ != nullptr) {
    const Executable executable = here_->compile(program);
    return {executable.memory_stats(), executable.program().optimized_program()};
  }
  const CompiledProgram compiled =
      topology_->compile(program.text(tf32), {.num_partitions = static_cast<int>(program.mesh().size())});
  return with_workspace({compiled.memory_stats(), compiled.optimized_program()}, program);
}

}  // namespace fettle
