#include "run/device_request.h"

#include "config/recipe.h"
#include "kernels/kernels.h"
#include "run/assumed_devices.h"

namespace fettle {

DeviceRequest device_request(const Recipe& recipe) {
  require_kernel_names(recipe.kernels, recipe.where("kernels"));
  return {.plugin = recipe.plugin,
          .count = asked_devices(recipe).value_or(0),
          .tf32 = recipe.tf32,
          .compile_cache = recipe.compile_cache,
          .memory_utilization = recipe.gpu_memory_utilization,
          .places = recipe.places,
          .kernels = recipe.kernels};
}

}  // namespace fettle
