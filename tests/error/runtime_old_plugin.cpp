// A fake plugin with an older PJRT API than Fettle supports. Fettle may read only the version from it.
#include <cstddef>

namespace {

struct {
  size_t struct_size;
  void* extension_start;
  struct {
    size_t struct_size;
    void* extension_start;
    int major_version;
    int minor_version;
  } version;
} api = {sizeof api, nullptr, {sizeof api.version, nullptr, 0, 40}};

}  // namespace

extern "C" const void* GetPjrtApi() {
  return &api;
}
