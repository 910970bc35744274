// Defines Machine: the devices that a step is compiled for, whether or not they are here.
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

// How many devices the request's target has, and what they are called ("8 x AMD Instinct MI300X"): loads no plugin
// unless the devices are this machine's. Throws UserError as Machine::of.
struct MachineSize {
  int64_t hosts = 1, per_host = 1;
  std::string title;
  std::string capability;  // of a device, as DeviceInfo has it
  int64_t count() const { return hosts * per_host; }
};
MachineSize machine_size(const Request& request);

// What the compiler made of a program.
struct CompiledStep {
  MemoryStats memory;     // with the workspace of the kernels
  std::string optimized;  // bytes for read_hlo()
};

// Move-only.
class Machine {
 public:
  // The request's target as NAME[:DEVICES | :HOSTSxDEVICES] or a target file's path; this machine's devices when it is
  // empty or "this". A target without a count has as many devices as the recipe's mesh (or device_count) asks for, else
  // one. Throws UserError on malformed words, unknown names, or a plugin of another vendor than the target's;
  // DeviceError when the plugin will not load or cannot compile for what is not there.
  static Machine of(const Request& request);
  // Devices that are here, already opened.
  explicit Machine(Devices& devices);

  int64_t count() const { return hosts_ * per_host_; }
  int64_t devices_per_host() const { return per_host_; }
  std::string title() const;              // "8 x AMD Instinct MI300X"
  const std::string& capability() const;  // of a device, as DeviceInfo has it
  RunTarget run_target() const;
  const MemoryShare& memory() const;                               // of one device
  const std::optional<Target>& target() const { return target_; }  // its rates; none: not known
  // The same kind of device, `times` as many (hosts first). None for devices that are here.
  std::optional<Machine> grown(int64_t times) const;

  CompiledStep compile(const Program& program, bool tf32) const;

 private:
  Machine(Target target, std::shared_ptr<const Plugin> plugin, int64_t hosts, int64_t per_host, double utilization);

  std::optional<Target> target_;
  std::shared_ptr<const Plugin> plugin_;
  int64_t hosts_ = 1, per_host_ = 1;
  std::optional<Topology> topology_;
  MemoryShare memory_;
  std::unique_ptr<Devices> owned_;
  KernelSet kernels_;
  Devices* here_ = nullptr;
};

}  // namespace fettle
