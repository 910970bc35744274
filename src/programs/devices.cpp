#include "programs/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/output_file.h"
#include "base/limits/host_memory.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "programs/arithmetic.h"
#include "programs/layouts.h"
#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

// Returns how much memory this program may take on a device. The plugin takes one fraction for all devices, so the
// device that allows the smallest fraction decides. Returns an unknown share (all members zero) when the request names
// no share, when the plugin cannot run programs (Plugin::compiles_only), or when the driver does not report the memory.
// Asks only the devices `own`, or all devices if the list is empty: other processes may hold the others exclusively.
MemoryShare share_of_devices(const Plugin& plugin, const DeviceRequest& request, const std::vector<int64_t>& own) {
  MemoryShare least;
  if (plugin.compiles_only() || request.memory_utilization == 0) return least;
  const std::vector<DriverMemory> there = driver_memory(std::string(plugin.vendor().driver.library), own);
  const int64_t processes = request.run == nullptr ? 1 : request.run->size();
  for (const DriverMemory& device : there) {
    const int64_t devices = request.count > 0 ? request.count : static_cast<int64_t>(there.size()) * processes;
    const MemoryShare share =
        share_memory(plugin.vendor(), device.total, device.total - device.free, request.memory_utilization, devices);
    if (least.total == 0 || share.fraction() < least.fraction()) least = share;
  }
  if (least.total == 0) return least;
  if (least.limit == 0)
    throw DoesNotFit(
        "a device of plugin {} has {} of memory, and other programs use {} of it, so none is left; end those programs",
        plugin.name(), size_text(least.total), size_text(least.others));
  if (least.others > 0 && least.limit < least.requested())
    info(
        "gpu_memory_utilization asks for {:g} of a device's {}, but other programs use {} of it; this program takes "
        "{}, a share of {:.2f}",
        least.utilization, size_text(least.total), size_text(least.others), size_text(least.limit), least.fraction());
  // Opening a device allocates a table for its allocator in host memory. The processes of a host open all its devices.
  const bool shared = request.run != nullptr && !own.empty();
  const int64_t opened = static_cast<int64_t>(there.size()) * (shared ? request.run->place().local_size : 1);
  const int64_t tables = least.limit / plugin.vendor().pool_bytes_per_host_byte * opened;
  if (const int64_t free = free_host_memory(); tables > free)
    throw DoesNotFit(
        "plugin {} needs a table of {} in host memory to manage {} of memory on each of {} devices, but only {} of "
        "host memory are free: lower gpu_memory_utilization ({:g}), or make fewer devices visible to the plugin "
        "({})",
        plugin.name(), size_text(tables), size_text(least.limit), opened, size_text(free), least.utilization,
        plugin.vendor().driver.visible_devices);
  return least;
}

// Returns whether the names are enough to say that two processes see the same devices, and not two parts of one.
bool names_tell(const Vendor& vendor, const std::vector<std::string>& names) {
  const std::set<std::string> different(names.begin(), names.end());
  return !different.contains("") &&
         (vendor.driver.names_parts || (names.size() > 1 && different.size() == names.size()));
}

// Returns the numbers of the devices that this process uses, among those that it sees. The processes of a host that see
// the same devices share them equally. Returns an empty list, which means all devices that this process sees, when no
// other process sees them, when the driver reports none, or when the processes may see different parts of one device.
// The variable that chooses devices does not decide alone: a launcher may give each process other devices, and number
// them from 0 in each.
std::vector<int64_t> devices_among_processes(const Vendor& vendor, Rendezvous& run) {
  const std::string variable(vendor.driver.visible_devices);
  const std::vector<std::string> devices = driver_devices(std::string(vendor.driver.library));
  const std::string seen =
      fmt::format("{} {} ", variable.empty() ? "" : environment(variable.c_str()), fmt::join(devices, " "));
  const std::vector<std::string> all = run.exchange("share of devices", seen);
  const bool tells = names_tell(vendor, devices);
  int64_t sharers = 0, place = 0;
  for (int other = 0; other < run.size(); ++other) {
    if (!run.same_host(other, run.rank())) continue;
    const std::string& theirs = all[static_cast<size_t>(other)];
    if (theirs == seen) {
      place += other < run.rank() ? 1 : 0;
      ++sharers;
      continue;
    }
    for (const std::string& device : devices)
      if (tells && vendor.driver.names_parts && theirs.find(" " + device + " ") != std::string::npos)
        throw UserError(
            "{} and {} see some of the same devices, but not the same list of them; show every process of the host all "
            "devices, or each process only its own ({})",
            run.name_of(std::min(other, run.rank())), run.name_of(std::max(other, run.rank())), variable);
  }
  const auto present = static_cast<int64_t>(devices.size());
  if (sharers == 1 || present == 0 || (present < sharers && !tells)) return {};
  if (present % sharers != 0)
    throw UserError("{} has {} device{} for {} processes; start one process for each device, or one for the whole host",
                    run.host(run.rank()), present, present == 1 ? "" : "s", sharers);
  std::vector<int64_t> own;
  for (int64_t i = 0; i < present / sharers; ++i) own.push_back(place * (present / sharers) + i);
  return own;
}

// Returns the numbers of the devices that this process opens, among those that it sees; an empty list means all.
// Without other processes, these are the first devices, as many as the request asks for.
std::vector<int64_t> own_devices(const Vendor& vendor, const DeviceRequest& request) {
  if (vendor.counts_devices) return {};
  if (request.run != nullptr) return devices_among_processes(vendor, *request.run);
  const int64_t present = std::ssize(driver_devices(std::string(vendor.driver.library)));
  std::vector<int64_t> own(static_cast<size_t>(request.count < present ? request.count : 0));
  std::iota(own.begin(), own.end(), 0);
  return own;
}

Client make_client(const std::shared_ptr<const Plugin>& plugin, const DeviceRequest& request,
                   const std::vector<int64_t>& own, const MemoryShare& share) {
  ClientOptions options{.device_count = static_cast<int>(request.count), .run = request.run, .visible = own};
  if (!plugin->vendor().counts_devices) {
    options.device_count = 0;
  } else if (request.run != nullptr) {
    const int processes = request.run->size();
    if (request.count % processes != 0)
      throw UserError("device_count or mesh asks for {} devices, which cannot be divided evenly over {} processes",
                      request.count, processes);
    options.device_count = static_cast<int>(request.count) / processes;
  }
  options.memory_fraction = share.total > 0 ? share.fraction() : request.memory_utilization;
  return Client(plugin, options);
}

// Returns "2 x NVIDIA H100 80GB HBM3 9.0" for the devices of this process.
std::string own_kinds(const Client& client) {
  std::map<std::string, int> kinds;
  for (const DeviceInfo& device : client.devices())
    if (client.is_local(device.ordinal)) ++kinds[device.kind + " " + device.capability];
  std::vector<std::string> texts;
  for (const auto& [kind, count] : kinds) texts.push_back(fmt::format("{} x {}", count, kind));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Returns the smallest memory of the first `count` devices; 0 if the plugin does not report it.
int64_t smallest_memory(const Client& client, int64_t count) {
  const auto used = std::span(client.devices()).first(static_cast<size_t>(count));
  return std::ranges::min(used, {}, &DeviceInfo::memory_bytes).memory_bytes;
}

// Returns the smallest memory limit of all processes, because all must choose the same mesh and the same programs.
// Throws UserError in every process if the processes have different devices.
int64_t agreed_limit(Rendezvous& run, const Client& client, int64_t limit) {
  const std::vector<std::string> kinds = run.exchange("kinds of devices", own_kinds(client));
  for (int other = 1; other < run.size(); ++other)
    if (const std::string& found = kinds[static_cast<size_t>(other)]; found != kinds[0])
      throw UserError(
          "the devices differ between {} and {}: {} and {}; all processes need the same number of devices of one kind",
          run.name_of(other), run.name_of(0), found, kinds[0]);
  for (const std::string& one : run.exchange("memory of devices", std::to_string(limit)))
    limit = std::min<int64_t>(limit, std::stoll(one));
  return limit;
}

}  // namespace

Devices::Devices(const DeviceRequest& request)
    : plugin_(Plugin::load(request.plugin)),
      run_(request.run),
      own_(own_devices(plugin_->vendor(), request)),
      memory_(share_of_devices(*plugin_, request, own_)),
      client_(make_client(plugin_, request, own_, memory_)),
      tf32_(request.tf32),
      kernels_(request.kernels) {
  if (!plugin_->vendor().has_memory_options && request.places.has("gpu_memory_utilization"))
    warn("{}: gpu_memory_utilization has no effect: plugin {} has no separate device memory",
         request.places.of("gpu_memory_utilization"), plugin_->name());
  count_ = static_cast<int64_t>(client_.devices().size());
  if (request.count > 0) {
    if (request.count > count_)
      throw UserError("device_count or mesh asks for {} devices, but {} has {}", request.count, client_.platform_name(),
                      count_);
    if (run_ != nullptr && request.count < count_)
      throw UserError(
          "device_count or mesh asks for {} devices, but the processes have {} together; with several processes, all "
          "devices take part: ask for {}, or make fewer devices visible to the processes",
          request.count, count_, count_);
    count_ = request.count;
  }
  if (const int64_t limit = smallest_memory(client_, count_); limit > 0)
    memory_.limit = limit;  // the allocator's own limit
  if (run_ != nullptr) memory_.limit = agreed_limit(*run_, client_, memory_.limit);
  if (request.compile_cache != "off")
    cache_.emplace(request.compile_cache.empty() ? cache_folder("compiled")
                                                 : std::filesystem::path(request.compile_cache));
  if (request.require_arithmetic && !on_host()) fettle::require_arithmetic(*this);
}

MeshAxes Devices::flat_mesh() const {
  return count_ > 1 ? MeshAxes{{{"fsdp", count_}}} : MeshAxes{};
}

int64_t Devices::host_count() const {
  return run_ == nullptr ? 1 : run_->host_count();
}

std::string Devices::title() const {
  const DeviceInfo& first = client_.devices()[0];
  const std::string kind = first.kind.empty() ? client_.platform_name() : first.kind;
  return fmt::format("{} ({} device{})", kind, count_, count_ == 1 ? "" : "s");
}

namespace {

UserError no_host_memory(const Client& client) {
  return UserError(
      "offload_optimizer and offload_param need arrays in pinned host memory. Plugin {} does not support such arrays, "
      "or cannot compile programs that use them; remove the keys, or use a newer plugin (`make setup`, `make plugins`)",
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

// Returns the options for compiling the program. With several processes, they limit the time of one execution: after
// this time, the plugin ends the process. Normally Fate ends a hanging process earlier, and prints a table of all
// processes. So the plugin's time is 600 s longer than Fate's.
CompileOptions Devices::options_of(const Program& program) const {
  CompileOptions options{.num_partitions = static_cast<int>(program.mesh().size())};
  if (run_ == nullptr || !plugin_->knows_timeouts()) return options;
  constexpr double kLonger = 600, kMost = 1e9;  // seconds
  for (const std::string_view flag : plugin_->vendor().timeout_flags)
    if (environment("XLA_FLAGS").find(flag) == std::string::npos)
      options.env[std::string(flag)] =
          fmt::format("{:.0f}s", std::min(FateTimes::from_environment().hang, kMost) + kLonger);
  return options;
}

MemoryStats Devices::memory_stats(const Program& program) {
  const std::string text = program.text(tf32_);
  if (const auto stored = stored_by_all(program, text)) return *stored;
  kept_.emplace(text, compile(program, text));
  return kept_->second.memory_stats();
}

bool Devices::all_have(bool here) const {
  if (run_ == nullptr) return here;
  const std::vector<std::string> all = run_->exchange("caches", here ? "1" : "0", Rendezvous::Seconds(86400));
  return std::ranges::all_of(all, [](const std::string& one) { return one == "1"; });
}

// Looks up the program's memory figures in this process's compile cache. Returns nullopt if any process's cache lacks
// the program. In this case, all processes compile the program, because they exchange kernel measurements while they
// compile. Throws UserError when the programs differ.
std::optional<MemoryStats> Devices::stored_by_all(const Program& program, const std::string& text) const {
  const std::optional<MemoryStats> here =
      cache_ ? cache_->memory_stats(client_, text, options_of(program)) : std::nullopt;
  if (run_ == nullptr) return here;
  const std::string digest = ContentKey().add(text).text();
  bool everywhere = true;
  const std::vector<std::string> all =
      run_->exchange("programs", digest + (here ? "1" : "0"), Rendezvous::Seconds(86400));
  for (int other = 0; other < run_->size(); ++other) {
    const std::string& given = all[static_cast<size_t>(other)];
    if (given.substr(0, given.size() - 1) != all[0].substr(0, all[0].size() - 1))
      throw UserError(
          "the program that {} compiles differs from that of {}; every host must have the same program, "
          "recipe, model and devices",
          run_->name_of(other), run_->name_of(0));
    everywhere = everywhere && given.back() == '1';
  }
  return everywhere ? here : std::nullopt;
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
  if (const std::string folder = environment("FETTLE_DUMP"); !folder.empty())
    write_file(std::filesystem::path(folder) / fmt::format("program-{}.mlir", compiled_++), text);
  const Clock::time_point start = Clock::now();
  const auto timed = [&](Executable done, const char* how) {
    debug("program {}: {:.2f} s", how, seconds_since(start));
    return done;
  };
  try {
    if (run_ == nullptr || stored_by_all(program, text)) {
      // The cache may have a file that does not load.
      std::optional<Executable> loaded;
      if (cache_) loaded = cache_->load(client_, text, signature_of(program), options);
      if (all_have(loaded.has_value())) return timed(std::move(*loaded), "taken from the compile cache");
    }
    return timed(cache_ ? cache_->compile_again(client_, text, signature_of(program), options)
                        : client_.compile(text, signature_of(program), options),
                 "compiled");
  } catch (const DeviceError& error) {
    // Plugins from before 2026 have pinned host memory, but they lack the op that moves arrays there, or support this
    // op only with one device.
    const std::string text_of_error = error.what();
    if (text_of_error.find("annotate_device_placement") != std::string::npos) throw no_host_memory(client_);
    for (const auto& [flag, value] : options.env) {
      if (text_of_error.find(flag) == std::string::npos) continue;
      warn("plugin {} does not know the flag {}, so the plugin does not end a program that hangs on a device",
           plugin_->name(), flag);
      plugin_->note_refused_timeouts();
      return compile(program, text);
    }
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
