// The CPU plugin with a profiler, whose profile is a text: how many programs ran between its start and its stop.
// Variables of the environment: PROFILED_PLUGIN is the file of the CPU plugin; PROFILER_FAILS names a function of the
// profiler that fails ("Start").
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

decltype(PJRT_Api::PJRT_LoadedExecutable_Execute) run_program;
int programs, at_start, at_stop;
std::string profile;

PJRT_Error* count_program(PJRT_LoadedExecutable_Execute_Args* args) {
  ++programs;
  return run_program(args);
}

// The first fields of each argument struct are the size and the profiler; those of errors have one more in between.
struct Args {
  size_t struct_size;
  void* first;
  void* second;
};
struct Text {
  size_t struct_size;
  void *priv, *error;
  const char* text;
  size_t size;
};
struct Data {
  size_t struct_size;
  void* profiler;
  const char* bytes;
  size_t size;
};
struct Created {
  size_t struct_size;
  const char* options;
  size_t options_size;
  void* profiler;
};

void* result_of(const char* function) {
  const char* fails = std::getenv("PROFILER_FAILS");
  return fails != nullptr && std::string(fails) == function ? new std::string("as the test asked") : nullptr;
}
void destroy_error(Args* args) {
  delete static_cast<std::string*>(args->second);
}
void message(Text* args) {
  const auto* text = static_cast<const std::string*>(args->error);
  args->text = text->data();
  args->size = text->size();
}
void* code(void*) {
  return nullptr;
}
void* create(Created* args) {
  args->profiler = new int;
  return result_of("Create");
}
void* destroy(Args* args) {
  delete static_cast<int*>(args->first);
  return nullptr;
}
void* start(Args*) {
  at_start = programs;
  return result_of("Start");
}
void* stop(Args*) {
  at_stop = programs;
  return result_of("Stop");
}
void* collect(Data* args) {
  profile = std::to_string(at_stop - at_start) + " programs";
  args->bytes = profile.data();
  args->size = profile.size() + 1;  // XLA's plugins count the zero byte
  return result_of("CollectData");
}

struct Functions {
  size_t struct_size = sizeof(Functions);
  void* priv = nullptr;
  void (*destroy_error)(Args*) = ::destroy_error;
  void (*message)(Text*) = ::message;
  void* (*code)(void*) = ::code;
  void* (*create)(Created*) = ::create;
  void* (*destroy)(Args*) = ::destroy, *(*start)(Args*) = ::start, *(*stop)(Args*) = ::stop;
  void* (*collect)(Data*) = ::collect;
} functions;

struct Extension {
  PJRT_Extension_Base base;
  Functions* functions;
} extension{{sizeof(Extension), PJRT_Extension_Type_Profiler, nullptr}, &functions};

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  void* library = dlopen(std::getenv("PROFILED_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  static std::vector<char> copy(real->struct_size);  // may be larger than this header's PJRT_Api
  std::memcpy(copy.data(), real, copy.size());
  auto* api = reinterpret_cast<PJRT_Api*>(copy.data());
  run_program = api->PJRT_LoadedExecutable_Execute;
  api->PJRT_LoadedExecutable_Execute = count_program;
  extension.base.next = api->extension_start;
  api->extension_start = &extension.base;
  return api;
}
