// A fake driver that reports memory of devices that do not exist. It reports two devices of 24 GB, or one for each free
// amount in MADE_DRIVER_FREE (gigabytes, such as "20,23"). It has CUDA's functions, or HIP's functions if
// MADE_DRIVER_OF_HIP is defined. The devices are those from number MADE_DRIVER_FIRST on (default 0) of the host.
// Another process holds the devices in MADE_DRIVER_HELD ("0,1", numbers of this process), so they cannot be opened.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

int current = -1;  // the device whose context is current

std::vector<size_t> free_gigabytes() {
  const char* text = std::getenv("MADE_DRIVER_FREE");
  std::istringstream in(text == nullptr ? "23,23" : text);
  std::vector<size_t> found;
  for (std::string word; std::getline(in, word, ',');) found.push_back(std::stoul(word));
  return found;
}

// Returns the number that a device has on the host.
int number_on_host(int device) {
  const char* first = std::getenv("MADE_DRIVER_FIRST");
  return device + (first == nullptr ? 0 : std::stoi(first));
}

bool held(int device) {
  const char* text = std::getenv("MADE_DRIVER_HELD");
  std::istringstream in(text == nullptr ? "" : text);
  for (std::string word; std::getline(in, word, ',');)
    if (std::stoi(word) == device) return true;
  return false;
}

int count_devices(int* count) {
  *count = static_cast<int>(free_gigabytes().size());
  return *count == 0 ? 100 : 0;
}

int tell(size_t* free, size_t* total) {
  if (current < 0) return 201;  // 201: no context is current
  *free = free_gigabytes().at(static_cast<size_t>(current)) * 1'000'000'000;
  *total = 24'000'000'000;
  return 0;
}

}  // namespace

extern "C" {
#ifdef MADE_DRIVER_OF_HIP
int hipGetDeviceCount(int* count) {
  return count_devices(count);
}
int hipSetDevice(int device) {
  current = device;
  return held(device) ? 201 : 0;
}
int hipDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", number_on_host(device));
  return 0;
}
int hipMemGetInfo(size_t* free, size_t* total) {
  return tell(free, total);
}
#else
int cuInit(unsigned) {
  return 0;
}
int cuDeviceGetCount(int* count) {
  return count_devices(count);
}
int cuDeviceGet(int* device, int ordinal) {
  *device = 100 + ordinal;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<unsigned char>(number_on_host(device - 100));
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (held(device - 100)) return 46;  // 46: the device is held exclusively
  *context = reinterpret_cast<void*>(static_cast<size_t>(device));
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  current = static_cast<int>(reinterpret_cast<size_t>(context)) - 100;
  return 0;
}
int cuCtxPopCurrent_v2(void**) {
  current = -1;
  return 0;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  return tell(free, total);
}
#endif
}
