#include "runtime/profiler.h"

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "runtime/pjrt.h"

namespace fettle {
namespace {

// Declares the needed parts of xla/backends/profiler/plugin/profiler_c_api.h and of
// xla/pjrt/c/pjrt_c_api_profiler_extension.h. They are the same in PJRT API 0.81 to 0.116.
struct PluginProfiler;  // PLUGIN_Profiler
struct PluginError;     // PLUGIN_Profiler_Error

struct ErrorDestroyArgs {
  size_t struct_size;
  void* priv;
  PluginError* error;
};
struct ErrorMessageArgs {
  size_t struct_size;
  void* priv;
  const PluginError* error;
  const char* message;
  size_t message_size;
};
struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  PluginProfiler* profiler;
};
struct ProfilerArgs {  // of Destroy, Start and Stop
  size_t struct_size;
  PluginProfiler* profiler;
};
struct CollectDataArgs {
  size_t struct_size;
  PluginProfiler* profiler;
  uint8_t* buffer;  // null: the plugin sets it to its own memory, or only sets buffer_size
  size_t buffer_size;
};
struct ProfilerApi {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(ErrorDestroyArgs*);
  void (*error_message)(ErrorMessageArgs*);
  PluginError* (*error_get_code)(void*);
  PluginError* (*create)(CreateArgs*);
  PluginError* (*destroy)(ProfilerArgs*);
  PluginError* (*start)(ProfilerArgs*);
  PluginError* (*stop)(ProfilerArgs*);
  PluginError* (*collect_data)(CollectDataArgs*);
};
struct ProfilerExtension {
  PJRT_Extension_Base base;
  const ProfilerApi* api;
};

// A serialised tensorflow.ProfileOptions (tsl/profiler/protobuf/profiler_options.proto): host_tracer_level 1,
// device_tracer_level 1, version 1, enable_hlo_proto true.
constexpr std::string_view kOptions = "\x10\x01\x18\x01\x28\x01\x38\x01";

const ProfilerApi* find_api(const Plugin& plugin) {
  const PJRT_Extension_Base* extension = pjrt::find_extension(plugin.api(), PJRT_Extension_Type_Profiler);
  return extension == nullptr ? nullptr : reinterpret_cast<const ProfilerExtension*>(extension)->api;
}

void check(const ProfilerApi& api, PluginError* error, std::string_view call) {
  if (error == nullptr) return;
  ErrorMessageArgs text{.struct_size = sizeof text, .error = error};
  api.error_message(&text);
  const std::string message(text.message, text.message_size);
  ErrorDestroyArgs destroy{.struct_size = sizeof destroy, .error = error};
  api.error_destroy(&destroy);
  throw DeviceError("PLUGIN_Profiler_{} failed: {}", call, message);
}

}  // namespace

struct Profiler::Session {
  const ProfilerApi& api;
  PluginProfiler* profiler;
  bool recording = false;

  Session(const ProfilerApi& functions, PluginProfiler* created) : api(functions), profiler(created) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    try {
      if (recording) stop();
      ProfilerArgs args{sizeof args, profiler};
      check(api, api.destroy(&args), "Destroy");
    } catch (const DeviceError&) {  // the profile is lost anyway
    }
  }
  void start() {
    ProfilerArgs args{sizeof args, profiler};
    check(api, api.start(&args), "Start");
    recording = true;
  }
  void stop() {
    recording = false;
    ProfilerArgs args{sizeof args, profiler};
    check(api, api.stop(&args), "Stop");
  }
};

bool can_profile(const Plugin& plugin) {
  return find_api(plugin) != nullptr;
}

Profiler::Profiler(const Plugin& plugin) {
  const ProfilerApi* api = find_api(plugin);
  if (api == nullptr) throw DeviceError("plugin {} cannot record profiles", plugin.name());
  CreateArgs args{sizeof args, kOptions.data(), kOptions.size(), nullptr};
  check(*api, api->create(&args), "Create");
  session_ = std::make_unique<Session>(*api, args.profiler);
  session_->start();
}

Profiler::~Profiler() = default;

std::string Profiler::finish() {
  session_->stop();
  const ProfilerApi& api = session_->api;
  CollectDataArgs args{sizeof args, session_->profiler, nullptr, 0};
  check(api, api.collect_data(&args), "CollectData");
  std::string profile;
  if (args.buffer != nullptr) {
    profile.assign(reinterpret_cast<const char*>(args.buffer), args.buffer_size);
    // XLA's plugins count a zero byte after the profile, which is no part of it.
    if (!profile.empty() && profile.back() == '\0') profile.pop_back();
  } else {
    profile.resize(args.buffer_size);
    args.buffer = reinterpret_cast<uint8_t*>(profile.data());
    check(api, api.collect_data(&args), "CollectData");
  }
  return profile;
}

}  // namespace fettle
