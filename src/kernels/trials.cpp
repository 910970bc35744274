#include <algorithm>

#include "graph/ops.h"
#include "graph/scan.h"
#include "kernels/trial.h"

namespace fettle {

namespace {

struct TrialsOf {
  std::string_view composite;
  TrialsOfOne* trials;
};

constexpr TrialsOf kTrials[] = {
    {"attention", attention_trials},
    {"cached_attention", cached_attention_trials},
    {"linear", linear_trials},
    {"lora", lora_trials},
    {"gated", gated_trials},
    {"rms_norm", rms_norm_trials},
    {"cross_entropy", cross_entropy_trials},
    {"optimizer_update", adamw_trials},
    {"dequantise", dequantise_trials},
};

}  // namespace

std::vector<Trial> trials_of(std::string_view composite, const MeshAxes& mesh, bool every_width) {
  const auto* const found = std::ranges::find(kTrials, composite, &TrialsOf::composite);
  return found == std::end(kTrials) ? std::vector<Trial>() : found->trials(mesh, every_width);
}

Trial also_on_slices(Trial trial) {
  // Each stack has three slices: two of zeros, then the input. The loop runs over the last two slices, and its second
  // iteration gives the results. So a call that reads a wrong slice gives wrong results.
  constexpr int64_t kZeros = 2, kTrips = 2;
  const std::vector<std::vector<double>> again = trial.wanted;
  trial.wanted.insert(trial.wanted.end(), again.begin(), again.end());
  trial.build = [build = std::move(trial.build)](const std::vector<Tensor>& inputs) {
    std::vector<Tensor> results = build(inputs), stacks;
    for (const Tensor& input : inputs) {
      Dims low(static_cast<size_t>(input.rank()) + 1), high = low;
      low[0] = kZeros;
      stacks.push_back(pad(expand(input, 0), low, high));
    }
    const ScanBody body = [&](const Tensor&, const std::vector<Tensor>&, const std::vector<Tensor>& slices) {
      return ScanStep{{}, build(slices)};
    };
    for (const Tensor& stack : scan(kTrips, {}, stacks, body, {.first = kZeros + 1 - kTrips}).ys) {
      const Dims dims(stack.dims().begin() + 1, stack.dims().end());
      results.push_back(reshape(slice(stack, 0, kTrips - 1, kTrips), dims));
    }
    return results;
  };
  return trial;
}

}  // namespace fettle
