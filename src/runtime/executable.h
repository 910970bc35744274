// Defines Executable: a compiled program that is loaded on devices and can run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/compiled_program.h"
#include "runtime/signature.h"

struct PJRT_LoadedExecutable;

namespace fettle {

// Move-only. Only one thread at a time may call run() and wait(): with two threads, the devices could start collectives
// in different orders and wait for each other forever.
class Executable {
 public:
  // Takes ownership of `loaded`. Only code in src/runtime calls this constructor; other code gets an Executable from
  // Client or CompileCache.
  Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded, Signature signature);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  // Launches the program on all its devices and does not wait for its end. The outputs can be passed to the next
  // program immediately. Arguments that the signature donates are deleted. Throws InternalError before the launch when
  // the arguments do not match the signature (count, shape, dtype, layout, client), when an argument is deleted, or
  // when a donated argument is given twice. Throws DeviceError or DoesNotFit when the launch fails. When the program
  // fails later, wait() or the download of an output throws.
  std::vector<DeviceBuffer> run(const std::vector<DeviceBuffer*>& arguments) const;
  // Waits until the latest execution has ended on all devices. Throws when that execution failed.
  void wait() const;

  const Signature& signature() const { return signature_; }
  const CompiledProgram& program() const { return *program_; }
  // Returns the compiler's statistics. For a program from the compile cache, returns the statistics that were stored
  // when the program was compiled, because plugins lose the peak when they load a program.
  MemoryStats memory_stats() const { return stats_ ? *stats_ : program_->memory_stats(); }
  void set_memory_stats(const MemoryStats& stats) { stats_ = stats; }  // only for code in src/runtime

 private:
  Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded);
  void check_arguments(const std::vector<DeviceBuffer*>& arguments) const;
  std::shared_ptr<const ClientHandle> client_;
  PJRT_LoadedExecutable* loaded_ = nullptr;
  std::unique_ptr<CompiledProgram> program_;
  Signature signature_;
  std::optional<MemoryStats> stats_;
  std::vector<int> launch_order_;  // for each device of launch_ordinals(): its position in the layouts
  mutable std::shared_ptr<const Launch> latest_;
};

}  // namespace fettle
