// Defines what a step does with arrays that lie in the host's memory: layers' weights are fetched one by one, gradients
// leave by layer as they are made, and the update goes through the layers in place.
//
// In a step a stack [L, ...] in the host's memory is never whole on the device, but for the 16-bit copies of masters.
// After ZeRO-Offload (Ren et al. 2021) in what lies where; the copies are the compiler's asynchronous slices.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "step/job.h"

namespace fettle {

// Forward::fetch of the job's stacks; null when none of them is in the host's memory. `squares`, when given, gains as
// its gradient the sum of squares of the gradients of all trained stacks that are.
std::function<Tensor(const Param&, const Tensor&)> fetch_layers(const Job& job, const Tensor& squares);

// A master [L, ...] as the step computes with it: in `dtype`, on the device.
Tensor copy_of_master(const Tensor& master, const Partition& partition, DType dtype);

// The parameter's gradient lies in the host's memory, as the weight does that the loop over the layers reads.
bool gradient_on_host(const Job& job, const Param& param);
// The parameter is updated layer by layer: it or its optimizer state lies in the host's memory.
bool updated_by_layer(const Job& job, const Param& param);

// A sum of gradients [L, ...] in the host's memory, f32, and the sum of its squares.
struct HostSum {
  Tensor stack, squares;
};
// `sum` + `grad`, both in the host's memory, in the place of `sum`; where `first`, a scalar predicate, holds, `grad`
// alone.
HostSum add_by_layer(const Tensor& sum, const Tensor& grad, const Partition& partition, const Tensor& first);

// The optimizer's update of a stack and its state, in their place. `layer_grad` makes the update's f32 gradient of a
// layer's raw one; where `sound`, a scalar predicate, does not hold, all stays as it was.
struct HeldParam {
  Tensor weight, grad;
  std::vector<Tensor> state;
};
Updated update_by_layer(const Job& job, const Param& param, const HeldParam& held,
                        const std::function<Tensor(const Tensor&)>& layer_grad,
                        const std::map<std::string, Tensor>& scalars, const Tensor& sound);

}  // namespace fettle
