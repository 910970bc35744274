#include "runtime/pjrt.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace fettle::pjrt {
namespace {

constexpr size_t kMaxMessage = 8000;  // a compiler may quote a whole module

const char* code_name(PJRT_Error_Code code) {
  switch (code) {
    case PJRT_Error_Code_CANCELLED: return "CANCELLED";
    case PJRT_Error_Code_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case PJRT_Error_Code_DEADLINE_EXCEEDED: return "DEADLINE_EXCEEDED";
    case PJRT_Error_Code_NOT_FOUND: return "NOT_FOUND";
    case PJRT_Error_Code_ALREADY_EXISTS: return "ALREADY_EXISTS";
    case PJRT_Error_Code_PERMISSION_DENIED: return "PERMISSION_DENIED";
    case PJRT_Error_Code_RESOURCE_EXHAUSTED: return "RESOURCE_EXHAUSTED";
    case PJRT_Error_Code_FAILED_PRECONDITION: return "FAILED_PRECONDITION";
    case PJRT_Error_Code_ABORTED: return "ABORTED";
    case PJRT_Error_Code_OUT_OF_RANGE: return "OUT_OF_RANGE";
    case PJRT_Error_Code_UNIMPLEMENTED: return "UNIMPLEMENTED";
    case PJRT_Error_Code_INTERNAL: return "INTERNAL";
    case PJRT_Error_Code_UNAVAILABLE: return "UNAVAILABLE";
    case PJRT_Error_Code_DATA_LOSS: return "DATA_LOSS";
    case PJRT_Error_Code_UNAUTHENTICATED: return "UNAUTHENTICATED";
    default: return "UNKNOWN";
  }
}

struct Failure {
  PJRT_Error_Code code;
  std::string text;  // "CODE: message"
};

Failure read_and_destroy(const PJRT_Api& api, PJRT_Error* error) {
  PJRT_ARGS(PJRT_Error_GetCode_Args, code);
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  // If reading the code fails, the code stays UNKNOWN. This second error cannot be reported.
  api.PJRT_Error_GetCode(&code);
  PJRT_ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  api.PJRT_Error_Message(&message);
  std::string text =
      fmt::format("{}: {}", code_name(code.code), std::string_view(message.message, message.message_size));
  if (text.size() > kMaxMessage) text = text.substr(0, kMaxMessage) + " ...";
  PJRT_ARGS(PJRT_Error_Destroy_Args, destroy);
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  return {code.code, std::move(text)};
}

PJRT_NamedValue named(std::string_view name, PJRT_NamedValue_Type type) {
  PJRT_ARGS(PJRT_NamedValue, value);
  value.name = name.data();
  value.name_size = name.size();
  value.type = type;
  value.value_size = 1;
  return value;
}

constexpr std::pair<DType, PJRT_Buffer_Type> kTypes[] = {
    {DType::kPred, PJRT_Buffer_Type_PRED}, {DType::kI8, PJRT_Buffer_Type_S8},     {DType::kU8, PJRT_Buffer_Type_U8},
    {DType::kI16, PJRT_Buffer_Type_S16},   {DType::kU16, PJRT_Buffer_Type_U16},   {DType::kI32, PJRT_Buffer_Type_S32},
    {DType::kU32, PJRT_Buffer_Type_U32},   {DType::kI64, PJRT_Buffer_Type_S64},   {DType::kU64, PJRT_Buffer_Type_U64},
    {DType::kF16, PJRT_Buffer_Type_F16},   {DType::kBF16, PJRT_Buffer_Type_BF16}, {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
};

}  // namespace

void check(const PJRT_Api& api, PJRT_Error* error, const char* call) {
  if (error == nullptr) return;
  const Failure failure = read_and_destroy(api, error);
  if (failure.code == PJRT_Error_Code_RESOURCE_EXHAUSTED) throw DoesNotFit("{} failed: {}", call, failure.text);
  throw DeviceError("{} failed: {}", call, failure.text);
}

std::string take(const PJRT_Api& api, PJRT_Error* error) {
  return error == nullptr ? "" : read_and_destroy(api, error).text;
}

const PJRT_Extension_Base* find_extension(const PJRT_Api& api, int type) {
  for (const PJRT_Extension_Base* e = api.extension_start; e != nullptr; e = e->next) {
    int found;  // an int, since newer plugins have types that the enum lacks
    std::memcpy(&found, &e->type, sizeof found);
    if (found == type) return e;
  }
  return nullptr;
}

void await(const PJRT_Api& api, PJRT_Event* event, const char* call) {
  if (event == nullptr) return;
  PJRT_ARGS(PJRT_Event_Await_Args, wait);
  wait.event = event;
  PJRT_Error* error = api.PJRT_Event_Await(&wait);  // returns the error of the event
  PJRT_ARGS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = event;
  take(api, api.PJRT_Event_Destroy(&destroy));
  check(api, error, call);
}

void keep_until(const PJRT_Api& api, PJRT_Event* event, std::shared_ptr<void> alive) {
  if (event == nullptr) return;
  struct Kept {
    const PJRT_Api* api;
    std::shared_ptr<void> alive;
  };
  PJRT_ARGS(PJRT_Event_OnReady_Args, ready);
  ready.event = event;
  std::unique_ptr<Kept> waiting(new Kept{&api, std::move(alive)});
  ready.user_arg = waiting.get();
  ready.callback = [](PJRT_Error* error, void* user_arg) {
    const std::unique_ptr<Kept> kept(static_cast<Kept*>(user_arg));
    take(*kept->api, error);  // code that reads the buffer gets the same error
  };
  if (PJRT_Error* error = api.PJRT_Event_OnReady(&ready)) {
    take(api, error);
    return await(api, event, "PJRT_Event_Await");  // no callback will run, so wait here to keep `alive`
  }
  waiting.release();  // the callback frees it, or has freed it
  PJRT_ARGS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = event;
  PJRT_CALL(api, PJRT_Event_Destroy, destroy);
}

PJRT_NamedValue named_value(std::string_view name, std::string_view value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kString);
  result.string_value = value.data();
  result.value_size = value.size();
  return result;
}

PJRT_NamedValue named_value(std::string_view name, int64_t value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kInt64);
  result.int64_value = value;
  return result;
}

PJRT_NamedValue named_value(std::string_view name, const std::vector<int64_t>& values) {
  PJRT_NamedValue out = named(name, PJRT_NamedValue_kInt64List);
  out.int64_array_value = values.data();
  out.value_size = values.size();
  return out;
}

PJRT_NamedValue named_value(std::string_view name, float value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kFloat);
  result.float_value = value;
  return result;
}

PJRT_NamedValue named_value(std::string_view name, bool value) {
  PJRT_NamedValue result = named(name, PJRT_NamedValue_kBool);
  result.bool_value = value;
  return result;
}

PJRT_Program mlir_program(const std::string& module_text) {
  PJRT_ARGS(PJRT_Program, program);
  program.code = const_cast<char*>(module_text.data());  // the PJRT header promises that plugins do not write to `code`
  program.code_size = module_text.size();
  program.format = "mlir";
  program.format_size = 4;
  return program;
}

PJRT_Buffer_Type buffer_type(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  throw InternalError("runtime: PJRT has no type for {}", stablehlo_name(dtype));
}

DType dtype_of(PJRT_Buffer_Type type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  throw DeviceError("the program has a result of PJRT buffer type {}, which Fettle does not support",
                    static_cast<int>(type));
}

}  // namespace fettle::pjrt
