// Registers FFI handlers: our own functions that a program calls by name (stablehlo.custom_call, api_version 4).
#pragma once

#include <string>

#include "runtime/vendors/plugin.h"
#include "xla/ffi/api/c_api.h"

namespace fettle {

// Calls Handler, and answers the plugin's version question with FFI 0.1, the oldest, which every plugin takes: a
// handler built with newer headers than the plugin's is otherwise dropped without an error.
template <XLA_FFI_Handler* Handler>
XLA_FFI_Error* ffi_handler_of_any_version(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = Handler(frame);
  for (XLA_FFI_Extension_Base* e = frame->extension_start; e != nullptr; e = e->next) {
    if (e->type != XLA_FFI_Extension_Metadata) continue;
    reinterpret_cast<XLA_FFI_Metadata_Extension*>(e)->metadata->api_version.minor_version = 1;
  }
  return error;
}

// True when the plugin takes handlers at all.
bool has_ffi(const Plugin& plugin);

// Registers `handler` under `name` for the plugin's platform, for the whole process, before compiling. The same pair
// again is no-op. Throws DeviceError when the plugin has no FFI extension or refuses, InternalError on a name taken by
// another. Thread-safe.
void register_ffi_handler(const Plugin& plugin, const std::string& name, XLA_FFI_Handler* handler);

// As register_ffi_handler<kMyHandler>(plugin, "my_handler"). Handlers of several devices run at the same time, in
// different threads; unknown calls cannot be partitioned, so keep them inside sdy.manual_computation.
template <XLA_FFI_Handler* Handler>
void register_ffi_handler(const Plugin& plugin, const std::string& name) {
  register_ffi_handler(plugin, name, &ffi_handler_of_any_version<Handler>);
}

}  // namespace fettle
