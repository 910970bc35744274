// A HIP runtime without a device. Device memory is host memory, copies are made, and kernels compute nothing. With this
// runtime, AMD's real plugin runs as a client on a machine without a GPU. All other HIP functions return error 100;
// scripts/make_stand_ins.sh makes them.
//
// STAND_IN_HANG: a file; while it exists, the next kernel of the process whose number it contains never ends.
// STAND_IN_MICROSECONDS: how long each kernel takes (0).
// STAND_IN_DEVICES: how many devices there are (1). STAND_IN_BYTES: the memory of each device (4 GB). STAND_IN_HELD:
// the bytes of each device that other programs use (0). STAND_IN_COUNTS: a file. When the process ends, the file gets a
// line "NAME DEVICE CALLS BYTES" for each kind of work and device.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2 };

static uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 0);
}
static int device_count(void) {
  return (int)number("STAND_IN_DEVICES", 1);
}
static size_t device_bytes(void) {
  return number("STAND_IN_BYTES", 4000000000);
}

static __thread int current;  // the device that this thread chose
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// The kinds of work that are counted for each device.
enum { kToDevice, kFromDevice, kBetweenDevices, kWithinDevice, kKernels, kPools, kPoolThreads, kWorks };
static const char* const kNames[kWorks] = {"to_device", "from_device", "between_devices", "within_device",
                                           "kernels",   "pools",       "pool_thread"};
enum { kMostDevices = 16 };
static struct { uint64_t calls, bytes; } counts[kWorks][kMostDevices];

static void count(int work, int device, uint64_t bytes) {
  __atomic_add_fetch(&counts[work][device].calls, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&counts[work][device].bytes, bytes, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void write_counts(void) {
  const char* path = getenv("STAND_IN_COUNTS");
  FILE* file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) return;
  for (int work = 0; work < kWorks; ++work)
    for (int device = 0; device < device_count(); ++device)
      fprintf(file, "%s %d %lu %lu\n", kNames[work], device, counts[work][device].calls, counts[work][device].bytes);
  fclose(file);
}

// Blocks of memory. `device` is -1 for pinned memory of the host.
enum { kMostBlocks = 1 << 16, kHost = -1 };
static struct {
  char* data;
  size_t bytes;
  int device;
} blocks[kMostBlocks];
static int block_count;
static size_t taken[kMostDevices];

static int allocate(void** out, size_t bytes, int device) {
  if (bytes == 0) bytes = 1;
  pthread_mutex_lock(&mutex);
  const size_t room = device == kHost ? bytes : device_bytes() - number("STAND_IN_HELD", 0) - taken[device];
  void* data = MAP_FAILED;
  if (bytes <= room)
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int at = 0;
  while (at < block_count && blocks[at].data != NULL) ++at;
  if (data == MAP_FAILED || at == kMostBlocks) {
    pthread_mutex_unlock(&mutex);
    return kOutOfMemory;
  }
  if (at == block_count) ++block_count;
  blocks[at].data = data;
  blocks[at].bytes = bytes;
  blocks[at].device = device;
  if (device != kHost) taken[device] += bytes;
  pthread_mutex_unlock(&mutex);
  if (device != kHost && bytes >= device_bytes() / 2) {  // a block this large is the plugin's memory pool
    count(kPools, device, bytes);
    count(kPoolThreads, device, (uint64_t)syscall(SYS_gettid));
  }
  *out = data;
  return kSuccess;
}

static int release(void* data) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < block_count; ++i) {
    if (data == NULL || blocks[i].data != data) continue;
    munmap(data, blocks[i].bytes);
    if (blocks[i].device != kHost) taken[blocks[i].device] -= blocks[i].bytes;
    blocks[i].data = NULL;
  }
  pthread_mutex_unlock(&mutex);
  return kSuccess;
}

// Returns the block that contains an address. Outside of all blocks, `start` is NULL and `device` is kHost.
struct place {
  char* start;
  size_t bytes;
  int device;
};
static struct place find(const void* address) {
  struct place found = {NULL, 0, kHost};
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].data != NULL && (char*)address >= blocks[i].data && (char*)address < blocks[i].data + blocks[i].bytes)
      found = (struct place){blocks[i].data, blocks[i].bytes, blocks[i].device};
  pthread_mutex_unlock(&mutex);
  return found;
}

static int copy(void* to, const void* from, size_t bytes) {
  const int target = find(to).device, source = find(from).device;
  if (target != kHost && source == kHost) count(kToDevice, target, bytes);
  if (target == kHost && source != kHost) count(kFromDevice, source, bytes);
  if (target != kHost && source != kHost) count(target == source ? kWithinDevice : kBetweenDevices, target, bytes);
  memmove(to, from, bytes);
  return kSuccess;
}

// Devices.
int hipInit(unsigned flags) {
  return kSuccess;
}
int hipGetDeviceCount(int* out) {
  return *out = device_count(), kSuccess;
}
int hipDeviceGet(int* out, int ordinal) {
  return *out = ordinal, kSuccess;
}
int hipSetDevice(int device) {
  return current = device, kSuccess;
}
int hipGetDevice(int* out) {
  return *out = current, kSuccess;
}
int hipDeviceTotalMem(size_t* out, int device) {
  return *out = device_bytes(), kSuccess;
}
int hipRuntimeGetVersion(int* out) {
  return *out = 71400000, kSuccess;
}
int hipDriverGetVersion(int* out) {
  return *out = 71400000, kSuccess;
}
int hipDeviceCanAccessPeer(int* out, int device, int peer) {
  return *out = 1, kSuccess;
}
int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return kSuccess;
}
int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -1, kSuccess;
}
int hipDeviceSynchronize(void) {
  return kSuccess;
}
int hipGetLastError(void) {
  return kSuccess;
}
const char* hipGetErrorString(int code) {
  return code == kOutOfMemory ? "out of memory" : "an error of the stand-in";
}
int hipDeviceGetName(char* out, int bytes, int device) {
  snprintf(out, (size_t)bytes, "Stand-in MI300X");
  return kSuccess;
}
int hipDeviceGetPCIBusId(char* out, int bytes, int device) {
  snprintf(out, (size_t)bytes, "0000:%02x:00.0", device + 1);
  return kSuccess;
}
int hipMemGetInfo(size_t* available, size_t* total) {
  *total = device_bytes();
  *available = *total - number("STAND_IN_HELD", 0) - taken[current];
  return kSuccess;
}

int hipDeviceGetAttribute(int* out, int attribute, int device) {
  static const struct {
    int attribute, value;
  } known[] = {
      {0, 1},            // EccEnabled
      {29, 2147483647},  // MaxGridDimX
      {30, 65536},       // MaxGridDimY
      {31, 65536},       // MaxGridDimZ
      {57, 2048},        // MaxThreadsPerMultiProcessor
      {63, 304},         // MultiprocessorCount
      {71, 131072},      // MaxRegistersPerBlock
      {72, 131072},      // MaxRegistersPerMultiprocessor
      {74, 65536},       // MaxSharedMemoryPerBlock
      {87, 64},          // WarpSize
      {10002, 65536},    // MaxSharedMemoryPerMultiprocessor
  };
  *out = 100000;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i)
    if (known[i].attribute == attribute) *out = known[i].value;
  return kSuccess;
}

// Offsets of fields in hipDeviceProp_tR0600, whose size is 1,472 bytes.
int hipGetDevicePropertiesR0600(char* out, int device) {
  static const struct {
    int at, value;
  } ints[] = {
      {304, 131072},                                    // regsPerBlock
      {308, 64},                                        // warpSize
      {320, 1024},                                      // maxThreadsPerBlock
      {324, 1024},                                      // maxThreadsDim[3]
      {328, 1024},    {332, 1024},  {336, 2147483647},  // maxGridSize[3]
      {340, 65536},   {344, 65536}, {348, 2100000},     // clockRate, kHz
      {360, 9},                                         // major
      {364, 4},                                         // minor
      {388, 304},                                       // multiProcessorCount
      {400, 1},                                         // canMapHostMemory
      {576, 1},                                         // concurrentKernels
      {608, 1300000},                                   // memoryClockRate, kHz
      {612, 8192},                                      // memoryBusWidth
      {616, 4194304},                                   // l2CacheSize
      {624, 2048},                                      // maxThreadsPerMultiProcessor
      {648, 131072},                                    // regsPerMultiprocessor
  };
  static const struct {
    int at;
    uint64_t value;
  } longs[] = {
      {296, 65536},   // sharedMemPerBlock
      {640, 65536},   // sharedMemPerMultiprocessor
      {1416, 65536},  // maxSharedMemoryPerMultiProcessor
  };
  memset(out, 0, 1472);
  strcpy(out, "Stand-in MI300X");
  strcpy(out + 1160, "gfx942:sramecc+:xnack-");
  const uint64_t total = device_bytes();
  memcpy(out + 288, &total, sizeof total);
  for (size_t i = 0; i < sizeof ints / sizeof ints[0]; ++i) memcpy(out + ints[i].at, &ints[i].value, sizeof(int));
  for (size_t i = 0; i < sizeof longs / sizeof longs[0]; ++i) memcpy(out + longs[i].at, &longs[i].value, 8);
  const int bus = device + 1;
  memcpy(out + 584, &bus, sizeof bus);
  return kSuccess;
}

// Memory.
int hipMalloc(void** out, size_t bytes) {
  return allocate(out, bytes, current);
}
int hipExtMallocWithFlags(void** out, size_t bytes, unsigned flags) {
  return allocate(out, bytes, current);
}
int hipMallocManaged(void** out, size_t bytes, unsigned flags) {
  return allocate(out, bytes, current);
}
int hipHostMalloc(void** out, size_t bytes, unsigned flags) {
  return allocate(out, bytes, kHost);
}
int hipFree(void* data) {
  return release(data);
}
int hipHostFree(void* data) {
  return release(data);
}
int hipHostRegister(void* data, size_t bytes, unsigned flags) {
  return kSuccess;
}
int hipHostUnregister(void* data) {
  return kSuccess;
}
int hipHostGetDevicePointer(void** out, void* data, unsigned flags) {
  return *out = data, kSuccess;
}
int hipMemGetAllocationGranularity(size_t* out, const void* what, int option) {
  return *out = 2 << 20, kSuccess;
}
int hipMemGetAddressRange(void** start, size_t* bytes, void* data) {
  const struct place found = find(data);
  if (found.start == NULL) return kInvalidValue;
  if (start != NULL) *start = found.start;
  if (bytes != NULL) *bytes = found.bytes;
  return kSuccess;
}
int hipPointerGetAttribute(void* out, int attribute, void* data) {
  enum { kMemoryType = 2, kDeviceOrdinal = 9 };
  const struct place found = find(data);
  if (found.start == NULL) return kInvalidValue;
  *(int*)out = attribute == kMemoryType      ? (found.device == kHost ? 1 : 2)
               : attribute == kDeviceOrdinal ? (found.device == kHost ? 0 : found.device)
                                             : 0;
  return kSuccess;
}
int hipDrvPointerGetAttributes(unsigned number_of, int* attributes, void** out, void* data) {
  for (unsigned i = 0; i < number_of; ++i) hipPointerGetAttribute(out[i], attributes[i], data);
  return kSuccess;
}
int hipPointerGetAttributes(void* out, const void* data) {
  struct {
    int type, device;
    const void *on_device, *on_host;
    int managed;
    unsigned flags;
  } attributes = {0};
  const struct place found = find(data);
  if (found.start == NULL) return kInvalidValue;
  attributes.type = found.device == kHost ? 1 : 2;
  attributes.device = found.device == kHost ? 0 : found.device;
  attributes.on_device = attributes.on_host = data;
  memcpy(out, &attributes, sizeof attributes);
  return kSuccess;
}

// Copies. They are complete when the call returns.
int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return copy(to, from, bytes);
}
int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  return copy(to, from, bytes);
}
int hipMemcpyWithStream(void* to, const void* from, size_t bytes, int kind, void* s) {
  return copy(to, from, bytes);
}
int hipMemcpyDtoDAsync(void* to, void* from, size_t bytes, void* stream) {
  return copy(to, from, bytes);
}
int hipMemcpyDtoH(void* to, void* from, size_t bytes) {
  return copy(to, from, bytes);
}
int hipMemcpyDtoHAsync(void* to, void* from, size_t bytes, void* stream) {
  return copy(to, from, bytes);
}
int hipMemcpyHtoD(void* to, void* from, size_t bytes) {
  return copy(to, from, bytes);
}
int hipMemcpyHtoDAsync(void* to, void* from, size_t bytes, void* stream) {
  return copy(to, from, bytes);
}
int hipMemset(void* to, int value, size_t bytes) {
  return memset(to, value, bytes), kSuccess;
}
int hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return memset(to, value, bytes), kSuccess;
}
int hipMemsetD32Async(int* to, int value, size_t elements, void* stream) {
  for (size_t i = 0; i < elements; ++i) to[i] = value;
  return kSuccess;
}

// Streams, events, modules and functions are blocks that store their device's number. All work is complete when a call
// returns.
static int make_object(void** out) {
  int* object = calloc(1, 64);
  *object = current;
  return *out = object, kSuccess;
}
int hipStreamCreateWithFlags(void** out, unsigned flags) {
  return make_object(out);
}
int hipStreamCreateWithPriority(void** out, unsigned flags, int priority) {
  return make_object(out);
}
int hipStreamDestroy(void* stream) {
  return free(stream), kSuccess;
}
int hipStreamGetFlags(void* stream, unsigned* out) {
  return *out = 1, kSuccess;
}
int hipStreamGetPriority(void* stream, int* out) {
  return *out = 0, kSuccess;
}
int hipStreamQuery(void* stream) {
  return kSuccess;
}
int hipStreamSynchronize(void* stream) {
  return kSuccess;
}
int hipStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return kSuccess;
}
int hipGetStreamDeviceId(void* stream) {
  return stream == NULL ? current : *(int*)stream;
}
int hipStreamWriteValue64(void* stream, void* to, uint64_t value, unsigned flags) {
  return *(uint64_t*)to = value, kSuccess;
}
int hipStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id) {
  if (status != NULL) *status = 0;
  if (id != NULL) *id = 0;
  return kSuccess;
}
int hipEventCreateWithFlags(void** out, unsigned flags) {
  return make_object(out);
}
int hipEventDestroy(void* event) {
  return free(event), kSuccess;
}
int hipEventRecord(void* event, void* stream) {
  return kSuccess;
}
int hipEventQuery(void* event) {
  return kSuccess;
}
int hipEventSynchronize(void* event) {
  return kSuccess;
}
int hipEventElapsedTime(float* milliseconds, void* from, void* to) {
  return *milliseconds = 0.01f, kSuccess;
}
int hipLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return function(data), kSuccess;
}

// Kernels: loaded, launched and counted; they compute nothing.
static int launch(int device) {
  const char* hang = getenv("STAND_IN_HANG");
  FILE* file = hang == NULL ? NULL : fopen(hang, "r");
  int process = 0;
  if (file != NULL) {
    const int named = fscanf(file, "%d", &process);
    fclose(file);
    if (named == 1 && process == getpid())
      for (;;) pause();
  }
  usleep((useconds_t)number("STAND_IN_MICROSECONDS", 0));
  return count(kKernels, device, 0), kSuccess;
}
int hipModuleLoadData(void** out, const void* image) {
  return make_object(out);
}
int hipModuleUnload(void* module) {
  return free(module), kSuccess;
}
int hipModuleGetFunction(void** out, void* module, const char* name) {
  return make_object(out);
}
int hipGetFuncBySymbol(void** out, const void* symbol) {
  return make_object(out);
}
int hipFuncGetAttribute(int* out, int attribute, void* function) {
  return *out = 0, kSuccess;
}
int hipModuleGetGlobal(void** out, size_t* bytes, void* module, const char* name) {
  return *bytes = 1 << 16, allocate(out, *bytes, current);
}
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* function, int threads, size_t shared) {
  return *out = 1, kSuccess;
}
int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* stream, void** arguments, void** extra) {
  return launch(hipGetStreamDeviceId(stream));
}
int hipLaunchKernel(const void* function, ...) {
  return launch(current);
}
void** __hipRegisterFatBinary(const void* data) {
  static void* registered[8];
  return registered;
}
void __hipRegisterFunction() {}
void __hipRegisterVar() {}
void __hipUnregisterFatBinary() {}
