// Defines StandInHip, for tests that run AMD's real plugin on a stand-in for the HIP runtime (tests/stand_in_hip). The
// stand-in uses host memory, and its kernels compute nothing.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "end_to_end/run_fettle.h"
#include "environment.h"
#include "gpu_plugin.h"

namespace fettle {

// The counts of the stand-in runtime for one kind of work on one device.
struct Work {
  int64_t calls = 0, bytes = 0;
};

class StandInHip : public testing::Test {
 protected:
  void SetUp() override {
    require_gpu_plugin("rocm");
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string source = source_folder().string(), libraries = (folder_ / "libraries").string();
    const std::string make = source + "/scripts/make_stand_ins.sh " + Plugin::find("rocm").string() + " " + libraries +
                             " " + source + "/tests/stand_in_hip";
    ASSERT_EQ(std::system(make.c_str()), 0);
    set("LD_LIBRARY_PATH", libraries);
    // Turns off autotuning, which takes a long time, and HIP graphs, which the stand-in runtime does not have.
    set("XLA_FLAGS", "--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer=");
    set("STAND_IN_COUNTS", (folder_ / "counts").string());
    set("FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC", "1");
  }

  // Sets an environment variable for the programs that run from now on. tests/stand_in_hip/libamdhip64.so.7.c describes
  // the variables of the stand-in (STAND_IN_...).
  void set(const char* name, const std::optional<std::string>& value) {
    environment_.push_back(std::make_unique<Environment>(name, value));
  }
  void set(const char* name, int64_t value) { set(name, std::to_string(value)); }

  std::vector<std::string> words(const std::string& output, const std::vector<std::string>& more = {}) const {
    return with(with(train_words(folder_ / output),
                     {"plugin=rocm", "compile_cache=" + (folder_ / "compiled").string(), kFewWeights, "max_steps=4"}),
                more);
  }
  // Returns the words of `fettle plan` for the devices of this machine.
  std::vector<std::string> planning(const std::vector<std::string>& more) const {
    std::vector<std::string> out = words("out", more);
    out[0] = "plan";
    return out;
  }
  Outcome run(const std::vector<std::string>& words) { return run_fettle(folder_, words); }

  // Returns the counts that the latest run wrote at its end for the kind of work `work`. There is one count per device.
  std::vector<Work> counted(const std::string& work) const {
    std::vector<Work> found;
    std::ifstream in(folder_ / "counts");
    std::string name;
    Work of_device;
    for (int64_t device = 0; in >> name >> device >> of_device.calls >> of_device.bytes;)
      if (name == work) found.push_back(of_device);
    return found;
  }

  TempFolder folder_;

 private:
  std::vector<std::unique_ptr<Environment>> environment_;
};

}  // namespace fettle
