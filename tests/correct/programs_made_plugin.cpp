// A fake PJRT plugin. It fails to create a client, with an error that lists the options that it got.
#include <pjrt_c_api.h>

#include <sstream>
#include <string>

struct PJRT_Error {
  std::string text;
};

namespace {

std::string text_of(const PJRT_NamedValue& value) {
  std::ostringstream out;
  out << std::string(value.name, value.name_size) << '=';
  switch (value.type) {
    case PJRT_NamedValue_kFloat: out << "float " << value.float_value; break;
    case PJRT_NamedValue_kBool: out << "bool " << value.bool_value; break;
    case PJRT_NamedValue_kInt64: out << "int64 " << value.int64_value; break;
    case PJRT_NamedValue_kInt64List:
      for (size_t i = 0; i < value.value_size; ++i) out << (i == 0 ? "" : ",") << value.int64_array_value[i];
      break;
    default: out << "another type";
  }
  return out.str();
}

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  std::string text = "asked for";
  for (size_t i = 0; i < args->num_options; ++i) text += " " + text_of(args->create_options[i]);
  return new PJRT_Error{text};
}

void message(PJRT_Error_Message_Args* args) {
  args->message = args->error->text.data();
  args->message_size = args->error->text.size();
}

PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  args->code = PJRT_Error_Code_FAILED_PRECONDITION;
  return nullptr;
}

void destroy(PJRT_Error_Destroy_Args* args) {
  delete args->error;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  return nullptr;
}

PJRT_Error* attributes(PJRT_Plugin_Attributes_Args* args) {
  args->num_attributes = 0;
  return nullptr;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Error_Destroy = destroy;
  api.PJRT_Error_Message = message;
  api.PJRT_Error_GetCode = code;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Plugin_Attributes = attributes;
  api.PJRT_Client_Create = create;
  return &api;
}
