// Defines the check of a device and its kernels: composites are computed by their bodies and by the kernels on the
// device, and on the host, and the three must agree.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/trial.h"
#include "programs/devices.h"

namespace fettle {

// Computes a trial on the devices with kernels chosen by `choose` (empty: by its body); the elements of each result.
using RunTrial = std::function<std::vector<std::vector<double>>(const Trial& trial, const ChooseKernel& choose)>;
RunTrial run_on(const Devices& devices);

// What a kernel's trials said. `distance` is the largest one of a result from the body's, relative to its length.
struct KernelVerdict {
  const KernelRow* kernel;
  bool agrees;
  std::string trial;  // the one with the largest distance for its bound; or what failed
  double distance, bound;
};

// Throws DeviceError when a body's results differ from the host's: the device computes nothing, or computes wrongly.
void check_bodies(const std::string& device, const MeshAxes& mesh, const RunTrial& run);
// Compares each kernel with its body. An error of the device while a kernel runs counts as a disagreement.
std::vector<KernelVerdict> check_kernels(const KernelSet& kernels, const MeshAxes& mesh, const RunTrial& run);

// The kernels among these that agree with their bodies on these devices. Registers their handlers; a kernel whose
// handlers the plugin does not take is switched off too. Verdicts are kept in the cache's folder "kernels", so each
// trial runs once for each plugin, number and kind of devices, and version of a kernel. Warns of each kernel that is
// switched off. Throws as check_bodies does.
KernelSet checked_kernels(const Devices& devices, const KernelSet& kernels);

}  // namespace fettle
