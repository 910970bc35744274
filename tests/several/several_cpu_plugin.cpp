// A PJRT plugin that lets several processes train together on the CPU. Only for tests: it is slow.
//
// It passes all calls to the CPU plugin in $FETTLE_INNER_PLUGIN, whose client has the devices of all processes. Each
// process sees only its own devices as local. At a launch, the processes exchange the bytes of all arguments that they
// uploaded, through the store of the run. Then each process runs the whole program on all devices of its client. So the
// results are those of one process with all devices, to the bit. If a process uploads wrong bytes, the results of all
// processes are wrong, as in a real run.
//
// SEVERAL_RECORD: a folder, which gets each program of a single process with the bytes of its first launch: N.mlir, and
// for each device D the argument N-in-A-D and the result N-out-R-D. tests/reference/gloo.py runs them. SEVERAL_HANG: a
// file; when it exists, the next launch of the process whose number it contains never ends.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "pjrt_c_api.h"

namespace {

#define ARGS(Type, name) \
  Type name{};           \
  name.struct_size = Type##_STRUCT_SIZE

const PJRT_Api* inner = nullptr;
PJRT_Api outer;
int64_t rank = 0, processes = 1, each = 1;  // `each`: devices of one process
PJRT_Client* client = nullptr;
PJRT_Client_Create_Args store;  // arguments of Fettle's call, with the callbacks of the store
std::mutex mutex;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "several_cpu_plugin, process %d: %s\n", static_cast<int>(rank), what.c_str());
  std::_Exit(70);
}

void check(PJRT_Error* error, const char* what) {
  if (error == nullptr) return;
  ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  inner->PJRT_Error_Message(&message);
  die(std::string(what) + ": " + std::string(message.message, message.message_size));
}

PJRT_Error* store_error(PJRT_Error_Code, const char* message, size_t size) {
  // The store disappears when the run ends. Then Fettle's watching thread ends this process, so this thread waits for
  // that.
  std::this_thread::sleep_for(std::chrono::seconds(30));
  die("the store: " + std::string(message, size));
}
PJRT_CallbackError on_store_error = store_error;

void put(const std::string& key, const std::string& value) {
  if (processes == 1) return;
  ARGS(PJRT_KeyValuePutCallback_Args, args);
  args.key = key.data(), args.key_size = key.size();
  args.value = value.data(), args.value_size = value.size();
  args.callback_error = &on_store_error, args.user_arg = store.kv_put_user_arg;
  store.kv_put_callback(&args);
}

std::string get(const std::string& key) {
  ARGS(PJRT_KeyValueGetCallback_Args, args);
  args.key = key.data(), args.key_size = key.size();
  args.timeout_in_ms = 600'000;
  args.callback_error = &on_store_error, args.user_arg = store.kv_get_user_arg;
  store.kv_get_callback(&args);
  std::string value(args.value, args.value_size);
  args.value_deleter_callback(args.value);
  return value;
}

void destroy(PJRT_Buffer* buffer) {
  ARGS(PJRT_Buffer_Destroy_Args, args);
  args.buffer = buffer;
  check(inner->PJRT_Buffer_Destroy(&args), "PJRT_Buffer_Destroy");
}

void await(PJRT_Event* event) {
  ARGS(PJRT_Event_Await_Args, args);
  args.event = event;
  check(inner->PJRT_Event_Await(&args), "PJRT_Event_Await");
}

void destroy(PJRT_Event* event) {
  ARGS(PJRT_Event_Destroy_Args, args);
  args.event = event;
  check(inner->PJRT_Event_Destroy(&args), "PJRT_Event_Destroy");
}

// The buffers of one array on all devices, in the order of the inner client's devices. The object owns the buffers that
// stand for other processes' parts.
struct Array {
  std::vector<PJRT_Buffer*> buffers;
  ~Array() {
    for (size_t i = 0; i < buffers.size(); ++i)
      if (static_cast<int64_t>(i) / each != rank && buffers[i] != nullptr) destroy(buffers[i]);
  }
};
std::map<PJRT_Buffer*, std::shared_ptr<Array>> arrays;  // keys: the buffers of this process

std::vector<PJRT_Device*> inner_devices() {
  ARGS(PJRT_Client_AddressableDevices_Args, args);
  args.client = client;
  check(inner->PJRT_Client_AddressableDevices(&args), "PJRT_Client_AddressableDevices");
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

std::vector<PJRT_Device*> own_devices;

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  store = *args;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "node_id") rank = option.int64_value;
    if (name == "num_nodes") processes = option.int64_value;
    if (name == "cpu_device_count") each = option.int64_value;
  }
  ARGS(PJRT_NamedValue, count);
  count.name = "cpu_device_count", count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64, count.int64_value = each * processes, count.value_size = 1;
  args->create_options = &count, args->num_options = 1;
  PJRT_Error* const error = inner->PJRT_Client_Create(args);
  client = args->client;
  if (error != nullptr) return error;
  const std::vector<PJRT_Device*> all = inner_devices();
  own_devices.assign(all.begin() + rank * each, all.begin() + (rank + 1) * each);
  // As in real plugins, creating the client fails if a process is missing.
  put("topology/" + std::to_string(rank), "here");
  for (int64_t other = 0; processes > 1 && other < processes; ++other) get("topology/" + std::to_string(other));
  return nullptr;
}

PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = own_devices.data();
  args->num_addressable_devices = own_devices.size();
  return nullptr;
}

PJRT_Error* process_index(PJRT_Client_ProcessIndex_Args* args) {
  args->process_index = static_cast<int>(rank);
  return nullptr;
}

PJRT_Error* process_of_device(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  ARGS(PJRT_DeviceDescription_Id_Args, id);
  id.device_description = args->device_description;
  check(inner->PJRT_DeviceDescription_Id(&id), "PJRT_DeviceDescription_Id");
  args->process_index = static_cast<int>(id.id / each);
  return nullptr;
}

// Returns the positions in inner_devices() of the devices on which the inner program runs, in the order of its
// arguments.
std::vector<size_t> positions_of(PJRT_LoadedExecutable* executable) {
  ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, args);
  args.executable = executable;
  check(inner->PJRT_LoadedExecutable_AddressableDevices(&args), "PJRT_LoadedExecutable_AddressableDevices");
  const std::vector<PJRT_Device*> all = inner_devices();
  std::vector<size_t> positions;
  for (size_t i = 0; i < args.num_addressable_devices; ++i)
    for (size_t at = 0; at < all.size(); ++at)
      if (all[at] == args.addressable_devices[i]) positions.push_back(at);
  return positions;
}

bool is_own(size_t position) {
  return static_cast<int64_t>(position) / each == rank;
}

std::map<PJRT_LoadedExecutable*, std::vector<PJRT_Device*>> launch_devices;

PJRT_Error* program_devices(PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  const std::lock_guard lock(mutex);
  const std::vector<PJRT_Device*> all = inner_devices();
  std::vector<PJRT_Device*>& own = launch_devices[args->executable];
  own.clear();
  for (const size_t position : positions_of(args->executable))
    if (is_own(position)) own.push_back(all[position]);
  args->addressable_devices = own.data();
  args->num_addressable_devices = own.size();
  return nullptr;
}

struct Bytes {
  std::string data;
  std::vector<int64_t> dims;
  PJRT_Buffer_Type type;
};

Bytes read(PJRT_Buffer* buffer) {
  Bytes out;
  ARGS(PJRT_Buffer_ElementType_Args, type);
  type.buffer = buffer;
  check(inner->PJRT_Buffer_ElementType(&type), "PJRT_Buffer_ElementType");
  out.type = type.type;
  ARGS(PJRT_Buffer_Dimensions_Args, dims);
  dims.buffer = buffer;
  check(inner->PJRT_Buffer_Dimensions(&dims), "PJRT_Buffer_Dimensions");
  out.dims.assign(dims.dims, dims.dims + dims.num_dims);
  ARGS(PJRT_Buffer_ToHostBuffer_Args, size);
  size.src = buffer;
  check(inner->PJRT_Buffer_ToHostBuffer(&size), "PJRT_Buffer_ToHostBuffer");
  out.data.resize(size.dst_size);
  if (out.data.empty()) return out;
  ARGS(PJRT_Buffer_ToHostBuffer_Args, args);
  args.src = buffer, args.dst = out.data.data(), args.dst_size = out.data.size();
  check(inner->PJRT_Buffer_ToHostBuffer(&args), "PJRT_Buffer_ToHostBuffer");
  await(args.event);
  destroy(args.event);
  return out;
}

PJRT_Buffer* upload(const Bytes& like, const std::string& data, PJRT_Device* device) {
  ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client, args.data = data.data(), args.type = like.type;
  args.dims = like.dims.data(), args.num_dims = like.dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device;
  check(inner->PJRT_Client_BufferFromHostBuffer(&args), "PJRT_Client_BufferFromHostBuffer");
  await(args.done_with_host_buffer);
  destroy(args.done_with_host_buffer);
  return args.buffer;
}

// Returns the array on all devices. `own` has this process's buffers of the array.
std::shared_ptr<Array> complete(const std::vector<PJRT_Buffer*>& own, const std::string& key) {
  if (const auto known = arrays.find(own[0]); known != arrays.end()) return known->second;
  const std::vector<PJRT_Device*> all = inner_devices();
  const auto array = std::make_shared<Array>();
  array->buffers.resize(all.size(), nullptr);
  Bytes like;
  for (size_t i = 0; i < own.size(); ++i) {
    like = read(own[i]);
    const size_t position = static_cast<size_t>(rank * each) + i;
    array->buffers[position] = own[i];
    put(key + "/" + std::to_string(position), like.data);
  }
  for (size_t position = 0; position < all.size(); ++position) {
    if (is_own(position)) continue;
    const std::string data = get(key + "/" + std::to_string(position));
    if (data.size() != like.data.size()) die(key + ": the processes gave parts of different sizes");
    array->buffers[position] = upload(like, data, all[position]);
  }
  for (PJRT_Buffer* const buffer : own) arrays[buffer] = array;
  return array;
}

std::map<PJRT_LoadedExecutable*, std::string> texts;  // the programs' texts, kept only if they are recorded

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  PJRT_Error* const error = inner->PJRT_Client_Compile(args);
  if (error == nullptr && std::getenv("SEVERAL_RECORD") != nullptr) {
    const std::lock_guard lock(mutex);
    texts[args->executable] = std::string(args->program->code, args->program->code_size);
  }
  return error;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) die("cannot write " + path);
  std::fclose(file);
}

// Writes a program before its first launch, and returns how the names of its files begin; "" for other launches.
std::string record_program(PJRT_LoadedExecutable* executable) {
  static int count = 0;
  const auto found = texts.find(executable);
  if (found == texts.end()) return "";
  const std::string name = std::string(std::getenv("SEVERAL_RECORD")) + "/" + std::to_string(count++);
  write_file(name + ".mlir", found->second);
  texts.erase(found);
  return name;
}

void hang_if_told() {
  const char* const path = std::getenv("SEVERAL_HANG");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) return;
  int process = 0;
  const bool told = std::fscanf(file, "%d", &process) == 1 && process == getpid();
  std::fclose(file);
  while (told) pause();
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  static int64_t launch = 0;
  const std::lock_guard lock(mutex);
  hang_if_told();
  const std::string name = "launch/" + std::to_string(launch++);
  const std::vector<size_t> positions = positions_of(args->executable);
  if (positions.size() != static_cast<size_t>(each * processes)) die("a program for some of the devices");
  std::vector<size_t> own;  // positions of this process's devices in the launch
  for (size_t i = 0; i < positions.size(); ++i)
    if (is_own(positions[i])) own.push_back(i);

  ARGS(PJRT_LoadedExecutable_GetExecutable_Args, got);
  got.loaded_executable = args->executable;
  check(inner->PJRT_LoadedExecutable_GetExecutable(&got), "PJRT_LoadedExecutable_GetExecutable");
  ARGS(PJRT_Executable_NumOutputs_Args, outputs);
  outputs.executable = got.executable;
  check(inner->PJRT_Executable_NumOutputs(&outputs), "PJRT_Executable_NumOutputs");
  ARGS(PJRT_Executable_Destroy_Args, done);
  done.executable = got.executable;
  check(inner->PJRT_Executable_Destroy(&done), "PJRT_Executable_Destroy");

  std::vector<std::vector<PJRT_Buffer*>> in(positions.size()), out(positions.size());
  std::vector<std::shared_ptr<Array>> held;
  for (size_t a = 0; a < args->num_args; ++a) {
    std::vector<PJRT_Buffer*> parts(static_cast<size_t>(each));
    for (size_t i = 0; i < own.size(); ++i)
      parts[positions[own[i]] - static_cast<size_t>(rank * each)] = args->argument_lists[i][a];
    const auto array = complete(parts, name + "/" + std::to_string(a));
    held.push_back(array);
    for (size_t i = 0; i < positions.size(); ++i) in[i].push_back(array->buffers[positions[i]]);
  }
  const std::string record = record_program(args->executable);
  if (!record.empty())
    for (size_t i = 0; i < in.size(); ++i)
      for (size_t a = 0; a < in[i].size(); ++a)
        write_file(record + "-in-" + std::to_string(a) + "-" + std::to_string(i), read(in[i][a]).data);
  std::vector<PJRT_Buffer* const*> in_lists;
  std::vector<PJRT_Buffer**> out_lists;
  for (size_t i = 0; i < positions.size(); ++i) {
    out[i].resize(outputs.num_outputs);
    in_lists.push_back(in[i].data());
    out_lists.push_back(out[i].data());
  }
  std::vector<PJRT_Event*> events(positions.size());
  PJRT_LoadedExecutable_Execute_Args all = *args;
  all.argument_lists = in_lists.data(), all.output_lists = out_lists.data();
  all.num_devices = positions.size(), all.device_complete_events = events.data();
  if (PJRT_Error* const error = inner->PJRT_LoadedExecutable_Execute(&all)) return error;
  for (PJRT_Event* const event : events) await(event);
  if (!record.empty())
    for (size_t i = 0; i < out.size(); ++i)
      for (size_t o = 0; o < out[i].size(); ++o)
        write_file(record + "-out-" + std::to_string(o) + "-" + std::to_string(i), read(out[i][o]).data);
  for (size_t i = 0, next = 0; i < positions.size(); ++i) {
    if (!is_own(positions[i]) || args->device_complete_events == nullptr)
      destroy(events[i]);
    else
      args->device_complete_events[next++] = events[i];
  }
  for (size_t o = 0; o < outputs.num_outputs; ++o) {
    const auto array = std::make_shared<Array>();
    array->buffers.resize(positions.size());
    for (size_t i = 0; i < positions.size(); ++i) array->buffers[positions[i]] = out[i][o];
    for (size_t i = 0; i < own.size(); ++i) {
      args->output_lists[i][o] = out[own[i]][o];
      arrays[out[own[i]][o]] = array;
    }
  }
  return nullptr;
}

PJRT_Error* destroy_buffer(PJRT_Buffer_Destroy_Args* args) {
  const std::lock_guard lock(mutex);
  arrays.erase(args->buffer);
  return inner->PJRT_Buffer_Destroy(args);
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  if (inner != nullptr) return &outer;
  const char* const file = std::getenv("FETTLE_INNER_PLUGIN");
  if (file == nullptr) die("FETTLE_INNER_PLUGIN is not set");
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) die(dlerror());
  inner = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  std::memcpy(&outer, inner, std::min(sizeof outer, inner->struct_size));
  outer.PJRT_Client_Create = create;
  outer.PJRT_Client_AddressableDevices = addressable_devices;
  outer.PJRT_Client_ProcessIndex = process_index;
  outer.PJRT_DeviceDescription_ProcessIndex = process_of_device;
  outer.PJRT_LoadedExecutable_AddressableDevices = program_devices;
  outer.PJRT_Client_Compile = compile;
  outer.PJRT_LoadedExecutable_Execute = execute;
  outer.PJRT_Buffer_Destroy = destroy_buffer;
  return &outer;
}
