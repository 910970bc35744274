#include "train/step_profile.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "base/environment.h"
#include "base/log.h"
#include "checkpoint/files.h"

namespace fettle {

StepProfile::StepProfile(const Devices& devices, const OutputSpec& output, int64_t total_steps, int process)
    : devices_(devices),
      folder_(output.folder),
      first_(output.profile_start),
      last_(std::min(output.profile_start + output.profile_steps, total_steps) - 1),
      process_(process) {
  if (output.profile_steps == 0 || can_profile(devices.client().plugin())) return;
  warn("profiler_steps: plugin {} cannot record profiles, so the run goes on without one",
       devices.client().plugin().name());
  last_ = first_ - 1;
}

void StepProfile::before_step(int64_t done) {
  if (done < first_ || done > last_ || profiler_) return;
  first_ = done;  // a resumed run may begin later
  try {
    profiler_.emplace(devices_.client().plugin());
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
}

void StepProfile::after_step(int64_t done) {
  if (!profiler_ || done < last_) return;
  const std::filesystem::path logs = std::filesystem::path(folder_) / "profile";
  const std::filesystem::path folder = logs / "plugins" / "profile" / fmt::format("step_{}", first_ + 1);
  try {
    const std::string profile = profiler_->finish();
    profiler_.reset();
    std::filesystem::create_directories(folder);
    write_file(folder / fmt::format("{}-{}.xplane.pb", host_name(), process_), profile);
    info("the profile of steps {} to {} is in {}; `tensorboard --logdir {}` shows it (with the Python package xprof)",
         first_ + 1, last_ + 1, folder.string(), logs.string());
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
}

void StepProfile::fail(const char* why) {
  warn("no profile of the steps: {}", why);
  profiler_.reset();
  last_ = first_ - 1;
}

}  // namespace fettle
