// Defines Trial: a small instance of a composite, with the results that the host computes for it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/arrays/host_array.h"
#include "graph/tensor.h"

namespace fettle {

struct TrialInput {
  HostArray value;
  Partition partition;
};

struct Trial {
  std::string title;  // "attention in bf16"
  std::vector<TrialInput> inputs;
  // Appends the composite to the current block, and its gradient if training uses it. The results are f32.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> build;
  std::vector<std::vector<double>> wanted;  // the expected elements of the results, computed on the host in double
  double bound;                             // limit of the distance, relative to the norm of `wanted`
};

// Returns the trials of a composite for a mesh of one axis, over which the rows of the inputs are split. Returns an
// empty list when there is no such composite. `every_width` adds trials of the widths and options for which a kernel
// has programs of its own (KernelRow::every_width).
std::vector<Trial> trials_of(std::string_view composite, const MeshAxes& mesh, bool every_width = false);

// Returns a trial that computes `trial` twice: first on arrays, then in the body of a loop, on slices of stacked
// arrays. Kernels may read such slices in place (graph/slices_in_place.h). The results of `trial` come first, then
// those of the loop. Supports only one device.
Trial also_on_slices(Trial trial);

// Each function returns the trials of one composite; trials_of() calls one of them.
using TrialsOfOne = std::vector<Trial>(const MeshAxes& mesh, bool every_width);
TrialsOfOne attention_trials, cached_attention_trials, linear_trials, lora_trials, gated_trials, rms_norm_trials,
    cross_entropy_trials, adamw_trials, dequantise_trials;

}  // namespace fettle
