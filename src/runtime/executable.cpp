#include "runtime/executable.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "runtime/client.h"
#include "runtime/handles.h"

namespace fettle {
namespace {

PJRT_Executable* executable_of(const PJRT_Api& api, PJRT_LoadedExecutable* loaded) {
  PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, args);
  args.loaded_executable = loaded;
  PJRT_CALL(api, PJRT_LoadedExecutable_GetExecutable, args);
  return args.executable;
}

// Returns the ordinals of the devices in the order in which Execute expects the devices' arguments.
std::vector<int> launch_ordinals(const ClientHandle& client, PJRT_LoadedExecutable* loaded) {
  PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, args);
  args.executable = loaded;
  PJRT_CALL(client.api(), PJRT_LoadedExecutable_AddressableDevices, args);
  std::vector<int> ordinals;
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    ordinals.push_back(client.ordinal_of(args.addressable_devices[i]));
  }
  return ordinals;
}

bool same_kind(const std::string& a, const std::string& b) {
  return (a.empty() ? "device" : a) == (b.empty() ? "device" : b);
}

void check_outputs(const Signature& signature, const std::vector<Shape>& actual) {
  internal_check(actual.size() == signature.outputs.size(), "the program has {} results, but its signature has {}",
                 actual.size(), signature.outputs.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const ArgInfo& wanted = signature.outputs[i];
    const Shape shard{wanted.shape.dtype, wanted.layout.boxes[0].size};
    internal_check(actual[i] == shard, "result {} ({}): the compiler made shards of {}, but the signature says {}", i,
                   wanted.name, actual[i].to_string(), shard.to_string());
  }
}

}  // namespace

Executable::Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded)
    : client_(std::move(client)), loaded_(loaded) {}

// Delegates to the private constructor, so that the destructor frees `loaded` when a check below throws.
Executable::Executable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* loaded, Signature signature)
    : Executable(std::move(client), loaded) {
  signature_ = std::move(signature);
  program_ = std::make_unique<CompiledProgram>(client_->plugin, executable_of(client_->api(), loaded_));
  const std::vector<int> ordinals = launch_ordinals(*client_, loaded_);
  for (const auto* infos : {&signature_.inputs, &signature_.outputs}) {
    for (const ArgInfo& info : *infos) check_layout(info.shape, info.layout, info.name);
  }
  check_outputs(signature_, program_->output_shapes());
  // All layouts must list the same devices in the same order, so that a position always means the same device.
  const auto& infos = signature_.inputs.empty() ? signature_.outputs : signature_.inputs;
  for (int ordinal : ordinals) {
    int position = 0;
    while (!infos.empty() && position < infos[0].layout.count() && infos[0].layout.ordinal(position) != ordinal) {
      ++position;
    }
    launch_order_.push_back(position);
  }
  for (const auto* list : {&signature_.inputs, &signature_.outputs}) {
    for (const ArgInfo& info : *list) {
      int here = 0;
      for (int position = 0; position < info.layout.count(); ++position)
        here += client_->is_local(info.layout.ordinal(position)) ? 1 : 0;
      internal_check(here == static_cast<int>(ordinals.size()), "{} is on {} devices, but the program runs on {}",
                     info.name, here, ordinals.size());
      for (size_t i = 0; i < ordinals.size(); ++i) {
        internal_check(launch_order_[i] < info.layout.count() && info.layout.ordinal(launch_order_[i]) == ordinals[i],
                       "{}: its layout has other devices than the program, or another order", info.name);
      }
    }
  }
}

Executable::~Executable() {
  latest_.reset();  // waits for the latest execution, except when output buffers still share `latest_`
  if (loaded_ == nullptr) return;
  PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, args);
  args.executable = loaded_;
  pjrt::take(client_->api(), client_->api().PJRT_LoadedExecutable_Destroy(&args));
}

Executable::Executable(Executable&& other) noexcept {
  *this = std::move(other);
}

Executable& Executable::operator=(Executable&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(loaded_, other.loaded_);
  std::swap(program_, other.program_);
  std::swap(signature_, other.signature_);
  std::swap(stats_, other.stats_);
  std::swap(launch_order_, other.launch_order_);
  std::swap(latest_, other.latest_);
  return *this;
}

void Executable::check_arguments(const std::vector<DeviceBuffer*>& arguments) const {
  internal_check(arguments.size() == signature_.inputs.size(), "run: {} arguments given, but the program takes {}",
                 arguments.size(), signature_.inputs.size());
  std::set<const DeviceBuffer*> seen, donated;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArgInfo& wanted = signature_.inputs[i];
    const DeviceBuffer* given = arguments[i];
    const auto require = [&](bool condition, const std::string& what) {
      internal_check(condition, "run: argument {} ({}): {}", i, wanted.name, what);
    };
    require(given != nullptr && !given->empty(), "no buffer given");
    require(given->client() == client_, "the buffer belongs to another client");
    require(given->shape() == wanted.shape,
            fmt::format("found {}, wanted {}", given->shape().to_string(), wanted.shape.to_string()));
    require(given->layout() == wanted.layout, "its layout differs from the program's");
    require(same_kind(given->memory_kind(), wanted.memory_kind),
            fmt::format("the buffer is in memory \"{}\", wanted \"{}\"", given->memory_kind(), wanted.memory_kind));
    require(!given->is_deleted(), "the buffer is deleted (was it donated to an earlier run?)");
    const bool again = !seen.insert(given).second;
    if (wanted.donated) donated.insert(given);
    require(!again || !donated.contains(given), "the buffer is donated, but is given twice");
  }
}

std::vector<DeviceBuffer> Executable::run(const std::vector<DeviceBuffer*>& arguments) const {
  check_arguments(arguments);
  const size_t devices = launch_order_.size(), results = signature_.outputs.size();
  std::vector<std::vector<PJRT_Buffer*>> inputs(devices), outputs(devices, std::vector<PJRT_Buffer*>(results));
  std::vector<PJRT_Buffer* const*> input_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t d = 0; d < devices; ++d) {
    for (const DeviceBuffer* argument : arguments) inputs[d].push_back(argument->shard(launch_order_[d]));
    input_lists.push_back(inputs[d].data());
    output_lists.push_back(outputs[d].data());
  }
  // The signature alone decides which arguments are donated, even when the module text allows more.
  std::vector<int64_t> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!signature_.inputs[i].donated) kept.push_back(static_cast<int64_t>(i));
  }
  std::vector<PJRT_Event*> events(devices, nullptr);
  PJRT_ARGS(PJRT_ExecuteOptions, options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  // A launch must have the same id in all processes. Each process counts its launches. All processes launch the same
  // programs in the same order, so the ids are equal.
  if (client_->local_count < static_cast<int>(client_->devices.size())) options.launch_id = ++client_->launches;
  PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = input_lists.data();
  args.num_devices = devices;
  args.num_args = arguments.size();
  args.output_lists = output_lists.data();
  args.device_complete_events = events.data();
  PJRT_CALL(client_->api(), PJRT_LoadedExecutable_Execute, args);

  const auto launch = std::make_shared<const Launch>(client_, std::move(events));
  latest_ = launch;
  std::vector<DeviceBuffer> made;
  for (size_t i = 0; i < results; ++i) {
    const ArgInfo& info = signature_.outputs[i];
    std::vector<PJRT_Buffer*> shards(static_cast<size_t>(info.layout.count()), nullptr);
    for (size_t d = 0; d < devices; ++d) shards[launch_order_[d]] = outputs[d][i];
    made.emplace_back(client_, info.shape, info.layout, info.memory_kind, std::move(shards), launch);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (signature_.inputs[i].donated) arguments[i]->release();
  }
  return made;
}

void Executable::wait() const {
  if (latest_) latest_->wait();
}

}  // namespace fettle
