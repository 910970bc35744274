// Defines asked_devices and assumed_devices: the number of devices that follows from the recipe alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fettle {

struct Recipe;

// Returns device_count, else the product of the mesh's axes. Returns nothing when the recipe sets neither, or only
// `mesh: auto`.
std::optional<int64_t> asked_devices(const Recipe& recipe);

// A target that the recipe gives as NAME, NAME:DEVICES or NAME:HOSTSxDEVICES.
struct TargetWords {
  std::string name;
  int64_t hosts = 1;
  std::optional<int64_t> devices;  // devices of each host
};
// Throws UserError for other words and for more than 65,536 devices.
TargetWords parse_target(const std::string& text);
// Whether the target is the machine that this program runs on.
bool is_this_machine(const std::string& target);

// The devices that a command assumes when it opens none.
struct AssumedDevices {
  int64_t count = 1;
  std::string reason;  // "device_count", "the recipe's mesh", ...
};
// Returns asked_devices, else the target's count, else 1.
AssumedDevices assumed_devices(const Recipe& recipe);

}  // namespace fettle
