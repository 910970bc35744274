// Defines Profiler, which records what the devices do, through the plugin's profiler extension.
#pragma once

#include <memory>
#include <string>

#include "runtime/vendors/plugin.h"

namespace fettle {

// Returns true when the plugin can record profiles. NVIDIA's and AMD's plugins can, CPU plugins cannot.
bool can_profile(const Plugin& plugin);

// Records all devices of this process from the constructor to finish() or the destructor. Only one Profiler may record
// at a time.
class Profiler {
 public:
  // Throws DeviceError when the plugin cannot record, or when its profiler does not start.
  explicit Profiler(const Plugin& plugin);
  ~Profiler();

  // Ends the recording. Returns a serialised tensorflow.profiler.XSpace (tsl/profiler/protobuf/xplane.proto), the
  // format that TensorBoard and xprof read. Throws DeviceError when a function of the plugin fails. Call it once.
  std::string finish();

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

}  // namespace fettle
