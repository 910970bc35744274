// A fake driver that reports memory of devices that do not exist. It reports two devices of 24 GB, or one for each free
// amount in MADE_DRIVER_FREE (gigabytes, such as "20,23"). It has CUDA's functions, or HIP's functions if
// MADE_DRIVER_OF_HIP is defined.
#include <cstddef>
#include <cstdlib>
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
int cuDevicePrimaryCtxRetain(void** context, int device) {
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
