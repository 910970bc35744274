#include "runtime/ffi.h"

#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "runtime/pjrt.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

// Declares the needed part of pjrt_c_api_ffi_extension.h. This part is the same in PJRT API 0.81 to 0.116.
struct RegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  uint32_t traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs* args);
};
constexpr size_t kRegisterHandlerArgsSize = offsetof(RegisterHandlerArgs, traits) + sizeof(uint32_t);

const FfiExtension* find_extension(const Plugin& plugin) {
  return reinterpret_cast<const FfiExtension*>(pjrt::find_extension(plugin.api(), PJRT_Extension_Type_FFI));
}

}  // namespace

bool has_ffi(const Plugin& plugin) {
  return find_extension(plugin) != nullptr && !plugin.vendor().ffi_platform.empty();
}

void register_ffi_handler(const Plugin& plugin, const std::string& name, XLA_FFI_Handler* handler) {
  if (!has_ffi(plugin))
    throw DeviceError("plugin {} cannot call functions of Fettle (it has no FFI extension)", plugin.name());
  static std::mutex mutex;
  static std::map<std::pair<const Plugin*, std::string>, XLA_FFI_Handler*> registered;
  const std::lock_guard lock(mutex);
  const auto [known, added] = registered.emplace(std::pair(&plugin, name), handler);
  internal_check(known->second == handler, "two different functions are registered as FFI handler \"{}\"", name);
  if (!added) return;
  const std::string_view platform = plugin.vendor().ffi_platform;
  RegisterHandlerArgs args{};
  args.struct_size = kRegisterHandlerArgsSize;
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = reinterpret_cast<void*>(handler);
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  try {
    pjrt::check(plugin.api(), find_extension(plugin)->register_handler(&args), "PJRT_FFI_Register_Handler");
  } catch (const Error&) {
    registered.erase(known);
    throw;
  }
}

}  // namespace fettle
