// Defines how a step uses arrays in host memory. The step fetches the layers' weights one by one, sends their gradients
// to host memory layer by layer, and updates the layers one by one in place.
//
// A stacked parameter [L, ...] in host memory is never copied to the device as a whole. A master weight is the
// exception: the step makes a 16-bit copy of all its layers. The placement follows ZeRO-Offload (Ren et al. 2021). The
// program only states which slices are in which memory; the compiler makes asynchronous copies of them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "run/run.h"

namespace fettle {

// Returns Forward::fetch for the run's stacked parameters in host memory, except master weights; null when there are
// none. `squares` (an f32 scalar, or null) gets a norm out of the backward pass: its gradient is the squared norm of
// the gradients of all fetched, trained stacks.
std::function<Tensor(const Param&, const Tensor&)> fetch_layers(const Run& run, const Tensor& squares);

// Returns a master weight [L, ...] in `dtype` on the device, for the step's computation.
Tensor copy_of_master(const Tensor& master, const Partition& partition, DType dtype);

// Returns whether the parameter's gradient lies in host memory. This is true if the loop over the layers reads the
// weight from host memory.
bool gradient_on_host(const Run& run, const Param& param);
// Returns whether the parameter is updated layer by layer. This is true for a stacked parameter whose weight or
// optimizer state lies in host memory.
bool updated_by_layer(const Run& run, const Param& param);

// A sum of f32 gradients [L, ...] in host memory, and the sum of its squares.
struct HostSum {
  Tensor stack, squares;
};
// Adds `grad` to `sum` in place; both are in host memory. When `first` (a scalar predicate) is true, `grad` replaces
// `sum`.
HostSum add_by_layer(const Tensor& sum, const Tensor& grad, const Partition& partition, const Tensor& first);

// A stacked weight with its gradient and its optimizer state. If the weight's f32 values are on a disk (Run::on_disk),
// `state` begins with them.
struct HeldParam {
  Tensor weight, grad;
  std::vector<Tensor> state;
};
// Updates layer `index` (an i32 scalar) of a stacked weight. `held.state` has the state of that layer [1, ...] on the
// device. If the weight's f32 values are on a disk, the layer's f32 values come first in this state. Returns the whole
// stack with the new layer in the stack's dtype, and the layer's new state in the same order. For `layer_grad`, see
// update_by_layer. If `finite` (a scalar predicate) is given and false, the stack keeps the old layer, and the caller
// must discard the returned state.
Updated update_layer(const Run& run, const Param& param, const Tensor& index, const HeldParam& held,
                     const std::function<Tensor(const Tensor&)>& layer_grad,
                     const std::map<std::string, Tensor>& scalars, const Tensor& finite = {});

// Applies the optimizer's update to a stacked weight and its state, in place. `layer_grad` computes the f32 gradient
// for the update from a layer's raw gradient. When `finite` (a scalar predicate) is false, nothing changes.
Updated update_by_layer(const Run& run, const Param& param, const HeldParam& held,
                        const std::function<Tensor(const Tensor&)>& layer_grad,
                        const std::map<std::string, Tensor>& scalars, const Tensor& finite);

}  // namespace fettle
