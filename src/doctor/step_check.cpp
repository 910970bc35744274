#include "doctor/step_check.h"

#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "base/files/scratch_folder.h"
#include "run/small_model.h"
#include "step/run_step.h"
#include "step/state/train_state.h"
#include "step/step.h"

namespace fettle {
namespace {

constexpr int64_t kLength = 32;
constexpr double kBound = 1e-3;

struct Stepped {
  double loss;
  std::vector<double> gradients;  // the gradients of all weights
};

std::vector<double> weights_of(const Run& run, const TrainState& state) {
  std::vector<double> out;
  for (const Param& param : run.trained) {
    const HostArray array = state.buffers.at(trained_input(param)).download();
    for (const float x : array.as<float>()) out.push_back(x);
  }
  return out;
}

Stepped take_step(Devices& devices, const std::filesystem::path& folder, int64_t rows) {
  const Request request = small_model_request(folder, devices.count(), rows);
  const Run run = request.resolve(target_of(devices), Purpose::kTraining);
  std::vector<Example> examples;
  for (int64_t row = 0; row < rows; ++row) {
    Example& example = examples.emplace_back();
    for (int64_t i = 0; i < kLength; ++i)
      example.input_ids.push_back(static_cast<int32_t>((7 * i * i + 13 * row + 3) % kSmallVocabulary));
    example.labels = example.input_ids;
  }
  BatchSpec spec = run.batch;
  spec.max_length = kLength;
  spec.lengths = {kLength};
  spec.lines = Lines::kOwn;
  const Batches batches(examples, spec);
  const Executable executable = devices.compile(build_train_step(run, kLength));
  TrainState state = load_state(devices, run, request.repository(), true);
  Stepped out{0, weights_of(run, state)};
  out.loss = run_step(devices, run, executable, state, batches.at(0), /*learning_rate=*/1).loss;
  const std::vector<double> after = weights_of(run, state);
  for (size_t i = 0; i < after.size(); ++i) out.gradients[i] -= after[i];
  return out;
}

}  // namespace

Finding check_step(Devices& devices) {
  const ScratchFolder folder("fettle-doctor");
  if (kSmallWidth % devices.count() != 0)
    return {"training step", Verdict::kSkipped,
            fmt::format("the small model cannot be split evenly over {} devices", devices.count()),
            "set device_count to a power of two"};
  const int64_t rows = devices.count();
  const Stepped here = take_step(devices, folder.path(), rows);
  Devices host({.plugin = "cpu", .count = 1});
  const Stepped wanted = take_step(host, folder.path(), rows);
  const double gradients = relative_distance(here.gradients, wanted.gradients);
  const double loss = std::abs(here.loss / wanted.loss - 1);
  const bool agrees = gradients <= kBound && loss <= kBound;
  return {"training step",
          agrees ? Verdict::kGood : Verdict::kBad,
          fmt::format("loss {:.6f}, with the CPU plugin {:.6f}; gradients differ by {:.1e} of their norm", here.loss,
                      wanted.loss, gradients),
          agrees ? ""
                 : "results of training would be wrong: try another version of the driver and the plugin, and report "
                   "this output",
          {{"loss_difference", loss}, {"gradient_difference", gradients}}};
}

}  // namespace fettle
