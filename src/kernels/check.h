// Defines the check of devices and kernels. Each composite is computed on the device with its body, on the device with
// each of its kernels, and on the host. All results must agree.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/trial.h"
#include "programs/devices.h"

namespace fettle {

// Computes a trial on the devices with the kernels that `choose` selects, or with the body if `choose` is empty.
// Returns the elements of each result.
using RunTrial = std::function<std::vector<std::vector<double>>(const Trial& trial, const ChooseKernel& choose)>;
RunTrial run_on(const Devices& devices);

// The outcome of a kernel's trials. `distance` is the distance of the kernel's result from the body's result, divided
// by the norm of the body's result.
struct KernelVerdict {
  const KernelRow* kernel;
  bool agrees;
  std::string trial;  // the trial with the largest ratio distance / bound, or the failed trial with its error
  double distance, bound;
  bool failed = false;  // the device reported an error, so there is no result to compare
};

// Throws DeviceError when the results of a body differ from the host's: the device computes nothing, or computes
// wrongly. On a CPU, the programs of the trials are compiled without optimisation, so the check says nothing about
// optimised code.
void check_bodies(const std::string& device, const MeshAxes& mesh, const RunTrial& run);
// Compares each kernel with the body of its composite. If the device refuses a kernel, or fails while it runs, that
// counts as a disagreement.
std::vector<KernelVerdict> check_kernels(const KernelSet& kernels, const MeshAxes& mesh, const RunTrial& run);

// Registers the handlers of the kernels. Returns the kernels that agree with their bodies on these devices. Leaves out
// a kernel that does not agree or whose handlers the plugin rejects, and warns about it. Verdicts are stored in the
// cache's folder "kernels". So a trial runs again only for another plugin, another number or kind of devices, or
// another version of the kernel. If the device reports an error, nothing is stored, and the next start tries again.
// Throws the same errors as check_bodies.
KernelSet checked_kernels(const Devices& devices, const KernelSet& kernels);

}  // namespace fettle
