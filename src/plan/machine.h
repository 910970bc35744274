// Defines Machine: the devices that a step is compiled for. The devices need not be present on this machine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "graph/program.h"
#include "run/request.h"
#include "runtime/compiled_program.h"
#include "runtime/vendors/targets.h"
#include "runtime/vendors/topology.h"

namespace fettle {

// The number of devices of the request's target and their title ("8 x AMD Instinct MI300X").
struct MachineSize {
  int64_t hosts = 1, per_host = 1;
  std::string title;
  std::string capability;  // like DeviceInfo::capability
  int64_t count() const { return hosts * per_host; }
};
// Returns the size of the request's target. Loads a plugin only when the target is this machine. Throws the same errors
// as Machine::of.
MachineSize machine_size(const Request& request);

// Returns how many devices the target's links connect: the devices of one host, or of a rack (Target::domain_devices)
// if all hosts are in one rack or fill whole racks.
int64_t linked_devices(const Target& target, int64_t hosts, int64_t per_host);
// Returns the machine's shape in the form that the compiler needs, "racks x hosts x devices": "2x1x8", or "1x2x8" if
// links connect both hosts.
std::string topology_shape(const Target& target, int64_t hosts, int64_t per_host);

// The compiler's output for a program.
struct CompiledStep {
  // Includes the kernels' workspace, whose size the compiler leaves open if no device is here.
  MemoryStats memory;
  std::string optimized;  // bytes for read_hlo()
};

// Move-only.
class Machine {
 public:
  // Returns the devices of the request's target, which is given as NAME[:DEVICES | :HOSTSxDEVICES]; NAME may also be
  // the path of a target file. Returns this machine's devices when the target is empty or "this". A target without a
  // count has as many devices as the recipe's device_count or mesh asks for, else one. Throws UserError on malformed
  // text, on unknown names, when the recipe asks for more devices than a host or a rack usually has and the target has
  // no count, and when the recipe's plugin belongs to another vendor than the target. Throws DeviceError when the
  // plugin does not load, or cannot compile for devices that are not present.
  static Machine of(const Request& request);
  // Uses devices of this machine that are already open. If `target` (the recipe's key) names a target with the devices'
  // capability, takes the rates from that target. Otherwise takes the rates from the table of targets (target_of_kind).
  explicit Machine(Devices& devices, const std::string& target = "");

  int64_t hosts() const { return hosts_; }
  int64_t count() const { return hosts_ * per_host_; }
  // Returns how many devices the links connect. Devices that are not connected by links exchange data over the network.
  int64_t linked_devices() const { return linked_; }
  const std::string& title() const { return run_target_.title; }  // "8 x AMD Instinct MI300X"
  const RunTarget& run_target() const { return run_target_; }
  const MemoryShare& memory() const;                               // the memory of one device
  const std::optional<Target>& target() const { return target_; }  // nullopt: the machine's rates are not known
  // Returns a machine with `times` as many devices of the same kind. Adds devices to a single host, up to 8, before it
  // adds hosts. Returns nullopt if this object describes the local computer, because its devices cannot be multiplied.
  std::optional<Machine> multiplied(int64_t times) const;

  // Compiles the program. `tf32` says whether f32 products may use TF32.
  CompiledStep compile(const Program& program, bool tf32) const;

 private:
  Machine(Target target, std::shared_ptr<const Plugin> plugin, int64_t hosts, int64_t per_host, double utilization,
          KernelSet kernels);

  std::optional<Target> target_;
  std::shared_ptr<const Plugin> plugin_;
  int64_t hosts_ = 1, per_host_ = 1, linked_ = 1;
  std::optional<Topology> topology_;
  MemoryShare memory_;
  std::unique_ptr<Devices> owned_;
  RunTarget run_target_;
  Devices* here_ = nullptr;
};

}  // namespace fettle
