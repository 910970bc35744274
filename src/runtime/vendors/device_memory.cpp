#include "runtime/vendors/device_memory.h"

#include <dlfcn.h>

#include <algorithm>

namespace fettle {
namespace {

// A function of a driver's C interface. Every such function returns 0 on success.
template <typename... Arguments>
class DriverCall {
 public:
  DriverCall(void* library, const char* name) : call_(reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name))) {}
  // Returns false if the call fails or if the library does not have the function.
  bool operator()(Arguments... arguments) const { return call_ != nullptr && call_(arguments...) == 0; }

 private:
  int (*call_)(Arguments...);
};

// Reads the total and free memory of each device. Reading needs a context on the device. This function releases the
// context afterwards. The plugin makes its own context.
std::vector<DriverMemory> cuda_memory(void* library) {
  const DriverCall<unsigned> init(library, "cuInit");
  const DriverCall<int*> count_devices(library, "cuDeviceGetCount");
  const DriverCall<int*, int> device_at(library, "cuDeviceGet");
  const DriverCall<void**, int> retain(library, "cuDevicePrimaryCtxRetain");
  const DriverCall<int> release(library, "cuDevicePrimaryCtxRelease_v2");
  const DriverCall<void*> push(library, "cuCtxPushCurrent_v2");
  const DriverCall<void**> pop(library, "cuCtxPopCurrent_v2");
  const DriverCall<size_t*, size_t*> ask(library, "cuMemGetInfo_v2");
  std::vector<DriverMemory> found;
  int count = 0;
  if (!init(0) || !count_devices(&count)) return found;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    void* context = nullptr;
    if (!device_at(&device, i) || !retain(&context, device)) return {};
    size_t free = 0, total = 0;
    const bool told = push(context) && ask(&free, &total);
    pop(&context);
    release(device);
    if (!told) return {};
    found.push_back({static_cast<int64_t>(total), static_cast<int64_t>(free)});
  }
  return found;
}

std::vector<DriverMemory> hip_memory(void* library) {
  const DriverCall<int*> count_devices(library, "hipGetDeviceCount");
  const DriverCall<int> choose(library, "hipSetDevice");
  const DriverCall<size_t*, size_t*> ask(library, "hipMemGetInfo");
  std::vector<DriverMemory> found;
  int count = 0;
  if (!count_devices(&count)) return found;
  for (int i = 0; i < count; ++i) {
    size_t free = 0, total = 0;
    if (!choose(i) || !ask(&free, &total)) return {};
    found.push_back({static_cast<int64_t>(total), static_cast<int64_t>(free)});
  }
  choose(0);
  return found;
}

}  // namespace

std::vector<DriverMemory> driver_memory(const std::string& library) {
  void* const driver = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {};
  // Drivers stay loaded, because they crash after dlclose.
  return dlsym(driver, "cuInit") != nullptr ? cuda_memory(driver) : hip_memory(driver);
}

MemoryShare share_memory(const Vendor& vendor, int64_t total, int64_t used, double utilization, int64_t devices) {
  MemoryShare share{.total = total, .utilization = utilization};
  const int64_t communication = devices > 1 ? vendor.communication_bytes : 0;
  share.allowance = vendor.library_bytes + communication;
  // `used` includes the context that this program already has on the device. library_bytes covers it.
  share.others = std::max<int64_t>(0, used - vendor.library_bytes);
  share.limit = std::max<int64_t>(0, std::min(share.requested(), share.available()));
  return share;
}

}  // namespace fettle
