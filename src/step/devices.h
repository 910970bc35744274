// Defines Devices: the plugin's devices in use, and the compiled programs kept for them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "config/recipe.h"
#include "graph/program.h"
#include "runtime/client.h"
#include "runtime/compile_cache.h"
#include "runtime/executable.h"

namespace fettle {

class Devices {
 public:
  // Loads the recipe's plugin and takes recipe.device_count devices (all, when not said). Throws DeviceError.
  explicit Devices(const Recipe& recipe);

  const Client& client() const { return client_; }
  int64_t count() const { return count_; }
  // Bytes one device may use; 0 when the plugin does not say.
  int64_t memory_limit() const { return client_.devices()[0].memory_bytes; }
  std::string title() const;  // "cpu (1 device)"
  const std::string& capability() const { return client_.devices()[0].capability; }

  // Throws UserError when the plugin cannot keep arrays in the host's memory.
  void require_host_memory() const;
  // Compiles, or takes from the compile cache.
  Executable compile(const Program& program);

 private:
  Client client_;
  int64_t count_;
  bool tf32_;
  int compiled_ = 0;  // programs so far, for the names of FETTLE_DUMP
  std::optional<CompileCache> cache_;
};

// Device arrays by program input name.
using Bindings = std::map<std::string, DeviceBuffer*>;

// Runs the program with its inputs taken by name. Throws InternalError when one is missing.
std::map<std::string, DeviceBuffer> run(const Executable& executable, const Bindings& inputs);

// A value every device holds whole.
DeviceBuffer replicate(const Devices& devices, const HostArray& value);
DeviceBuffer replicate(const Devices& devices, float value);

}  // namespace fettle
