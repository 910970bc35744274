// Defines Executable: a compiled program loaded on devices, ready to run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/compiled_program.h"
#include "runtime/signature.h"

struct PJRT_LoadedExecutable;

namespace fettle {

// Move-only. One thread at a time may call run() and wait(): launches that use collectives must come in one order.
class Executable {
 public:
  // Takes ownership of `loaded`. For this folder only; others get one from Client or CompileCache.
  Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded, Signature signature);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  // Launches the program on all its devices and returns at once; outputs can be passed to the next run straight away.
  // Arguments that the signature donates are deleted. Throws InternalError before launching when an argument's count,
  // shape, dtype, layout or client is not the signature's, is deleted, or is given twice while donated; DeviceError or
  // DoesNotFit when the launch fails. A failure while running is thrown by wait() or download() of an output.
  std::vector<DeviceBuffer> run(const std::vector<DeviceBuffer*>& arguments) const;
  // Waits for the latest run on all devices; throws its error.
  void wait() const;

  const Signature& signature() const { return signature_; }
  const CompiledProgram& program() const { return *program_; }
  MemoryStats memory_stats() const { return program_->memory_stats(); }

 private:
  Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded);
  void check_arguments(const std::vector<DeviceBuffer*>& arguments) const;
  std::shared_ptr<const ClientHandle> client_;
  PJRT_LoadedExecutable* loaded_ = nullptr;
  std::unique_ptr<CompiledProgram> program_;
  Signature signature_;
  std::vector<int> launch_order_;  // launch position -> position in the signature's layouts
  mutable std::shared_ptr<const Launch> latest_;
};

}  // namespace fettle
