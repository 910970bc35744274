// Defines CompiledProgram: a compiled program, with or without a device that can run it.
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

// The compiler's numbers for the memory of one device, in bytes.
struct MemoryStats {
  int64_t argument = 0;
  int64_t output = 0;
  int64_t alias = 0;  // outputs that reuse the memory of donated arguments; included in `argument` and in `output`
  int64_t temp = 0;
  int64_t code = 0;
  int64_t host_argument = 0;  // host_*: like the members above, but for pinned host memory
  int64_t host_output = 0;
  int64_t host_alias = 0;
  int64_t host_temp = 0;
  int64_t reported_peak = 0;  // the plugin's figure; plugins count differently (see Vendor::peak_bytes)
  int64_t peak = 0;           // the most device memory in use during one execution; comparable between plugins
};

// Throws DoesNotFit when the host has less free memory than the plugin needs to compile a step. Without this check, the
// operating system might kill the process during compilation.
void require_memory_to_compile(const Plugin& plugin);

// A PJRT_Executable. Move-only; const members may be called from any thread.
class CompiledProgram {
 public:
  CompiledProgram(std::shared_ptr<const Plugin> plugin, PJRT_Executable* executable);  // takes ownership
  ~CompiledProgram();
  CompiledProgram(CompiledProgram&&) noexcept;
  CompiledProgram& operator=(CompiledProgram&&) noexcept;

  MemoryStats memory_stats() const;
  // Returns the program after all compiler passes, as HLO text or as the bytes of an HloModuleProto, depending on the
  // plugin. It can be many megabytes long.
  std::string optimized_program() const;
  // Returns bytes for Client::load. Only the same plugin file on the same kind of devices can load them.
  std::string serialize() const;
  std::vector<Shape> output_shapes() const;  // the shapes of one device's shards

  PJRT_Executable* handle() const { return executable_; }  // only for code in src/runtime

 private:
  std::shared_ptr<const Plugin> plugin_;
  PJRT_Executable* executable_ = nullptr;
};

}  // namespace fettle
