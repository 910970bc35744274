// Defines run_devices: the command `fettle devices`.
#pragma once

#include <ostream>
#include <string>

namespace fettle {

struct DevicesOptions {
  std::string plugin;             // as in the recipe; empty: the best available one
  int count = 0;                  // devices to list; the CPU plugin makes this many; 0: all
  double memory_utilization = 0;  // share of a GPU's memory; 0: the plugin's choice
};

// Writes the plugin and its devices to `out`, one device per line. Reserves no memory on them. Returns the exit code.
// Throws DeviceError when the plugin does not load or finds no device, and UserError when there are fewer devices than
// `count`.
int run_devices(const DevicesOptions& options, std::ostream& out);

}  // namespace fettle
