#include "runtime/client.h"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/limits/host_memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "runtime/handles.h"
#include "runtime/rendezvous/plugin_store.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/vendors/libraries.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

// Returns the plugin's figures about the device's memory, such as the peak and the allocator's limit. All figures are
// zero when the plugin does not report them.
PJRT_Device_MemoryStats_Args device_memory(const PJRT_Api& api, PJRT_Device* device) {
  PJRT_ARGS(PJRT_Device_MemoryStats_Args, args);
  args.device = device;
  if (!pjrt::take(api, api.PJRT_Device_MemoryStats(&args)).empty()) args = {};
  return args;
}

// Returns the text of the attribute `name`; "" when the attribute is missing or not a text.
std::string text_attribute(const PJRT_Api& api, PJRT_DeviceDescription* description, std::string_view name) {
  PJRT_ARGS(PJRT_DeviceDescription_Attributes_Args, args);
  args.device_description = description;
  PJRT_CALL(api, PJRT_DeviceDescription_Attributes, args);
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    if (value.type == PJRT_NamedValue_kString && std::string_view(value.name, value.name_size) == name)
      return {value.string_value, value.value_size};
  }
  return "";
}

// Describes one device. `local` says whether this process controls the device. Plugins do not report the memory of
// other processes' devices.
DeviceInfo describe(const Plugin& plugin, PJRT_Device* device, bool local) {
  const PJRT_Api& api = plugin.api();
  PJRT_ARGS(PJRT_Device_GetDescription_Args, args);
  args.device = device;
  PJRT_CALL(api, PJRT_Device_GetDescription, args);
  PJRT_ARGS(PJRT_DeviceDescription_Id_Args, id);
  id.device_description = args.device_description;
  PJRT_CALL(api, PJRT_DeviceDescription_Id, id);
  PJRT_ARGS(PJRT_DeviceDescription_ProcessIndex_Args, process);
  process.device_description = args.device_description;
  PJRT_CALL(api, PJRT_DeviceDescription_ProcessIndex, process);
  PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind);
  kind.device_description = args.device_description;
  PJRT_CALL(api, PJRT_DeviceDescription_Kind, kind);
  const PJRT_Device_MemoryStats_Args memory = local ? device_memory(api, device) : PJRT_Device_MemoryStats_Args{};
  return {.id = id.id,
          .process_index = process.process_index,
          .kind = std::string(kind.device_kind, kind.device_kind_size),
          .capability = plugin.vendor().staging == Staging::kHostMemory
                            ? std::string(kHostCapability)
                            : text_attribute(api, args.device_description, "compute_capability"),
          .memory_bytes = memory.bytes_limit_is_set ? memory.bytes_limit : 0};
}

std::string remedy_for_several() {
  return fmt::format("start one process only, or use plugin {}", fmt::join(vendors_that_connect(), " or "));
}

PJRT_Client* create_client(const Plugin& plugin, const ClientOptions& options) {
  std::vector<PJRT_NamedValue> values;
  const Vendor& vendor = plugin.vendor();
  if (plugin.compiles_only()) {
    throw DeviceError(
        "plugin {} can only compile here, not run: its vendor's libraries are missing; install them, set `plugin: cpu` "
        "to run on this machine, or use `fettle plan`, which needs no device",
        plugin.name());
  }
  if (options.device_count < 0) throw UserError("device_count: {} given, wanted 1 or more", options.device_count);
  // The names must stay valid until the call ends. They are string literals, which always stay valid.
  if (vendor.counts_devices) {
    values.push_back(pjrt::named_value("cpu_device_count", int64_t{std::max(1, options.device_count)}));
  }
  if (vendor.has_memory_options && options.memory_fraction > 0) {
    values.push_back(pjrt::named_value("memory_fraction", static_cast<float>(options.memory_fraction)));
  }
  if (vendor.has_memory_options) values.push_back(pjrt::named_value("preallocate", options.preallocate));
  PJRT_ARGS(PJRT_Client_Create_Args, args);
  if (options.run != nullptr) {
    values.push_back(pjrt::named_value("node_id", int64_t{options.run->rank()}));
    values.push_back(pjrt::named_value("num_nodes", int64_t{options.run->size()}));
    offer_store(*options.run, args);
  }
  if (!options.visible.empty()) values.push_back(pjrt::named_value("visible_devices", options.visible));
  args.create_options = values.data();
  args.num_options = values.size();
  try {
    PJRT_CALL(plugin.api(), PJRT_Client_Create, args);
  } catch (const DeviceError& error) {
    if (options.run != nullptr && vendor.device_file.empty())
      throw DeviceError("plugin {} does not connect several processes: {}; {}", plugin.name(), error.what(),
                        remedy_for_several());
    if (vendor.device_file.empty()) throw;
    const std::string lack = lack_of_driver(vendor);
    throw DeviceError(
        "plugin {} finds no device that it can use: {}; {}, set `plugin: cpu` to run on this machine, or use `fettle "
        "plan`, which needs no device",
        plugin.name(), error.what(),
        lack.empty() ? "check that the GPU and its driver are installed"
                     : fmt::format("this machine has {}, but {}: update the driver", driver_version(vendor), lack));
  }
  return args.client;
}

// Sets the handle's devices and their descriptions.
void describe_devices(ClientHandle& handle) {
  const PJRT_Api& api = handle.api();
  PJRT_ARGS(PJRT_Client_AddressableDevices_Args, local);
  local.client = handle.client;
  PJRT_CALL(api, PJRT_Client_AddressableDevices, local);
  if (local.num_addressable_devices == 0)
    throw DeviceError("plugin {} finds no device on this machine; check the driver, or set `plugin: cpu`",
                      handle.plugin->name());
  PJRT_ARGS(PJRT_Client_Devices_Args, all);
  all.client = handle.client;
  PJRT_CALL(api, PJRT_Client_Devices, all);
  const std::set<PJRT_Device*> own(local.addressable_devices,
                                   local.addressable_devices + local.num_addressable_devices);
  std::vector<std::pair<DeviceInfo, PJRT_Device*>> found;
  for (size_t i = 0; i < all.num_devices; ++i)
    found.emplace_back(describe(*handle.plugin, all.devices[i], own.contains(all.devices[i])), all.devices[i]);
  std::ranges::stable_sort(found, {}, [](const auto& one) { return std::pair(one.first.process_index, one.first.id); });
  handle.local_count = static_cast<int>(own.size());
  handle.first_local = static_cast<int>(
      std::ranges::find_if(found, [&](const auto& one) { return own.contains(one.second); }) - found.begin());
  const int64_t memory = found[static_cast<size_t>(handle.first_local)].first.memory_bytes;
  for (auto& [info, device] : found) {
    info.ordinal = static_cast<int>(handle.devices.size());
    if (!own.contains(device)) info.memory_bytes = memory;
    handle.devices.push_back(device);
    handle.infos.push_back(info);
  }
}

// Throws DeviceError if the client does not see the devices of all processes of the run.
void check_processes(const ClientHandle& handle, const Rendezvous& run) {
  std::set<int> processes;
  for (const DeviceInfo& info : handle.infos) processes.insert(info.process_index);
  if (handle.process_index == run.rank() && static_cast<int>(processes.size()) == run.size()) return;
  throw DeviceError(
      "plugin {} does not connect several processes: {} of {} sees {}; {}", handle.plugin->name(),
      run.name_of(run.rank()), run.size(),
      processes.size() == 1 ? "only its own devices" : fmt::format("the devices of {} processes", processes.size()),
      remedy_for_several());
}

void describe_client(ClientHandle& handle) {
  const PJRT_Api& api = handle.api();
  PJRT_ARGS(PJRT_Client_PlatformName_Args, name);
  name.client = handle.client;
  PJRT_CALL(api, PJRT_Client_PlatformName, name);
  handle.platform_name = lower_case({name.platform_name, name.platform_name_size});
  PJRT_ARGS(PJRT_Client_PlatformVersion_Args, version);
  version.client = handle.client;
  PJRT_CALL(api, PJRT_Client_PlatformVersion, version);
  handle.platform_version.assign(version.platform_version, version.platform_version_size);
  PJRT_ARGS(PJRT_Client_ProcessIndex_Args, process);
  process.client = handle.client;
  PJRT_CALL(api, PJRT_Client_ProcessIndex, process);
  handle.process_index = process.process_index;
  describe_devices(handle);
}

std::vector<int64_t> device_ids(const ClientHandle& handle, const CompileOptions& options) {
  const int available = static_cast<int>(handle.infos.size());
  if (options.num_partitions > available) {
    throw UserError(
        "the mesh needs {} devices, but plugin {} has {}; make the mesh smaller or raise device_count (CPU only)",
        options.num_partitions, handle.plugin->name(), available);
  }
  std::vector<int64_t> ids;
  for (int i = 0; i < options.num_partitions; ++i) {
    const int ordinal = options.devices.empty() ? i : options.devices.at(i);
    internal_check(ordinal >= 0 && ordinal < available, "compile: there is no device {}, the number of devices is {}",
                   ordinal, available);
    ids.push_back(handle.infos[ordinal].id);
  }
  return ids;
}

// Makes the allocators of this process's devices allocate their memory now, in parallel. Each allocator fills a table
// in host memory (1/32 of the device's memory, see vendor.h), which takes seconds for a large device. Without this
// function, each allocator would fill its table when the first array of its device is made, one device after another.
void fill_pools(const ClientHandle& handle) {
  parallel_for(handle.local_count, handle.local_count, [&](int64_t i) {
    const auto block = std::make_shared<HostBlock>(4);
    const int ordinal = handle.first_local + static_cast<int>(i);
    destroy_buffer(handle.api(), buffer_from_block(handle, ordinal, "", {DType::kF32, {}}, block, false));
  });
}

}  // namespace

Client::Client(std::shared_ptr<const Plugin> plugin, const ClientOptions& options) {
  PJRT_Client* client = create_client(*plugin, options);
  const auto handle = std::make_shared<ClientHandle>(std::move(plugin), client);
  describe_client(*handle);
  if (options.run != nullptr) check_processes(*handle, *options.run);
  const int count = handle->local_count;
  if (options.device_count != 0 && options.device_count != count) {
    throw UserError(
        "device_count is {}, but plugin {} has {} devices; remove device_count, or set it to the number of devices",
        options.device_count, handle->plugin->name(), count);
  }
  if (handle->plugin->vendor().staging == Staging::kHostMemory) {
    // The CPU plugin allocates arrays with the C library. With this setting, the library returns freed arrays of 1 MiB
    // or more to the system at once. So the process uses as much memory as the compiler counts.
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
  }
  if (handle->plugin->vendor().counts_devices) {
    const int64_t sharers = options.run != nullptr ? options.run->place().local_size : 1;
    for (DeviceInfo& info : handle->infos)
      info.memory_bytes = std::max<int64_t>(1, free_host_memory() / (sharers * count));
  }
  if (handle->plugin->vendor().has_memory_options && options.preallocate) fill_pools(*handle);
  handle_ = handle;
}

const Plugin& Client::plugin() const {
  return *handle_->plugin;
}
const std::string& Client::platform_name() const {
  return handle_->platform_name;
}
const std::string& Client::platform_version() const {
  return handle_->platform_version;
}
const std::vector<DeviceInfo>& Client::devices() const {
  return handle_->infos;
}
int Client::local_count() const {
  return handle_->local_count;
}
bool Client::is_local(int ordinal) const {
  return handle_->is_local(ordinal);
}
int Client::process_index() const {
  return handle_->process_index;
}

int64_t Client::peak_bytes_in_use() const {
  int64_t peak = 0;
  for (int ordinal = 0; ordinal < std::ssize(devices()); ++ordinal) {
    if (!is_local(ordinal)) continue;
    const PJRT_Device_MemoryStats_Args memory = device_memory(handle_->api(), handle_->devices[ordinal]);
    peak = std::max(peak, memory.peak_bytes_in_use_is_set ? memory.peak_bytes_in_use : int64_t{0});
  }
  return peak;
}

bool Client::has_memory(const std::string& kind) const {
  return std::ranges::any_of(handle_->memories(handle_->first_local),
                             [&](const auto& memory) { return memory.first == kind; });
}

std::string Client::encoded_options(const CompileOptions& options) const {
  return encode_compile_options(options, device_ids(*handle_, options));
}

Executable Client::compile(const std::string& module_text, Signature signature, const CompileOptions& options) const {
  require_memory_to_compile(plugin());
  const std::string encoded = encoded_options(options);
  const PJRT_Program program = pjrt::mlir_program(module_text);
  PJRT_ARGS(PJRT_Client_Compile_Args, args);
  args.client = handle_->client;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(handle_->api(), PJRT_Client_Compile, args);
  return Executable(handle_, args.executable, std::move(signature));
}

Executable Client::load(const std::string& serialized, Signature signature) const {
  PJRT_ARGS(PJRT_Executable_DeserializeAndLoad_Args, args);
  args.client = handle_->client;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  PJRT_CALL(handle_->api(), PJRT_Executable_DeserializeAndLoad, args);
  return Executable(handle_, args.loaded_executable, std::move(signature));
}

}  // namespace fettle
