// Tests the check of kernels and devices. Kernels that agree with their bodies are kept, others are switched off, and a
// device that computes nothing or wrong results is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "base/error.h"
#include "environment.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "kernels/check.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<Tensor>;
using Results = std::vector<std::vector<double>>;

// Keeps the verdicts in a folder of the test instead of the cache.
class KernelCheck : public testing::Test {
 protected:
  KernelCheck() {
    // The plugin must be loaded from the usual cache before FETTLE_CACHE changes.
    cpu_devices();
    cpu_devices(8);
    cache_.emplace("FETTLE_CACHE", folder_ / "cache");
  }
  int64_t findings() const {
    int64_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "cache" / "kernels"))
      ++count;
    return count;
  }

 private:
  TempFolder folder_;
  std::optional<Environment> cache_;
};

// Multiplies the result of the CPU's attention by 1.01, so that it is wrong.
std::optional<Kernel> one_percent_more(const CompositeSite& site) {
  const std::optional<Kernel> kernel = cpu::attention_kernel(site);
  if (!kernel) return std::nullopt;
  return [kernel](const Tensors& inputs) -> Tensors { return {(*kernel)(inputs)[0] * 1.01}; };
}
constexpr KernelRow kWrong{"wrong_attention/1", "attention", "cpu", one_percent_more, nullptr, cpu::register_attention};

// Calls a target without a handler, which the plugin cannot compile.
std::optional<Kernel> unknown_call(const CompositeSite& site) {
  const Shape result = site.results[0];
  const Partition split = site.partitions[0];
  return [=](const Tensors& inputs) -> Tensors {
    return custom_call({.kernel = "absent/1",
                        .target = "fettle_test_absent",
                        .results = {result},
                        .in = {split},
                        .out = {split},
                        .gradient = [](const VjpArgs& args) { return Tensors(args.operands.size()); }},
                       {inputs[0]});
  };
}
constexpr KernelRow kAbsent{"absent/1", "attention", "cpu", unknown_call, nullptr, nullptr};

// Throws, like a plugin that accepts no handlers.
void refuse(const Plugin&) {
  throw DeviceError("the plugin has no FFI extension");
}
constexpr KernelRow kRefused{"refused/1", "attention", "cpu", cpu::attention_kernel, nullptr, refuse};

Program program_of(const Trial& trial, const KernelRow* kernel) {
  Program program({}, choose_among({kernel}));
  BuildScope scope(program.block());
  Tensors inputs;
  for (const TrialInput& input : trial.inputs)
    inputs.push_back(program.input(std::to_string(inputs.size()), input.value.shape()));
  const Tensors results = trial.build(inputs);
  for (size_t r = 0; r < results.size(); ++r) program.output("result" + std::to_string(r), results[r]);
  return program;
}

TEST_F(KernelCheck, EveryRowIsTriedAndAgrees) {
  std::set<std::string> writing;  // kernels whose trial also writes slices in place
  for (const KernelRow& row : kernel_rows()) {
    EXPECT_THAT(std::string(row.id), testing::MatchesRegex("[a-z0-9_]+/[0-9]+"));
    ASSERT_FALSE(trials_of(row.composite, {}).empty()) << row.id << " is never tried";
    if (row.platform != "cpu") continue;
    for (const int64_t devices : {1, 8}) {
      EXPECT_EQ(checked_kernels(cpu_devices(devices), {&row}), KernelSet{&row}) << row.id;
      KernelRow anywhere = row;
      anywhere.pays = nullptr;
      std::vector<Trial> trials = trials_of(row.composite, {});
      for (const Trial& trial : trials)
        EXPECT_EQ(program_of(trial, &anywhere).kernels().size(), 1u) << trial.title << " does not call " << row.id;
      // These always get the arrays of all layers.
      if (row.composite == "cached_attention" || row.composite == "optimizer_update") continue;
      const std::string on_slices = program_of(also_on_slices(std::move(trials.back())), &anywhere).text();
      EXPECT_THAT(on_slices, testing::ContainsRegex("[{ ]slices = array<i64")) << row.id << " reads no slice in place";
      if (on_slices.find("written_slices = array<i64") != std::string::npos) writing.emplace(row.name());
    }
  }
  // The trials of the others compute with the results of the call, so the loop does not stack these results.
  EXPECT_THAT(writing, testing::ElementsAre("cpu_cross_entropy", "cpu_gated", "cpu_linear", "cpu_lora"));
}

TEST_F(KernelCheck, AWrongKernelIsSwitchedOff) {
  const KernelRow& right = *select_kernels("cpu", {"cpu_attention"}).at(0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(checked_kernels(cpu_devices(), {&right, &kWrong, &kAbsent, &kRefused}), KernelSet{&right});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("kernel wrong_attention is switched off on "));
  EXPECT_THAT(
      said, HasSubstr("attention in f32 differs from the result without the kernel by 1.0e-02 of that result's norm"));
  EXPECT_THAT(said, HasSubstr("kernel absent is switched off on "));
  EXPECT_THAT(said, HasSubstr("kernel refused is switched off on "));
  EXPECT_THAT(said, HasSubstr("the plugin has no FFI extension"));
}

// An error of the device may pass, so the next start tries the kernel again.
TEST_F(KernelCheck, AnErrorOfTheDeviceIsNotRemembered) {
  constexpr KernelRow absent{"absent/2", "attention", "cpu", unknown_call, nullptr, nullptr};
  EXPECT_EQ(checked_kernels(cpu_devices(), {&absent}), KernelSet{});
  EXPECT_EQ(findings(), 1) << "of the bodies";
  constexpr KernelRow same{absent.id, "attention", "cpu", cpu::attention_kernel, nullptr, cpu::register_attention};
  EXPECT_EQ(checked_kernels(cpu_devices(), {&same}), KernelSet{&same});
}

TEST_F(KernelCheck, WhatWasFoundIsRemembered) {
  // A warning is printed once per process, so this row needs its own name.
  constexpr KernelRow wrong{"forgotten_attention/1", "attention", "cpu",
                            one_percent_more,        nullptr,     cpu::register_attention};
  checked_kernels(cpu_devices(), {&wrong});
  EXPECT_EQ(findings(), 2) << "of the bodies and of the kernel";
  // This row has the same id. So the stored verdict is used, although the row builds another kernel.
  constexpr KernelRow same{wrong.id, "attention", "cpu", cpu::attention_kernel, nullptr, cpu::register_attention};
  EXPECT_EQ(checked_kernels(cpu_devices(), {&same}), KernelSet{});
  constexpr KernelRow next{"forgotten_attention/2", "attention", "cpu",
                           cpu::attention_kernel,   nullptr,     cpu::register_attention};
  EXPECT_EQ(checked_kernels(cpu_devices(), {&next}), KernelSet{&next}) << "another version is another kernel";
  EXPECT_EQ(checked_kernels(cpu_devices(8), {&same}), KernelSet{&same}) << "so are other devices";
}

// Returns a function that returns a trial's correct results, modified by `change`.
RunTrial changed(const std::function<void(double&)>& change) {
  return [change](const Trial& trial, const ChooseKernel&) {
    Results out = trial.wanted;
    for (std::vector<double>& result : out)
      for (double& x : result) change(x);
    return out;
  };
}

std::string refusal(const std::function<void(double&)>& change) {
  try {
    check_bodies("gpu (1 device)", {}, changed(change));
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceCheck, ADeviceThatComputesNothingIsRefused) {
  EXPECT_EQ(refusal([](double&) {}), "");
  EXPECT_THAT(refusal([](double& x) { x = 0; }), HasSubstr("gpu (1 device) computes nothing: "));
  EXPECT_THAT(refusal([](double& x) { x *= 1.01; }), HasSubstr("gpu (1 device) computes wrongly"));
  EXPECT_THAT(refusal([](double& x) { x = std::nan(""); }), HasSubstr("gpu (1 device) computes wrongly"));
}

// If a device computes nothing, every kernel equals its body. So kernels cannot be checked on such a device.
TEST(DeviceCheck, KernelsAreComparedWithBodies) {
  const KernelSet kernels = select_kernels("cpu", {"cpu_attention"});
  EXPECT_TRUE(check_kernels(kernels, {}, changed([](double& x) { x = 0; }))[0].agrees);
  const RunTrial half_of_kernel = [](const Trial& trial, const ChooseKernel& choose) {
    Results out = trial.wanted;
    if (choose) out[1][7] += 10;
    return out;
  };
  const KernelVerdict verdict = check_kernels(kernels, {}, half_of_kernel)[0];
  EXPECT_FALSE(verdict.agrees);
  EXPECT_GT(verdict.distance, verdict.bound);
}

// On a GPU with little shared memory, XLA refuses a kernel as it refuses a program that is too large.
TEST(DeviceCheck, AKernelThatDoesNotFitIsSwitchedOff) {
  const KernelSet kernels = select_kernels("cpu", {"cpu_attention"});
  const RunTrial no_room = [](const Trial& trial, const ChooseKernel& choose) {
    if (choose) throw DoesNotFit("PJRT_Client_Compile failed: RESOURCE_EXHAUSTED: Shared memory size limit exceeded");
    return trial.wanted;
  };
  const KernelVerdict verdict = check_kernels(kernels, {}, no_room)[0];
  EXPECT_FALSE(verdict.agrees);
  EXPECT_TRUE(verdict.failed);
  EXPECT_THAT(verdict.trial, HasSubstr("Shared memory size limit exceeded"));
  const RunTrial no_room_at_all = [](const Trial&, const ChooseKernel&) -> Results {
    throw DoesNotFit("out of memory");
  };
  EXPECT_THROW(check_kernels(kernels, {}, no_room_at_all), DoesNotFit) << "not even without the kernel";
}

// On one device, the results on slices of stacked arrays are compared, too.
TEST(DeviceCheck, AKernelThatReadsAnotherSliceDiffers) {
  constexpr size_t kResults = 4;  // of a trial of attention: the output and three gradients
  const RunTrial other_slice = [](const Trial& trial, const ChooseKernel&) {
    Results out = trial.wanted;
    if (out.size() > kResults) out.back()[7] += 10;
    return out;
  };
  const KernelVerdict verdict = check_kernels(select_kernels("cpu", {"cpu_attention"}), {}, other_slice)[0];
  EXPECT_FALSE(verdict.agrees);
  EXPECT_THAT(verdict.trial, testing::MatchesRegex("attention in .*, on slices"));
}

}  // namespace
}  // namespace fettle
