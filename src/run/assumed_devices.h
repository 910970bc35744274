// Defines asked_devices and assumed_devices: how many devices a run has, as far as the recipe says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fettle {

struct Recipe;

// device_count, else the product of the mesh's axes; none when the recipe sets neither (or mesh: auto alone).
std::optional<int64_t> asked_devices(const Recipe& recipe);

// A target as NAME, NAME:DEVICES or NAME:HOSTSxDEVICES.
struct TargetWords {
  std::string name;
  int64_t hosts = 1;
  std::optional<int64_t> devices;  // of each host
};
// Throws UserError for other words and for more than 65,536 devices.
TargetWords parse_target(const std::string& text);
// Whether the target is the machine that this program runs on.
bool is_this_machine(const std::string& target);

// The devices that a command without a device counts on.
struct AssumedDevices {
  int64_t count = 1;
  std::string reason;  // "device_count", "the recipe's mesh", ...
};
// asked_devices, else the target's count, else 1.
AssumedDevices assumed_devices(const Recipe& recipe);

}  // namespace fettle
