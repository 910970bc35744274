// Defines run_doctor: what `fettle doctor` checks, in order, on one page.
#pragma once

#include <ostream>
#include <string>

#include "programs/devices.h"

namespace fettle {

struct DoctorOptions {
  std::string version;     // Fettle's
  std::string output_dir;  // its disk is measured; empty: none
  bool json = false;
};

// Checks plugin, driver, libraries, devices, their memory, arithmetic and rates, a training step, and disks. A check
// that fails is a line with its remedy, and those that do not build on it still run. Gives the exit code: 0, or the
// devices' when a check found a fault.
int run_doctor(const DeviceRequest& request, const DoctorOptions& options, std::ostream& out);

}  // namespace fettle
