#include "programs/devices.h"

#include <cstdlib>

#include "base/cache.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/size_text.h"
#include "checkpoint/files.h"
#include "programs/arithmetic.h"
#include "programs/signature.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

// Returns how much memory of a device this program may take. The plugin takes one fraction for all devices, so the
// device with the least free memory decides. Without the driver, the result is unknown.
MemoryShare share_of_devices(const Plugin& plugin, const DeviceRequest& request) {
  MemoryShare least;
  if (plugin.compiles_only() || request.memory_utilization == 0) return least;
  const std::vector<DriverMemory> there = driver_memory(std::string(plugin.vendor().driver.library));
  for (const DriverMemory& device : there) {
    const int64_t devices = request.count > 0 ? request.count : static_cast<int64_t>(there.size());
    const MemoryShare share =
        share_memory(plugin.vendor(), device.total, device.total - device.free, request.memory_utilization, devices);
    if (least.total == 0 || share.fraction() < least.fraction()) least = share;
  }
  if (least.total == 0) return least;
  if (least.limit == 0)
    throw DoesNotFit(
        "a device of plugin {} has {}, and other programs use {} of it, so no memory is left; end those programs",
        plugin.name(), size_text(least.total), size_text(least.others));
  if (least.others > 0 && least.limit < least.requested())
    info(
        "gpu_memory_utilization asks for {:g} of a device's {}, but other programs use {} of it; this program takes "
        "{} ({:.2f})",
        least.utilization, size_text(least.total), size_text(least.others), size_text(least.limit), least.fraction());
  // Opening a device allocates a table for its allocator in host memory.
  const int64_t tables = least.limit / plugin.vendor().pool_bytes_per_host_byte * static_cast<int64_t>(there.size());
  if (const int64_t free = free_host_memory(); tables > free)
    throw DoesNotFit(
        "plugin {} keeps a table of {} in the host's memory for {} on each of {} devices, but only {} are free: lower "
        "gpu_memory_utilization ({:g}), or show it fewer devices ({})",
        plugin.name(), size_text(tables), size_text(least.limit), there.size(), size_text(free), least.utilization,
        plugin.vendor().driver.visible_devices);
  return least;
}

Client make_client(const std::shared_ptr<const Plugin>& plugin, const DeviceRequest& request,
                   const MemoryShare& share) {
  ClientOptions options{.device_count = static_cast<int>(request.count)};
  if (!plugin->vendor().counts_devices) options.device_count = 0;
  options.memory_fraction = share.total > 0 ? share.fraction() : request.memory_utilization;
  return Client(plugin, options);
}

}  // namespace

Devices::Devices(const DeviceRequest& request)
    : plugin_(Plugin::load(request.plugin)),
      memory_(share_of_devices(*plugin_, request)),
      client_(make_client(plugin_, request, memory_)),
      tf32_(request.tf32),
      kernels_(request.kernels) {
  if (const int64_t limit = client_.devices()[0].memory_bytes; limit > 0)
    memory_.limit = limit;  // the allocator's own limit
  if (!plugin_->vendor().has_memory_options && !request.memory_utilization_at.empty())
    warn("{}: gpu_memory_utilization has no effect: plugin {} has no separate device memory",
         request.memory_utilization_at, plugin_->name());
  count_ = static_cast<int64_t>(client_.devices().size());
  if (request.count > 0) {
    if (request.count > count_)
      throw UserError("device_count or mesh asks for {} devices, but {} has {}", request.count, client_.platform_name(),
                      count_);
    count_ = request.count;
  }
  if (request.compile_cache != "off")
    cache_.emplace(request.compile_cache.empty() ? cache_folder("compiled")
                                                 : std::filesystem::path(request.compile_cache));
  if (request.require_arithmetic && !on_host()) fettle::require_arithmetic(*this);
}

MeshAxes Devices::flat_mesh() const {
  return count_ > 1 ? MeshAxes{{{"fsdp", count_}}} : MeshAxes{};
}

std::string Devices::title() const {
  const DeviceInfo& first = client_.devices()[0];
  const std::string kind = first.kind.empty() ? client_.platform_name() : first.kind;
  return fmt::format("{} ({} device{})", kind, count_, count_ == 1 ? "" : "s");
}

namespace {

UserError no_host_memory(const Client& client) {
  return UserError(
      "offload_optimizer and offload_param need arrays in pinned host memory. Plugin {} does not support them or "
      "cannot compile for them; remove the keys, or use a newer plugin (`make setup`, `make plugins`)",
      client.plugin().name());
}

}  // namespace

std::string_view Devices::vendor() const {
  return client_.plugin().vendor().name;
}

void Devices::require_host_memory() const {
  if (!client_.has_memory(memory_kind(Memory::kHost))) throw no_host_memory(client_);
}

bool Devices::on_host() const {
  return plugin_->vendor().staging == Staging::kHostMemory;
}

namespace {

CompileOptions options_of(const Program& program) {
  return {.num_partitions = static_cast<int>(program.mesh().size())};
}

}  // namespace

MemoryStats Devices::memory_stats(const Program& program) {
  const std::string text = program.text(tf32_);
  if (cache_)
    if (const auto stored = cache_->memory_stats(client_, text, options_of(program))) return *stored;
  kept_.emplace(text, compile(program, text));
  return kept_->second.memory_stats();
}

Executable Devices::compile(const Program& program) {
  const std::string text = program.text(tf32_);
  if (!kept_ || kept_->first != text) return compile(program, text);
  Executable kept = std::move(kept_->second);
  kept_.reset();
  return kept;
}

Executable Devices::compile(const Program& program, const std::string& text) {
  if (program.uses_host_memory()) require_host_memory();
  const CompileOptions options = options_of(program);
  if (const char* folder = std::getenv("FETTLE_DUMP"))
    write_file(std::filesystem::path(folder) / fmt::format("program-{}.mlir", compiled_++), text);
  try {
    if (cache_) return cache_->compile(client_, text, signature_of(program), options);
    return client_.compile(text, signature_of(program), options);
  } catch (const DeviceError& error) {
    // Plugins older than 2026 have pinned host memory, but lack the op that moves arrays there or support it on one
    // device only.
    if (std::string(error.what()).find("annotate_device_placement") != std::string::npos) throw no_host_memory(client_);
    throw;
  }
}

std::map<std::string, DeviceBuffer> run_program(const Executable& executable, const Bindings& inputs) {
  std::vector<DeviceBuffer*> arguments;
  for (const ArgInfo& info : executable.signature().inputs) {
    const auto at = inputs.find(info.name);
    internal_check(at != inputs.end(), "the program's input '{}' has no device array", info.name);
    arguments.push_back(at->second);
  }
  std::vector<DeviceBuffer> outputs = executable.run(arguments);
  std::map<std::string, DeviceBuffer> named;
  for (size_t i = 0; i < outputs.size(); ++i)
    named.emplace(executable.signature().outputs[i].name, std::move(outputs[i]));
  return named;
}

DeviceBuffer replicate(const Devices& devices, const HostArray& value) {
  return DeviceBuffer::upload(devices.client(), value,
                              Layout::replicated(value.shape().dims, static_cast<int>(devices.count())));
}

DeviceBuffer replicate(const Devices& devices, float value) {
  return replicate(devices, HostArray::from<float>({DType::kF32, {}}, {value}));
}

}  // namespace fettle
