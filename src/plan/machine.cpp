#include "plan/machine.h"

#include "base/error.h"
#include "base/pattern.h"
#include "plan/target_file.h"
#include "run/device_request.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

constexpr int64_t kMostDevices = 65'536;

struct TargetWords {
  std::string name;
  int64_t hosts = 1;
  std::optional<int64_t> devices;  // of a host
};

TargetWords parse_target(const std::string& text) {
  static const Pattern form("([^:]+)(:(([1-9][0-9]{0,4})x)?([1-9][0-9]{0,4}))?");
  const std::optional<Pattern::Groups> match = form.match(text);
  if (!match) throw UserError("target: '{}' is not NAME, NAME:DEVICES or NAME:HOSTSxDEVICES (a100-80:2x8)", text);
  const std::string& hosts = (*match)[4];
  const std::string& devices = (*match)[5];
  TargetWords words{(*match)[1], hosts.empty() ? 1 : std::stoll(hosts), std::nullopt};
  if (!devices.empty()) words.devices = std::stoll(devices);
  if (words.hosts * words.devices.value_or(1) > kMostDevices)
    throw UserError("target: {} is {} devices; at most {} are planned for", text, words.hosts * *words.devices,
                    kMostDevices);
  return words;
}

bool is_this_machine(const Recipe& recipe) {
  return recipe.target.empty() || recipe.target == "this";
}

// Devices that the recipe itself asks for.
int64_t asked_devices(const Recipe& recipe) {
  if (recipe.device_count) return *recipe.device_count;
  int64_t count = 1;
  for (const auto& [axis, size] : recipe.mesh) count *= size;
  return count;
}

}  // namespace

Machine::Machine(Target target, std::shared_ptr<const Plugin> plugin, int64_t hosts, int64_t per_host)
    : target_(std::move(target)), plugin_(std::move(plugin)), hosts_(hosts), per_host_(per_host) {
  topology_ = Topology::create(plugin_, target_->config, fmt::format("1x{}x{}", hosts, per_host));
}

Machine::Machine(Devices& devices) : per_host_(devices.count()), here_(&devices) {}

MachineSize machine_size(const Recipe& recipe) {
  if (is_this_machine(recipe)) {
    const Devices devices(device_request(recipe));
    return {1, devices.count(), devices.title()};
  }
  const TargetWords words = parse_target(recipe.target);
  const int64_t asked = asked_devices(recipe);
  MachineSize size{words.hosts, words.devices.value_or(asked), ""};
  if (words.devices && asked > 1 && asked != size.count())
    throw UserError("target: {} is {} devices, but the recipe's mesh or device_count asks for {}", recipe.target,
                    size.count(), asked);
  size.title = fmt::format("{} x {}", size.count(), find_target(words.name).title);
  return size;
}

Machine Machine::of(const Recipe& recipe) {
  if (is_this_machine(recipe)) {
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
