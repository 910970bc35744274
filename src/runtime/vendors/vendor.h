// Defines Vendor, which states how plugins differ. Each vendor has one table row.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/arrays/shape.h"
#include "runtime/compiled_program.h"

namespace fettle {

// How host bytes are copied into a buffer that BufferBuilder fills in pieces.
enum class Staging {
  kHostMemory,       // the device is this host: the filled memory becomes the array, without a copy
  kTransferManager,  // pieces go through the plugin's asynchronous transfer manager
  kWholeBox,         // each device's box is gathered on the host, then sent whole
};

// How to find a vendor's devices and driver version without the plugin.
struct Driver {
  std::string_view library;  // the driver's library, which reports a device's memory (device_memory.h); "" = none
  std::string_view visible_devices;  // the environment variable that chooses devices
  // A function of the driver that returns version_unit * major + version_unit / 100 * minor.
  std::string_view version_call;
  int version_unit = 1;
  std::string_view version_file;  // a file with the version of the kernel driver
  bool names_parts = false;       // the parts of a device have different names (driver_devices)
  // The smallest version that the plugin works with, in the units of version_call, and the driver's release that has
  // it. 0 = not known.
  int least_version = 0;
  std::string_view least_release = "";
};

struct Vendor {
  std::string_view name;          // as users write it: "cpu", "cuda", "rocm"
  std::string_view file_word;     // a word in the plugin's file name that identifies the vendor
  std::string_view ffi_platform;  // the platform under which FFI handlers are registered; "" = none
  std::string_view device_file;   // a file that exists if a device is present; "" = a device is always present
  // A file that exists if a device of any vendor is present (WSL 2). It counts if the driver's library loads, too.
  std::string_view shared_device_file = "";
  // A folder of the kernel with a subfolder for each processor, whose file gpu_id is 0 for a CPU. If the folder exists,
  // a device is present only if it lists a GPU. "" = there is no such folder.
  std::string_view device_nodes = "";
  std::string_view target_platform;  // platform_name in a target description; "" = cannot compile without a device
  std::string_view remedy;           // what to do when the plugin is missing or will not load
  Staging staging = Staging::kWholeBox;
  bool counts_devices = false;      // the client takes a device count ("cpu_device_count")
  bool has_memory_options = false;  // the client takes memory_fraction and preallocate
  bool connects_processes = false;  // the clients of several processes see each other's devices
  Driver driver = {};
  std::vector<std::string_view> opened_libraries =
      {};  // libraries that the plugin opens by name, except the driver's own
  // Bytes of device memory per byte of the allocator's table in host memory. XLA's allocator has 8 bytes of table for
  // each 256 bytes of device memory.
  int64_t pool_bytes_per_host_byte = 32;
  // Device memory that is used in addition to the program's memory, per device. library_bytes is for context, code and
  // the libraries' workspaces. With several devices, communication_bytes is added for the buffers of the communication
  // library. Both are upper estimates, from the vendors' documents and from experience.
  int64_t library_bytes = 0, communication_bytes = 0;
  // Host memory that compiling a step takes. Measured: 0.57 GB for Llama 3.1 405B with a GPU plugin.
  int64_t compile_bytes = 700'000'000;
  // A flag to add to XLA_FLAGS before the plugin reads them; "" = none. The user's own value takes precedence.
  std::string_view xla_flag;
  // The compiler flag for the optimization level. At level 0, compiling is quick, but the programs are slow. "" = none.
  std::string_view effort_flag = "";
  // The compiler flag that names a folder for the results of tuning. To tune, the plugin measures several programs for
  // a matrix product or a fusion on the device, and keeps the fastest choice. "" = the plugin tunes nothing.
  std::string_view tuning_flag = "";
  // The compiler flags that limit the time of one execution ("600s"). After this time, the plugin ends the process.
  std::vector<std::string_view> timeout_flags = {};
  // The environment variable that limits how many GiB of host memory may be pinned. If the variable is not set, the
  // plugin allows 64 GiB. "" = the plugin has no such limit.
  std::string_view pinned_limit = "";
  // The environment variables that set the number of the plugin's threads. The first one that is set decides. If none
  // is set, Fettle sets the first to usable_cpus(), because the plugin does not know a container's limit of CPU time.
  std::vector<std::string_view> thread_variables = {};
  // Returns the peak bytes of one execution on a device. Plugins count their statistics differently.
  int64_t (*peak_bytes)(const MemoryStats& stats) = nullptr;
};

// The capability of the CPU plugin's devices.
inline constexpr std::string_view kHostCapability = "host";

// Returns the 8-bit float types that a device of this capability ("8.9", "gfx942:sramecc+:xnack-") can multiply.
// Returns nullopt when the device cannot multiply 8-bit floats, or when the capability is not known. Also returns types
// for the CPU, which emulates the products. Sources: NVIDIA's CUDA guide (from 8.9 on), AMD's instruction sets (CDNA 3
// has the FNUZ types, CDNA 4 and RDNA 4 have OCP's types).
std::optional<Float8> float8_of(std::string_view capability);

// Returns all table rows, in the order of preference.
const std::vector<Vendor>& vendors();
const Vendor* vendor_named(std::string_view name);         // null when unknown
const Vendor& vendor_of_file(std::string_view file_name);  // by file_word; unknown_vendor() when no row matches
// Returns the vendor of the GPUs with this capability: AMD if the capability begins with "gfx", else NVIDIA ("8.9").
const Vendor* vendor_of_capability(std::string_view capability);
// Return sorted names. vendors_with_targets: the vendors whose plugins compile for absent devices.
// vendors_that_connect: the vendors whose plugins connect several processes.
std::vector<std::string_view> vendors_with_targets();
std::vector<std::string_view> vendors_that_connect();
// Returns the table row for an unknown vendor, which assumes nothing about the plugin.
const Vendor& unknown_vendor();

}  // namespace fettle
