// Defines Devices: the devices of a plugin that a run uses, and the compiler for them. Also defines run_program, which
// runs a compiled program.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/key_places.h"
#include "graph/program.h"
#include "runtime/client.h"
#include "runtime/compile_cache.h"
#include "runtime/executable.h"
#include "runtime/vendors/device_memory.h"

namespace fettle {

class Rendezvous;

// The devices to open, and options for compiling.
struct DeviceRequest {
  std::string plugin;  // cpu, cuda, rocm or a file; empty: the best available one
  // The number of devices of all processes together. The CPU plugin makes this many devices. 0: all devices; with the
  // CPU plugin, one device for each process.
  int64_t count = 0;
  bool tf32 = false;          // f32 products may use TF32
  std::string compile_cache;  // a folder; empty: the default one; "off": no cache
  // Share of a GPU's memory that the program may take; 0: the plugin's choice.
  double memory_utilization = 0;
  KeyPlaces places = {};                       // where the recipe sets these keys, for messages
  std::vector<std::string> kernels = {"off"};  // kernels that programs may call: names, or the word auto or off
  bool require_arithmetic = true;  // refuse devices that compute wrongly (arithmetic.h); the CPU is not checked
  Rendezvous* run = nullptr;       // the processes that share the work; null: only this process
};

class Devices {
 public:
  // Loads the plugin and opens the devices. On a GPU, reserves the requested share of the memory. If other programs
  // leave less than this share free, reserves the free memory and logs this. Throws UserError when there are fewer
  // devices than requested, when the processes cannot share the devices evenly or would leave some devices unused, when
  // the processes have devices of different kinds, or when the compile cache has no folder. Throws DoesNotFit when
  // other programs leave no memory, or when the host has too little memory for the plugin's tables. Throws DeviceError
  // when the plugin does not load or a device computes wrongly.
  explicit Devices(const DeviceRequest& request);

  const Client& client() const { return client_; }
  int64_t count() const { return count_; }               // devices in use, of all processes together
  int64_t host_count() const;                            // number of hosts on which the processes run
  const MemoryShare& memory() const { return memory_; }  // of the device with the smallest limit
  std::string title() const;                             // "cpu (1 device)"
  std::string_view vendor() const;                       // Vendor::name: "cpu", "cuda"
  const std::vector<std::string>& wanted_kernels() const { return kernels_; }
  const std::string& capability() const { return client_.devices()[0].capability; }

  MeshAxes flat_mesh() const;  // all devices on one axis, fsdp; no axis for one device

  // Throws UserError when the plugin does not support arrays in host memory.
  void require_host_memory() const;
  // Compiles the program, or reads it from the compile cache. Throws like Client::compile. Also throws UserError when
  // the program needs arrays in host memory and the plugin does not support them, or when the processes compile
  // different programs.
  Executable compile(const Program& program);
  // Returns the compiler's count of the program's memory. Reads it from the compile cache if the program is there.
  // Otherwise compiles the program and keeps the result for the next compile() of the same program.
  MemoryStats memory_stats(const Program& program);
  // Returns whether `here` is true in all processes of the run. All processes must call this function at the same
  // point.
  bool all_have(bool here) const;
  bool on_host() const;                                          // the devices are the host's own processors
  int64_t local_count() const { return client_.local_count(); }  // devices that this process controls

 private:
  CompileOptions options_of(const Program& program) const;
  Executable compile(const Program& program, const std::string& text);
  std::optional<MemoryStats> stored_by_all(const Program& program, const std::string& text) const;

  std::shared_ptr<const Plugin> plugin_;
  Rendezvous* run_;
  std::vector<int64_t> own_;  // numbers of the host's devices that this process opens; empty: all that it sees
  MemoryShare memory_;        // declared before the client, whose constructor needs it
  Client client_;
  int64_t count_;
  bool tf32_;
  std::vector<std::string> kernels_;
  std::optional<std::pair<std::string, Executable>> kept_;  // the program that memory_stats() compiled, with its text
  int compiled_ = 0;  // number of compiled programs, for the file names of FETTLE_DUMP
  std::optional<CompileCache> cache_;
};

// Device arrays by program input name.
using Bindings = std::map<std::string, DeviceBuffer*>;

// Runs the program and returns its outputs by name. `inputs` has the array for each input's name. Throws InternalError
// when an array is missing.
std::map<std::string, DeviceBuffer> run_program(const Executable& executable, const Bindings& inputs);

// Uploads the whole value to every device.
DeviceBuffer replicate(const Devices& devices, const HostArray& value);
DeviceBuffer replicate(const Devices& devices, float value);

}  // namespace fettle
