// Defines run_doctor, the command `fettle doctor`, which prints the results of all checks on one page.
#pragma once

#include <ostream>
#include <string>

#include "programs/devices.h"

namespace fettle {

struct DoctorOptions {
  std::string version;     // Fettle's version
  std::string output_dir;  // the folder whose disk is measured; empty: none
  bool json = false;
};

// Checks the plugin, the driver, the libraries, the devices (memory, arithmetic, rates), a training step, and the
// disks. A failed check is shown with its remedy; checks that do not depend on it still run. Returns the exit code: 0,
// or the exit code of DeviceError when a check found a fault.
int run_doctor(const DeviceRequest& request, const DoctorOptions& options, std::ostream& out);

}  // namespace fettle
