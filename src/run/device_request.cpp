#include "run/device_request.h"

#include "run/assumed_devices.h"

namespace fettle {

DeviceRequest device_request(const Recipe& recipe) {
  return {.plugin = recipe.plugin,
          .count = asked_devices(recipe).value_or(0),
          .tf32 = recipe.tf32,
          .compile_cache = recipe.compile_cache};
}

}  // namespace fettle
