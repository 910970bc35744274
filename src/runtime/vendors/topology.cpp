#include "runtime/vendors/topology.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/pattern.h"
#include "runtime/pjrt.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

// Throws DeviceError if the description is for another vendor. With such a description, the plugin would end the
// process.
void check_vendor(const Plugin& plugin, const std::string& target_config) {
  static const Pattern field("platform_name\\s*:\\s*[\"']([A-Za-z0-9_]+)[\"']");
  const std::vector<Pattern::Groups> found = field.find_all(target_config);
  if (found.empty()) {
    throw DeviceError("the target description has no platform_name; wanted one for plugin {}: \"{}\"", plugin.name(),
                      plugin.vendor().target_platform);
  }
  if (found[0][1] != plugin.vendor().target_platform) {
    throw DeviceError(
        "the target description is for {}, but plugin {} compiles for {}; use the plugin of the target's vendor",
        found[0][1], plugin.name(), plugin.vendor().target_platform);
  }
}

}  // namespace

Topology::Topology(std::shared_ptr<const Plugin> plugin, PJRT_TopologyDescription* topology)
    : plugin_(std::move(plugin)), topology_(topology) {}

Topology Topology::create(std::shared_ptr<const Plugin> plugin, const std::string& target_config,
                          const std::string& shape) {
  if (plugin->vendor().target_platform.empty()) {
    throw DeviceError(
        "plugin {} cannot compile for devices that are not present; use a plugin that can ({}), which `make plugins` "
        "fetches",
        plugin->name(), fmt::join(vendors_with_targets(), ", "));
  }
  check_vendor(*plugin, target_config);
  const std::array options = {pjrt::named_value("target_config", std::string_view(target_config)),
                              pjrt::named_value("topology", std::string_view(shape))};
  PJRT_ARGS(PJRT_TopologyDescription_Create_Args, args);
  args.topology_name = "";
  args.create_options = options.data();
  args.num_options = options.size();
  PJRT_CALL(plugin->api(), PJRT_TopologyDescription_Create, args);
  return Topology(std::move(plugin), args.topology);
}

Topology::~Topology() {
  if (topology_ == nullptr) return;
  PJRT_ARGS(PJRT_TopologyDescription_Destroy_Args, args);
  args.topology = topology_;
  pjrt::take(plugin_->api(), plugin_->api().PJRT_TopologyDescription_Destroy(&args));
}

Topology::Topology(Topology&& other) noexcept
    : plugin_(std::move(other.plugin_)), topology_(std::exchange(other.topology_, nullptr)) {}

Topology& Topology::operator=(Topology&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(topology_, other.topology_);
  return *this;
}

int Topology::device_count() const {
  PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args, args);
  args.topology = topology_;
  PJRT_CALL(plugin_->api(), PJRT_TopologyDescription_GetDeviceDescriptions, args);
  return static_cast<int>(args.num_descriptions);
}

CompiledProgram Topology::compile(const std::string& module_text, const CompileOptions& options) const {
  require_memory_to_compile(*plugin_);
  const std::string encoded = encode_compile_options(options, {});
  const PJRT_Program program = pjrt::mlir_program(module_text);
  PJRT_ARGS(PJRT_Compile_Args, args);
  args.topology = topology_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(plugin_->api(), PJRT_Compile, args);
  return CompiledProgram(plugin_, args.executable);
}

}  // namespace fettle
