#include "plan/machine.h"

#include "base/error.h"
#include "plan/target_file.h"
#include "run/assumed_devices.h"
#include "run/device_request.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

Machine::Machine(Target target, std::shared_ptr<const Plugin> plugin, int64_t hosts, int64_t per_host)
    : target_(std::move(target)), plugin_(std::move(plugin)), hosts_(hosts), per_host_(per_host) {
  topology_ = Topology::create(plugin_, target_->config, fmt::format("1x{}x{}", hosts, per_host));
}

Machine::Machine(Devices& devices) : per_host_(devices.count()), here_(&devices) {}

MachineSize machine_size(const Recipe& recipe) {
  if (is_this_machine(recipe.target)) {
    const Devices devices(device_request(recipe));
    return {1, devices.count(), devices.title()};
  }
  const TargetWords words = parse_target(recipe.target);
  const int64_t asked = asked_devices(recipe).value_or(1);
  MachineSize size{words.hosts, words.devices.value_or(asked), ""};
  if (words.devices && asked > 1 && asked != size.count())
    throw UserError("target: {} is {} devices, but the recipe's mesh or device_count asks for {}", recipe.target,
                    size.count(), asked);
  size.title = fmt::format("{} x {}", size.count(), find_target(words.name).title);
  return size;
}

Machine Machine::of(const Recipe& recipe) {
  if (is_this_machine(recipe.target)) {
    auto devices = std::make_unique<Devices>(device_request(recipe));
    Machine here(*devices);
    here.owned_ = std::move(devices);
    return here;
  }
  const Target target = find_target(parse_target(recipe.target).name);
  const MachineSize size = machine_size(recipe);
  const std::shared_ptr<const Plugin> plugin = Plugin::load(recipe.plugin.empty() ? target.plugin : recipe.plugin);
  if (!plugin->vendor().target_platform.empty() && plugin->vendor().name != target.plugin)
    throw UserError("target: {} is compiled for by plugin {}, not by {}; leave `plugin` out of the recipe",
                    target.title, target.plugin, plugin->name());
  return Machine(target, plugin, size.hosts, size.per_host);
}

std::string Machine::title() const {
  return here_ != nullptr ? here_->title() : fmt::format("{} x {}", count(), target_->title);
}

const std::string& Machine::capability() const {
  return here_ != nullptr ? here_->capability() : target_->chip.capability;
}

int64_t Machine::memory_limit() const {
  return here_ != nullptr ? here_->memory_limit() : target_->memory_bytes;
}

int64_t Machine::allowance() const {
  if (here_ != nullptr) return 0;  // the limit is the allocator's own
  const Vendor& vendor = plugin_->vendor();
  return vendor.library_bytes + (count() > 1 ? vendor.communication_bytes : 0);
}

std::optional<Machine> Machine::grown(int64_t times) const {
  if (here_ != nullptr) return std::nullopt;
  constexpr int64_t kHostDevices = 8;  // what the makers' servers hold
  int64_t per_host = per_host_;
  while (times % 2 == 0 && hosts_ == 1 && per_host * 2 <= kHostDevices) {
    per_host *= 2;
    times /= 2;
  }
  return Machine(*target_, plugin_, hosts_ * times, per_host);
}

CompiledStep Machine::compile(const Program& program, bool tf32) const {
  if (here_ != nullptr) {
    const Executable executable = here_->compile(program);
    return {executable.memory_stats(), executable.program().optimized_program()};
  }
  const CompiledProgram compiled =
      topology_->compile(program.text(tf32), {.num_partitions = static_cast<int>(program.mesh().size())});
  return {compiled.memory_stats(), compiled.optimized_program()};
}

}  // namespace fettle
