#include "inspect/devices_command.h"

#include <fmt/format.h>

#include "runtime/client.h"
#include "runtime/vendors/plugin.h"

namespace fettle {

int run_devices(const DevicesOptions& options, std::ostream& out) {
  // This only lists devices, so no memory is reserved on them.
  const Client client(
      Plugin::load(options.plugin),
      {.device_count = options.count, .memory_fraction = options.memory_utilization, .preallocate = false});
  out << fmt::format("plugin {} ({}), PJRT API {}.{}\n", client.plugin().name(), client.plugin().path().string(),
                     client.plugin().api_major(), client.plugin().api_minor());
  for (const DeviceInfo& device : client.devices())
    out << fmt::format("{}  {}  {:.1f} GB  process {}\n", device.ordinal, device.kind, device.memory_bytes / 1e9,
                       device.process_index);
  return 0;
}

}  // namespace fettle
