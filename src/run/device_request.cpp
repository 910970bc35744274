#include "run/device_request.h"

namespace fettle {

DeviceRequest device_request(const Recipe& recipe) {
  int64_t count = recipe.device_count.value_or(0);
  if (count == 0 && !recipe.mesh.empty() && !recipe.mesh_is_auto()) {
    count = 1;
    for (const auto& [axis, size] : recipe.mesh) count *= size;
  }
  return {.plugin = recipe.plugin, .count = count, .tf32 = recipe.tf32, .compile_cache = recipe.compile_cache};
}

}  // namespace fettle
