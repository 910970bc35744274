// Defines composites: named parts of a model with a body in ordinary ops, which a kernel may replace.
//
// If the program's chooser offers no kernel for a composite, the body is inlined: the program is the same, byte for
// byte, as if the model had used the ops of the body directly.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/custom_call.h"
#include "graph/tensor.h"

namespace fettle {

// The properties of a composite on which the choice of a kernel depends.
struct CompositeSite {
  std::string name;                   // "attention"
  NamedAttributes attributes;         // the body's parameters that are not tensors
  std::vector<Shape> inputs;          // global shapes and dtypes
  std::vector<Partition> partitions;  // how each input is split over `mesh`; empty dims = not split
  std::vector<Shape> results;         // global shapes that the body gives
  MeshAxes mesh;
};

// Adds a composite's forward pass to the program: custom calls, with ordinary ops before and after them as needed.
// Returns the composite's results in the body's order, shapes and dtypes. A custom call may have more results, which
// only the gradient reads (such as attention's log-sum-exp). This function does not return those.
using Kernel = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Returns the kernel for a composite. If it returns nullopt, the body is inlined. Called while the program is built,
// once for each use of the composite.
using ChooseKernel = std::function<std::optional<Kernel>(const CompositeSite& site)>;

// The mesh of a program under construction, and the choice of kernels for its composites. The program's outermost block
// stores them.
struct Lowering {
  MeshAxes mesh;
  ChooseKernel choose;  // when empty, every body is inlined
};

using CompositeBody = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Appends the composite `name` to the current block and returns its results. The body may use only its inputs and
// tensors that it makes itself. `partitions` has one entry per input, or is empty when no input is split. Throws
// InternalError when the kernel's results differ from the body's in number, shape or dtype.
std::vector<Tensor> composite(const std::string& name, const NamedAttributes& attributes,
                              const std::vector<Tensor>& inputs, const std::vector<Partition>& partitions,
                              const CompositeBody& body);

}  // namespace fettle
