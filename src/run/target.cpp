#include "run/target.h"

#include <algorithm>

#include "base/limits/host_memory.h"
#include "kernels/check.h"
#include "programs/devices.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

bool RunTarget::on_host() const {
  const Vendor* vendor = vendor_named(platform);
  return vendor != nullptr && vendor->staging == Staging::kHostMemory;
}

int64_t host_room(int64_t free_bytes, int64_t devices) {
  constexpr int64_t kLeast = 1'000'000'000;
  return std::max<int64_t>(0, free_bytes - std::max(kLeast, free_bytes / 4)) / devices;
}

RunTarget target_of(const Devices& devices) {
  RunTarget target{.count = devices.count(),
                   .platform = std::string(devices.vendor()),
                   .title = devices.title(),
                   .capability = devices.capability(),
                   .kernels = checked_kernels(
                       devices, select_kernels(devices.vendor(), devices.wanted_kernels(), devices.capability()))};
  if (devices.on_host())
    target.room = {host_room(free_host_memory(), devices.count()), "three quarters of the host's free memory"};
  else
    target.room = {devices.memory().limit, "the device's limit"};
  return target;
}

}  // namespace fettle
