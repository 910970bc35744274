#include "train/step_profile.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "base/environment.h"
#include "base/files/output_file.h"
#include "base/log.h"

namespace fettle {

StepProfile::StepProfile(const Devices& devices, const OutputSpec& output, int64_t done, int64_t total_steps,
                         int process)
    : devices_(devices),
      folder_(output.folder),
      first_(std::max(output.profile_start, done)),
      end_(std::min(output.profile_start + output.profile_steps, total_steps)),
      process_(process) {
  if (output.profile_steps == 0) return;
  if (!can_profile(devices.client().plugin())) {
    warn("profiler_steps: plugin {} cannot record profiles, so the run goes on without one",
         devices.client().plugin().name());
    end_ = first_;
  } else if (first_ >= end_) {
    warn("profiler_steps: the run has no steps from {} to {}, so there is no profile", output.profile_start + 1,
         output.profile_start + output.profile_steps);
  }
}

StepProfile::~StepProfile() {
  if (profiler_ && done_ > first_) write();
}

void StepProfile::before_step(int64_t done) {
  if (done < first_ || done >= end_ || profiler_) return;
  done_ = done;
  try {
    profiler_.emplace(devices_.client().plugin());
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
}

void StepProfile::after_step(int64_t done) {
  if (!profiler_) return;
  done_ = done;
  if (done >= end_) write();
}

void StepProfile::write() {
  try {
    const std::filesystem::path logs = std::filesystem::path(folder_) / "profile";
    const std::filesystem::path folder = logs / "plugins" / "profile" / fmt::format("step_{}", first_ + 1);
    const std::string profile = profiler_->finish();
    profiler_.reset();
    std::filesystem::create_directories(folder);
    write_file(folder / fmt::format("{}-{}.xplane.pb", host_name(), process_), profile);
    info("the profile of steps {} to {} is in {}; `tensorboard --logdir {}` shows it (with the Python package xprof)",
         first_ + 1, done_, folder.string(), logs.string());
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
}

void StepProfile::fail(const char* why) {
  warn("no profile of the steps: {}", why);
  profiler_.reset();
  end_ = first_;
}

}  // namespace fettle
