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
// recorded step. Each process records its own devices. Evaluations and attempts that overflowed between the recorded
// steps are recorded, too. A profile that fails does not end the run: a warning says why.
class StepProfile {
 public:
  // Warns when the run asks for a profile and the plugin cannot record one, or when the run has none of the steps.
  // `done` is the number of steps that the run finished before, `process` the number of this process.
  StepProfile(const Devices& devices, const OutputSpec& output, int64_t done, int64_t total_steps, int process);
  ~StepProfile();  // writes what was recorded, if the run ends early
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Call these before and after each step, with the number of finished steps.
  void before_step(int64_t done);
  void after_step(int64_t done);
  bool recording() const { return profiler_.has_value(); }

 private:
  void write();
  void fail(const char* why);

  const Devices& devices_;
  std::string folder_;
  int64_t first_, end_;  // before the first recorded step, this many steps are finished; after the last one, end_
  int64_t done_ = 0;     // finished steps
  int process_;
  std::optional<Profiler> profiler_;
};

}  // namespace fettle
