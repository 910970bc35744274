// Defines TrialRuns, which computes trials on devices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/composite.h"
#include "kernels/trial.h"
#include "programs/devices.h"

namespace fettle {

// The elements of each result of a trial.
using TrialResults = std::vector<std::vector<double>>;

// Compiles trials, runs them and remembers their results. Copies share what they remember.
class TrialRuns {
 public:
  // `devices` must outlive this object.
  explicit TrialRuns(const Devices& devices) : devices_(&devices) {}

  // Computes a trial with the kernels that `choose` selects, or with the body if `choose` is empty. Throws DeviceError
  // like Client::compile and Executable::run.
  TrialResults operator()(const Trial& trial, const ChooseKernel& choose) const;

  // Does the same for all the trials in one program, which takes less time than a program for each. The results are
  // remembered for operator().
  void together(const std::vector<Trial>& trials, const ChooseKernel& choose) const;

 private:
  std::string key_of(const Trial& trial, const ChooseKernel& choose) const;

  const Devices* devices_;
  // Results by the text of the trial's own program and the bytes of its inputs.
  std::shared_ptr<std::map<std::string, TrialResults>> known_ = std::make_shared<std::map<std::string, TrialResults>>();
};

}  // namespace fettle
