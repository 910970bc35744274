// The PJRT C API for the bodies of this folder: argument structs, errors, events. No public header includes this.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/arrays/shape.h"
#include "pjrt_c_api.h"

// Declares a zeroed argument struct that tells the plugin which header we were built with.
#define PJRT_ARGS(Type, variable) \
  Type variable{};                \
  variable.struct_size = Type##_STRUCT_SIZE

// Calls api.Function(&arguments) and throws on an error, naming the function.
#define PJRT_CALL(api, Function, arguments) ::fettle::pjrt::check((api), (api).Function(&(arguments)), #Function)

namespace fettle::pjrt {

// Reads and destroys `error`. Throws DeviceError with the call, the code and the message, or DoesNotFit when the code
// is RESOURCE_EXHAUSTED; returns when `error` is null.
void check(const PJRT_Api& api, PJRT_Error* error, const char* call);
// Reads and destroys `error`; "" when it is null, else "CODE: message".
std::string take(const PJRT_Api& api, PJRT_Error* error);

// Waits for `event` (may be null), destroys it and throws its error as check() does.
void await(const PJRT_Api& api, PJRT_Event* event, const char* call);
// Keeps `alive` until `event` (may be null) is ready, then lets it go from the plugin's thread. Destroys the event.
void keep_until(const PJRT_Api& api, PJRT_Event* event, std::shared_ptr<void> alive);

// Values that refer to `name` and `value`, which must outlive them.
PJRT_NamedValue named_value(std::string_view name, std::string_view value);
PJRT_NamedValue named_value(std::string_view name, int64_t value);
PJRT_NamedValue named_value(std::string_view name, float value);
PJRT_NamedValue named_value(std::string_view name, bool value);
PJRT_NamedValue named_value(std::string_view name, const char*) = delete;  // would be taken for a bool

PJRT_Program mlir_program(const std::string& module_text);

PJRT_Buffer_Type buffer_type(DType dtype);
DType dtype_of(PJRT_Buffer_Type type);  // throws DeviceError on a type that DType lacks

}  // namespace fettle::pjrt
