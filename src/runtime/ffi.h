// Registers FFI handlers: functions of Fettle that a program calls by name (stablehlo.custom_call, api_version 4).
#pragma once

#include <string>

#include "runtime/vendors/plugin.h"
#include "xla/ffi/api/c_api.h"

namespace fettle {

// Calls Handler. When the plugin asks for the handler's FFI version, reports 0.1, the oldest version, which every
// plugin accepts. Plugins silently ignore a handler that reports a newer version than their own.
template <XLA_FFI_Handler* Handler>
XLA_FFI_Error* ffi_handler_of_any_version(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = Handler(frame);
  for (XLA_FFI_Extension_Base* e = frame->extension_start; e != nullptr; e = e->next) {
    if (e->type != XLA_FFI_Extension_Metadata) continue;
    reinterpret_cast<XLA_FFI_Metadata_Extension*>(e)->metadata->api_version.minor_version = 1;
  }
  return error;
}

// Returns true when the plugin supports FFI handlers.
bool has_ffi(const Plugin& plugin);

// Registers `handler` as `name` on the plugin's platform, for the whole process. Call it before compiling. A second
// registration of the same handler under the same name does nothing. Throws DeviceError when the plugin has no FFI
// extension or rejects the handler, and InternalError when another handler has this name. Thread-safe.
void register_ffi_handler(const Plugin& plugin, const std::string& name, XLA_FFI_Handler* handler);

// Example: register_ffi_handler<kMyHandler>(plugin, "my_handler"). Handlers run at the same time in different threads,
// one for each device. The partitioner cannot split custom calls, so put each call inside an sdy.manual_computation.
template <XLA_FFI_Handler* Handler>
void register_ffi_handler(const Plugin& plugin, const std::string& name) {
  register_ffi_handler(plugin, name, &ffi_handler_of_any_version<Handler>);
}

}  // namespace fettle
