// Defines Client: the devices of one plugin and its compiler.
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
class Rendezvous;

struct ClientOptions {
  // For the CPU plugin: the number of devices to make; 0 means 1. For other plugins: 0, or exactly the number of
  // devices that this process controls.
  int device_count = 0;
  double memory_fraction = 0;         // GPUs: share of the memory that the allocator may use; 0: the plugin's default
  bool preallocate = true;            // GPUs: allocate the share memory_fraction at start
  Rendezvous* run = nullptr;          // the processes whose devices work together; null: only this one
  std::vector<int64_t> visible = {};  // GPUs: numbers of the devices that this process takes; empty: all
};

struct DeviceInfo {
  int ordinal = 0;  // position in Client::devices()
  int64_t id = 0;   // PJRT's id, unique among the devices of the run
  int process_index = 0;
  std::string kind;        // "cpu", "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0", "gfx942", "host" (the CPU); "" when the plugin does not report it
  // Bytes that one device may allocate; 0: unknown. CPU devices divide the free host memory evenly. For devices of
  // other processes, this is the value of this process's first device.
  int64_t memory_bytes = 0;
};

// Copies of a Client share one PJRT client, which is destroyed when the last copy, buffer and executable are gone.
// Thread-safe: members may be called from several threads at once.
class Client {
 public:
  // Throws DeviceError when the plugin finds no device or cannot join the processes of a run. Throws UserError when
  // device_count is negative. Also throws UserError when device_count is neither 0 nor this process's number of
  // devices. `options.run` must outlive the client.
  explicit Client(std::shared_ptr<const Plugin> plugin, const ClientOptions& options = {});

  const Plugin& plugin() const;
  const std::string& platform_name() const;     // "cpu", "cuda", "rocm"
  const std::string& platform_version() const;  // free text from the plugin
  // Returns the devices of all processes of the run, sorted by process, then by id. An ordinal is an index into this
  // list.
  const std::vector<DeviceInfo>& devices() const;
  int local_count() const;  // how many of the devices this process controls
  bool is_local(int ordinal) const;
  int process_index() const;
  // Returns the largest peak memory use, in bytes, among this process's devices; 0 when the plugin does not report it.
  int64_t peak_bytes_in_use() const;
  // Returns whether the devices can use memory of this kind (see ArgInfo).
  bool has_memory(const std::string& kind) const;

  // Compiles StableHLO text (with the sdy dialect). Throws DeviceError with the compiler's message when the compiler
  // rejects the text. Throws DoesNotFit when the host has too little memory to compile, UserError when the program
  // needs more devices than there are, and InternalError when the results' shard shapes differ from `signature`.
  Executable compile(const std::string& module_text, Signature signature, const CompileOptions& options = {}) const;
  // Loads the output of CompiledProgram::serialize. The plugin hardly checks these bytes, so CompileCache checks them
  // before it calls load().
  Executable load(const std::string& serialized, Signature signature) const;

  // Returns the encoded options, with device ids, that compile() passes to the plugin. They are part of a program's key
  // in the compile cache.
  std::string encoded_options(const CompileOptions& options) const;

  const std::shared_ptr<const ClientHandle>& handle() const { return handle_; }  // only for code in src/runtime

 private:
  std::shared_ptr<const ClientHandle> handle_;
};

}  // namespace fettle
