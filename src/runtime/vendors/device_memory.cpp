#include "runtime/vendors/device_memory.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

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

// Returns the numbers of the devices that `count_devices` counts.
std::vector<int64_t> numbers_of(const DriverCall<int*>& count_devices) {
  int count = 0;
  if (!count_devices(&count)) return {};
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::string> cuda_names(void* library) {
  struct Uuid {
    unsigned char bytes[16] = {};
  };
  const DriverCall<unsigned> init(library, "cuInit");
  const DriverCall<int*, int> device_at(library, "cuDeviceGet");
  const DriverCall<Uuid*, int> uuid_of(library, "cuDeviceGetUuid_v2");
  std::vector<std::string> names;
  if (!init(0)) return names;
  for (const int64_t number : numbers_of({library, "cuDeviceGetCount"})) {
    int device = 0;
    Uuid uuid;
    const bool told = device_at(&device, static_cast<int>(number)) && uuid_of(&uuid, device);
    names.push_back(told ? fmt::format("{:02x}", fmt::join(uuid.bytes, "")) : "");
  }
  return names;
}

std::vector<std::string> hip_names(void* library) {
  const DriverCall<char*, int, int> bus_id_of(library, "hipDeviceGetPCIBusId");
  std::vector<std::string> names;
  for (const int64_t number : numbers_of({library, "hipGetDeviceCount"})) {
    char id[64] = {};
    names.push_back(bus_id_of(id, sizeof id - 1, static_cast<int>(number)) ? id : "");
  }
  return names;
}

// Reads the total and free memory of each device. Reading needs a context on the device. This function releases the
// context afterwards. The plugin makes its own context.
std::vector<DriverMemory> cuda_memory(void* library, std::vector<int64_t> devices) {
  const DriverCall<unsigned> init(library, "cuInit");
  const DriverCall<int*, int> device_at(library, "cuDeviceGet");
  const DriverCall<void**, int> retain(library, "cuDevicePrimaryCtxRetain");
  const DriverCall<int> release(library, "cuDevicePrimaryCtxRelease_v2");
  const DriverCall<void*> push(library, "cuCtxPushCurrent_v2");
  const DriverCall<void**> pop(library, "cuCtxPopCurrent_v2");
  const DriverCall<size_t*, size_t*> ask(library, "cuMemGetInfo_v2");
  std::vector<DriverMemory> found;
  if (!init(0)) return found;
  if (devices.empty()) devices = numbers_of({library, "cuDeviceGetCount"});
  for (const int64_t number : devices) {
    int device = 0;
    void* context = nullptr;
    if (!device_at(&device, static_cast<int>(number)) || !retain(&context, device)) return {};
    size_t free = 0, total = 0;
    const bool told = push(context) && ask(&free, &total);
    pop(&context);
    release(device);
    if (!told) return {};
    found.push_back({static_cast<int64_t>(total), static_cast<int64_t>(free)});
  }
  return found;
}

std::vector<DriverMemory> hip_memory(void* library, std::vector<int64_t> devices) {
  const DriverCall<int> choose(library, "hipSetDevice");
  const DriverCall<size_t*, size_t*> ask(library, "hipMemGetInfo");
  std::vector<DriverMemory> found;
  if (devices.empty()) devices = numbers_of({library, "hipGetDeviceCount"});
  for (const int64_t number : devices) {
    size_t free = 0, total = 0;
    if (!choose(static_cast<int>(number)) || !ask(&free, &total)) return {};
    found.push_back({static_cast<int64_t>(total), static_cast<int64_t>(free)});
  }
  choose(0);
  return found;
}

// Opens a driver; null if it is missing. Drivers stay loaded, because they crash after dlclose.
void* open_driver(const std::string& library) {
  return library.empty() ? nullptr : dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
}

bool is_cuda(void* driver) {
  return dlsym(driver, "cuInit") != nullptr;
}

}  // namespace

std::vector<std::string> driver_devices(const std::string& library) {
  void* const driver = open_driver(library);
  if (driver == nullptr) return {};
  return is_cuda(driver) ? cuda_names(driver) : hip_names(driver);
}

std::vector<DriverMemory> driver_memory(const std::string& library, std::vector<int64_t> devices) {
  void* const driver = open_driver(library);
  if (driver == nullptr) return {};
  return is_cuda(driver) ? cuda_memory(driver, std::move(devices)) : hip_memory(driver, std::move(devices));
}

MemoryShare MemoryShare::with_utilization(double share) const {
  MemoryShare out = *this;
  out.utilization = share;
  out.limit = std::max<int64_t>(0, std::min(out.requested(), out.available()));
  return out;
}

MemoryShare share_memory(const Vendor& vendor, int64_t total, int64_t used, double utilization, int64_t devices) {
  MemoryShare share{.total = total};
  const int64_t communication = devices > 1 ? vendor.communication_bytes : 0;
  share.allowance = vendor.library_bytes + communication;
  // `used` includes the context that this program already has on the device. library_bytes covers it.
  share.others = std::max<int64_t>(0, used - vendor.library_bytes);
  return share.with_utilization(utilization);
}

}  // namespace fettle
