// Defines Client: the devices of one plugin, and the compiler that belongs to them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executable.h"
#include "runtime/options.h"
#include "runtime/signature.h"
#include "runtime/vendors/plugin.h"

namespace fettle {

struct ClientHandle;

struct ClientOptions {
  int device_count = 0;        // CPU only: how many devices to make; 0 means 1. Others: must be 0 or what is there.
  double memory_fraction = 0;  // GPUs: share of the memory the allocator may take; 0 = the plugin's choice (0.75)
  bool preallocate = true;     // GPUs: take that share at once
};

struct DeviceInfo {
  int ordinal = 0;  // position in Client::devices()
  int64_t id = 0;   // PJRT's global id
  int process_index = 0;
  std::string kind;          // "cpu", "NVIDIA H100 80GB HBM3"
  std::string capability;    // "9.0", "gfx942", "host" (the CPU); "" when the plugin does not say
  int64_t memory_bytes = 0;  // what one device may allocate; CPU: this machine's free memory / devices; 0 = unknown
};

// Copies share one PJRT client, which lives until the last copy, buffer and executable is gone.
// Thread-safe: members may be called from several threads at once.
class Client {
 public:
  // Throws DeviceError when the plugin finds no device, UserError on a device_count it cannot give.
  explicit Client(std::shared_ptr<const Plugin> plugin, const ClientOptions& options = {});

  const Plugin& plugin() const;
  const std::string& platform_name() const;        // "cpu", "cuda", "rocm"
  const std::string& platform_version() const;     // free text of the plugin
  const std::vector<DeviceInfo>& devices() const;  // the devices this process drives
  int process_index() const;
  // Whether the devices reach memory of the kind, as in ArgInfo.
  bool has_memory(const std::string& kind) const;
  // Bytes in use on a device now, 0 when the plugin does not say (CPU).
  int64_t memory_in_use(int ordinal) const;

  // Compiles StableHLO (+ sdy) text. Throws DeviceError with the compiler's message on text it refuses, InternalError
  // when the results' shard shapes are not those of `signature`.
  Executable compile(const std::string& module_text, Signature signature, const CompileOptions& options = {}) const;
  // Loads what CompiledProgram::serialize gave; the plugin hardly checks it (use CompileCache).
  Executable load(const std::string& serialized, Signature signature) const;

  // The bytes compile() hands the plugin: options with the devices' ids. A cache keys on them.
  std::string encoded_options(const CompileOptions& options) const;

  const std::shared_ptr<const ClientHandle>& handle() const { return handle_; }  // for this folder only

 private:
  std::shared_ptr<const ClientHandle> handle_;
};

}  // namespace fettle
