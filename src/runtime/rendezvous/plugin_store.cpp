#include "runtime/rendezvous/plugin_store.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "pjrt_c_api.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {
namespace {

std::string key_of_plugin(const char* key, size_t size) {
  return "plugin/" + std::string(key, size);
}

PJRT_Error* fault_for(PJRT_CallbackError* make, PJRT_Error_Code code, const std::string& message) {
  return (*make)(code, message.data(), message.size());
}

// Plugins do not initialise struct_size of these arguments, so it is not checked.
template <typename Args>
void give(const std::string& value, Args& args) {
  args.value = static_cast<char*>(std::malloc(std::max<size_t>(value.size(), 1)));
  std::memcpy(args.value, value.data(), value.size());
  args.value_size = value.size();
  args.value_deleter_callback = [](char* given) { std::free(given); };
}

PJRT_Error* get_for_plugin(PJRT_KeyValueGetCallback_Args* args) {
  try {
    const std::string key = key_of_plugin(args->key, args->key_size);
    const Rendezvous::Seconds wait(args->timeout_in_ms / 1000.0);
    const auto value = static_cast<Rendezvous*>(args->user_arg)->get(key, wait);
    if (!value)
      return fault_for(args->callback_error, PJRT_Error_Code_DEADLINE_EXCEEDED,
                       fmt::format("no process gave '{}' within {:.0f} s", key, wait.count()));
    give(*value, *args);
    return nullptr;
  } catch (const Error& error) {
    return fault_for(args->callback_error, PJRT_Error_Code_UNAVAILABLE, error.what());
  }
}

PJRT_Error* try_get_for_plugin(PJRT_KeyValueTryGetCallback_Args* args) {
  try {
    const std::string key = key_of_plugin(args->key, args->key_size);
    const auto value = static_cast<Rendezvous*>(args->user_arg)->try_get(key);
    if (!value) return fault_for(args->callback_error, PJRT_Error_Code_NOT_FOUND, "nobody has put " + key);
    give(*value, *args);
    return nullptr;
  } catch (const Error& error) {
    return fault_for(args->callback_error, PJRT_Error_Code_UNAVAILABLE, error.what());
  }
}

PJRT_Error* put_for_plugin(PJRT_KeyValuePutCallback_Args* args) {
  try {
    static_cast<Rendezvous*>(args->user_arg)
        ->put(key_of_plugin(args->key, args->key_size), std::string(args->value, args->value_size));
    return nullptr;
  } catch (const Error& error) {
    return fault_for(args->callback_error, PJRT_Error_Code_UNAVAILABLE, error.what());
  }
}

}  // namespace

void offer_store(Rendezvous& run, PJRT_Client_Create_Args& args) {
  // The plugin ignores the store unless all three callbacks are set.
  args.kv_get_callback = get_for_plugin;
  args.kv_get_user_arg = &run;
  args.kv_try_get_callback = try_get_for_plugin;
  args.kv_try_get_user_arg = &run;
  args.kv_put_callback = put_for_plugin;
  args.kv_put_user_arg = &run;
}

}  // namespace fettle
