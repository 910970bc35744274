// Defines Topology: devices that are not present, for which programs are compiled ahead of time.
#pragma once

#include <memory>
#include <string>

#include "runtime/compiled_program.h"
#include "runtime/options.h"
#include "runtime/vendors/plugin.h"

struct PJRT_TopologyDescription;

namespace fettle {

// A PJRT topology made from a target description. Move-only. compile() may be called from several threads.
class Topology {
 public:
  // `target_config` is the text of a stream_executor.GpuTargetConfigProto (see targets.h). `shape` is "slices x hosts x
  // devices", for example "1x1x8". Throws DeviceError when the plugin cannot compile without a device (CPU), or when
  // the description is for another vendor.
  static Topology create(std::shared_ptr<const Plugin> plugin, const std::string& target_config,
                         const std::string& shape);
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;

  int device_count() const;
  // Compiles for this topology. A program too large for the device is NOT an error: compare memory_stats().peak with
  // the target's memory. Throws DeviceError with the compiler's message.
  CompiledProgram compile(const std::string& module_text, const CompileOptions& options) const;

 private:
  Topology(std::shared_ptr<const Plugin> plugin, PJRT_TopologyDescription* topology);
  std::shared_ptr<const Plugin> plugin_;
  PJRT_TopologyDescription* topology_ = nullptr;
};

}  // namespace fettle
