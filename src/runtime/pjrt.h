// Defines helpers for calling the PJRT C API: argument structs, errors, events. Only .cpp files and handles.h of
// src/runtime include this header.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/arrays/shape.h"
#include "pjrt_c_api.h"

// Declares an argument struct. Sets all fields to zero, except struct_size, which tells the plugin the version of our
// PJRT header.
#define PJRT_ARGS(Type, variable) \
  Type variable{};                \
  variable.struct_size = Type##_STRUCT_SIZE

// Calls api.Function(&arguments). Throws an error that names the function when the call fails.
#define PJRT_CALL(api, Function, arguments) ::fettle::pjrt::check((api), (api).Function(&(arguments)), #Function)

namespace fettle::pjrt {

// Does nothing when `error` is null. Otherwise destroys the error and throws DeviceError with the call, the code and
// the message, or DoesNotFit when the code is RESOURCE_EXHAUSTED.
void check(const PJRT_Api& api, PJRT_Error* error, const char* call);
// Destroys `error` and returns "CODE: message"; "" when `error` is null.
std::string take(const PJRT_Api& api, PJRT_Error* error);

// Returns the plugin's extension of this type (PJRT_Extension_Type), null when it has none.
const PJRT_Extension_Base* find_extension(const PJRT_Api& api, int type);

// Waits for `event` and destroys it. Does nothing if `event` is null. If the event has an error, throws like check().
void await(const PJRT_Api& api, PJRT_Event* event, const char* call);
// Keeps `alive` until `event` is ready; a thread of the plugin then releases it. When `event` is null, releases `alive`
// at once. Takes ownership of the event.
void keep_until(const PJRT_Api& api, PJRT_Event* event, std::shared_ptr<void> alive);

// Makes a named value. The result refers to `name` and `value`, which must outlive it.
PJRT_NamedValue named_value(std::string_view name, std::string_view value);
PJRT_NamedValue named_value(std::string_view name, int64_t value);
PJRT_NamedValue named_value(std::string_view name, const std::vector<int64_t>& values);
PJRT_NamedValue named_value(std::string_view name, float value);
PJRT_NamedValue named_value(std::string_view name, bool value);
PJRT_NamedValue named_value(std::string_view name, const char*) = delete;  // else a string literal would become a bool

PJRT_Program mlir_program(const std::string& module_text);

PJRT_Buffer_Type buffer_type(DType dtype);
DType dtype_of(PJRT_Buffer_Type type);  // throws DeviceError for a type that DType lacks

}  // namespace fettle::pjrt
