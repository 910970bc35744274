// Defines CompiledProgram: what the compiler made, whether or not a device is there to run it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/arrays/shape.h"

struct PJRT_Executable;

namespace fettle {

class Plugin;

// The compiler's own count of one device's memory, in bytes.
struct MemoryStats {
  int64_t argument = 0;
  int64_t output = 0;
  int64_t alias = 0;  // outputs that take the memory of donated arguments; part of both counts above
  int64_t temp = 0;
  int64_t code = 0;
  int64_t host_argument = 0;  // the same, in pinned host memory
  int64_t host_output = 0;
  int64_t host_alias = 0;
  int64_t host_temp = 0;
  int64_t reported_peak = 0;     // the plugin's figure as it is; what it includes differs (see Vendor::peak_bytes)
  int64_t total_allocation = 0;  // 0 when the plugin is too old to say
  int64_t peak = 0;              // device bytes at the worst moment of one run, comparable between plugins
};

// Throws DoesNotFit when this machine has less memory left than compiling a step with the plugin takes: the kernel
// would end the process in the midst of it.
void require_memory_to_compile(const Plugin& plugin);

// A PJRT_Executable. Move-only; const members may be called from any thread.
class CompiledProgram {
 public:
  CompiledProgram(std::shared_ptr<const Plugin> plugin, PJRT_Executable* executable);  // takes ownership
  ~CompiledProgram();
  CompiledProgram(CompiledProgram&&) noexcept;
  CompiledProgram& operator=(CompiledProgram&&) noexcept;

  MemoryStats memory_stats() const;
  // The program after all passes, as HLO text when the plugin gives text or an HloModuleProto's bytes when it does not;
  // `optimized_format` says which ("hlo", "hlo_with_config", "mlir"). Can be many megabytes.
  std::string optimized_program() const;
  std::string optimized_format() const;
  // The compiler's estimate by name ("flops", "bytes accessed", ...), of one device; empty when the plugin has none.
  std::map<std::string, double> cost_analysis() const;
  // Bytes for Client::load of the same plugin file on a like machine.
  std::string serialize() const;
  std::string fingerprint() const;           // "" when the plugin has none
  std::vector<Shape> output_shapes() const;  // of one device's shard

  PJRT_Executable* handle() const { return executable_; }  // for this folder only

 private:
  std::shared_ptr<const Plugin> plugin_;
  PJRT_Executable* executable_ = nullptr;
};

}  // namespace fettle
