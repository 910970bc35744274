#include "programs/devices.h"

#include <cstdlib>

#include "base/cache.h"
#include "base/error.h"
#include "checkpoint/files.h"
#include "programs/signature.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

Client make_client(const DeviceRequest& request) {
  const std::shared_ptr<const Plugin> plugin = Plugin::load(request.plugin);
  ClientOptions options{.device_count = static_cast<int>(request.count)};
  if (!plugin->vendor().counts_devices) options.device_count = 0;
  return Client(plugin, options);
}

}  // namespace

Devices::Devices(const DeviceRequest& request) : client_(make_client(request)), tf32_(request.tf32) {
  count_ = static_cast<int64_t>(client_.devices().size());
  if (request.count > 0) {
    if (request.count > count_)
      throw UserError("{} devices are asked for (device_count or mesh), but {} has {}", request.count,
                      client_.platform_name(), count_);
    count_ = request.count;
  }
  if (request.compile_cache != "off")
    cache_.emplace(request.compile_cache.empty() ? cache_folder("compiled")
                                                 : std::filesystem::path(request.compile_cache));
}

std::string Devices::title() const {
  const DeviceInfo& first = client_.devices()[0];
  const std::string kind = first.kind.empty() ? client_.platform_name() : first.kind;
  return fmt::format("{} ({} device{})", kind, count_, count_ == 1 ? "" : "s");
}

namespace {

UserError no_host_memory(const Client& client) {
  return UserError(
      "offload_optimizer and offload_param need arrays in pinned memory of the host, which plugin {} does not have or "
      "cannot compile for; remove the keys, or take a newer plugin (`make setup`, `make plugins`)",
      client.plugin().name());
}

}  // namespace

void Devices::require_host_memory() const {
  if (!client_.has_memory(memory_kind(Memory::kHost))) throw no_host_memory(client_);
}

Executable Devices::compile(const Program& program) {
  if (program.uses_host_memory()) require_host_memory();
  const CompileOptions options{.num_partitions = static_cast<int>(program.mesh().size())};
  const std::string text = program.text(tf32_);
  if (const char* folder = std::getenv("FETTLE_DUMP"))
    write_file(std::filesystem::path(folder) / fmt::format("program-{}.mlir", compiled_++), text);
  try {
    if (cache_) return cache_->compile(client_, text, signature_of(program), options);
    return client_.compile(text, signature_of(program), options);
  } catch (const DeviceError& error) {
    // Plugins of before 2026 have the memory but not the op, or not on several devices.
    if (std::string(error.what()).find("annotate_device_placement") != std::string::npos) throw no_host_memory(client_);
    throw;
  }
}

std::map<std::string, DeviceBuffer> run_program(const Executable& executable, const Bindings& inputs) {
  std::vector<DeviceBuffer*> arguments;
  for (const ArgInfo& info : executable.signature().inputs) {
    const auto at = inputs.find(info.name);
    internal_check(at != inputs.end(), "no device array for the program's input '{}'", info.name);
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
