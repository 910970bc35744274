// Defines asked_devices and assumed_devices, which take the number of devices from the recipe alone. Also defines
// parse_target.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fettle {

struct Recipe;

// Returns device_count, else the product of the mesh's axes. Returns nullopt when the recipe sets neither, or only
// `mesh: auto`.
std::optional<int64_t> asked_devices(const Recipe& recipe);

// A target that the recipe gives as NAME, NAME:DEVICES or NAME:HOSTSxDEVICES.
struct TargetWords {
  std::string name;
  int64_t hosts = 1;
  std::optional<int64_t> devices;  // devices of each host
};
// Throws UserError when the text has another form, or when all hosts together have more than 65,536 devices.
TargetWords parse_target(const std::string& text);
// Returns whether the target is the machine that this program runs on: "this" or "".
bool is_this_machine(const std::string& target);

// The number of devices that a command assumes when it opens no device.
struct AssumedDevices {
  int64_t count = 1;
  std::string reason;  // "device_count", "the recipe's mesh", ...
};
// Returns the result of asked_devices, else the number of devices that the recipe's target gives, else 1.
AssumedDevices assumed_devices(const Recipe& recipe);

}  // namespace fettle
