// Tests the check of kernels with the GPUs' attention, which the CPU interprets: the correct IR passes every trial that
// a device gets, and IR with a fault does not.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "graph_run.h"
#include "kernels/check.h"
#include "programs/devices.h"
#include "triton/on_cpu.h"

namespace fettle {
namespace {

// Returns the verdict on the kernel for `platform`. If `every_width` is true, the kernel is tried with heads of all
// widths, as on a device.
KernelVerdict verdict(const std::string& platform, bool every_width, const RunTrial& run) {
  KernelRow row = *triton_kernels_on_cpu(cpu_devices().client().plugin(), platform).at(0);
  EXPECT_TRUE(row.every_width);
  row.every_width = every_width;
  return check_kernels({&row}, {}, run).front();
}

class GpuAttentionTrials : public testing::TestWithParam<std::string> {};

TEST_P(GpuAttentionTrials, TheRightTextAgrees) {
  const KernelVerdict found = verdict(GetParam(), true, run_on(cpu_devices()));
  EXPECT_TRUE(found.agrees) << found.trial << ": " << found.distance << ", bound " << found.bound;
}

INSTANTIATE_TEST_SUITE_P(Platforms, GpuAttentionTrials, testing::Values("cuda", "rocm"),
                         [](const auto& info) { return info.param; });

struct Fault {
  const char *what, *from, *to;
  bool refused = false;  // true: the interpreter refuses the IR; false: the results differ
};

TEST(GpuAttention, AWrongTextDoesNotAgree) {
  std::map<std::string, std::vector<std::vector<double>>> bodies;  // the bodies' results, by the trial's title
  const RunTrial on_cpu = run_on(cpu_devices());
  const RunTrial run = [&](const Trial& trial, const ChooseKernel& choose) {
    if (choose) return on_cpu(trial, choose);
    if (!bodies.contains(trial.title)) bodies[trial.title] = on_cpu(trial, {});
    return bodies[trial.title];
  };
  // The heads of the trials are 16 wide, so the scale is 0.25. Scores are logarithms to base 2, so their scale is 0.25
  // log2(e).
  const Fault faults[] = {{"the causal mask leaves out the diagonal", "arith.cmpi sle,", "arith.cmpi slt,"},
                          {"only the diagonal is seen", "arith.cmpi sle,", "arith.cmpi eq,"},
                          {"other documents are seen", "arith.cmpi eq,", "arith.cmpi sle,"},
                          {"masked pairs count", "-1.00000002e+30", "-1.00000000e+00"},
                          {"scores are 2 % too large", "3.60673755e-01", "3.67887230e-01"},
                          {"gradients are 2 % too large", "2.50000000e-01", "2.55000000e-01"},
                          {"log_sum is wrong", "math.log2", "math.exp2"},
                          {"places outside the arrays are read", "arith.subi", "arith.addi", true}};
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.what);
    int changed = 0;
    const ChangedTriton wrong([&](const std::string& text) {
      std::string out = text;
      for (size_t at = 0; (at = out.find(fault.from, at)) != std::string::npos; at += std::string(fault.to).size()) {
        out.replace(at, std::string(fault.from).size(), fault.to);
        ++changed;
      }
      return out;
    });
    const KernelVerdict found = verdict("cuda", false, run);
    EXPECT_GT(changed, 0) << "the text does not contain " << fault.from;
    EXPECT_EQ(std::isfinite(found.distance), !fault.refused) << found.trial;
    EXPECT_FALSE(found.agrees) << found.trial << ": " << found.distance << ", bound " << found.bound;
  }
}

}  // namespace
}  // namespace fettle
