// Defines StepProfile, which records some steps of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "programs/devices.h"
#include "run/run.h"
#include "runtime/profiler.h"

namespace fettle {

// Writes FOLDER/profile/plugins/profile/step_N/HOST-PROCESS.xplane.pb, the layout in which TensorBoard and xprof look
// for profiles: they get FOLDER/profile as their folder of logs. FOLDER is output_dir, and N the number of the first
// recorded step. Each process records its own devices. A profile that fails does not end the run: a warning says why.
class StepProfile {
 public:
  // Warns when the run asks for a profile and the plugin cannot record one. `process` is the number of this process.
  StepProfile(const Devices& devices, const OutputSpec& output, int64_t total_steps, int process);

  // Call these before and after each step. `done` is the number of steps that the run finished before.
  void before_step(int64_t done);
  void after_step(int64_t done);

 private:
  void fail(const char* why);

  const Devices& devices_;
  std::string folder_;
  int64_t first_, last_;  // recorded steps, as numbers of finished steps before them
  int process_;
  std::optional<Profiler> profiler_;
};

}  // namespace fettle
