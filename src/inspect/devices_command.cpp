#include "inspect/devices_command.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "runtime/client.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

int run_devices(const DevicesOptions& options, std::ostream& out) {
  const std::shared_ptr<const Plugin> plugin = Plugin::load(options.plugin);
  const int made = plugin->vendor().counts_devices ? options.count : 0;
  // This only lists devices, so no memory is reserved on them.
  const Client client(plugin,
                      {.device_count = made, .memory_fraction = options.memory_utilization, .preallocate = false});
  const auto there = static_cast<int>(client.devices().size());
  if (options.count > there)
    throw UserError("device_count asks for {} devices, but {} has {}", options.count, client.platform_name(), there);
  out << fmt::format("plugin {} ({}), PJRT API {}.{}\n", client.plugin().name(), client.plugin().path().string(),
                     client.plugin().api_major(), client.plugin().api_minor());
  for (int ordinal = 0; ordinal < (options.count > 0 ? options.count : there); ++ordinal) {
    const DeviceInfo& device = client.devices()[static_cast<size_t>(ordinal)];
    out << fmt::format("{}  {}  {:.1f} GB  process {}\n", ordinal, device.kind, device.memory_bytes / 1e9,
                       device.process_index);
  }
  return 0;
}

}  // namespace fettle
