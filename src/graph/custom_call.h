// Defines custom_call: a call of a function that the compiler does not know, such as a kernel or an FFI handler.
//
// The compiler cannot partition an unknown call. On a mesh of several devices the call is therefore printed inside
// sdy.manual_computation: `CustomCall::in` and `out` say how each operand and result is split, and the function sees
// the shard of its device. Operand and result shapes in the graph are always global.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace fettle {

struct VjpArgs;

// A typed attribute. The MLIR types, in this order: i1, i32, i64, f32, f64, string, array<i64>, array<f32>.
using AttributeValue =
    std::variant<bool, int32_t, int64_t, float, double, std::string, std::vector<int64_t>, std::vector<float>>;
// Attributes by name. An FFI handler must bind exactly these names with these types.
using NamedAttributes = std::map<std::string, AttributeValue>;

// The cost of one execution of a call. The kernel states it, because the compiler cannot know it.
struct CallCost {
  int64_t flops = 0;      // floating-point operations over all devices; masked blocks that are skipped do not count
  int64_t bytes = 0;      // bytes read and written over all devices
  int64_t workspace = 0;  // bytes of scratch memory on each device, beyond operands and results
  // The rate that the kernel reaches, in percent of the device's rate for products of the first operand's dtype. The
  // code that sets this number names its source. 0: not known; a plan then cannot estimate the time of a step.
  int64_t percent = 0;
  bool operator==(const CallCost&) const = default;
};

struct CustomCall {
  std::string kernel;  // name and version of the kernel: "cpu_attention/1". Change the version when results change.
  std::string target;  // name under which the function is registered, or a name that the compiler provides
  NamedAttributes attributes;  // the backend_config dictionary (api_version 4, XLA's typed FFI)
  // The backend_config as one text, for functions of the compiler that take no dictionary; then `attributes` is empty.
  std::string config = {};
  std::vector<Shape> results;  // global shapes
  std::vector<Partition> in;   // one per operand; when empty, every device gets the whole operands
  std::vector<Partition> out;  // one per result; when empty, every device computes the whole results
  // The order of each result's dims in memory, from minor to major. When empty, all results are row-major.
  std::vector<Dims> result_layouts = {};
  // Pairs (result, operand): the result has the operand's memory.
  std::vector<std::pair<int64_t, int64_t>> aliases = {};
  CallCost cost;
  // The function accepts slices of stacked arrays, as operands and as results (graph/slices_in_place.h).
  bool takes_slices = false;
  bool elementwise = false;  // as cheap as an elementwise op: only Remat::kNone saves its results
  // Returns the cotangents of the operands (null = zero), built with ordinary ops and further custom calls.
  // `VjpArgs::cotangents` has one tensor per result (null = zero). Without this function, a gradient through the call
  // throws InternalError.
  std::function<std::vector<Tensor>(const VjpArgs& args)> gradient;
};

// Appends the call and returns its results. Throws InternalError when the target or an operand is missing, when the
// length of `in` or `out` differs from the number of operands or results, or when a dim is not divisible by the mesh
// axes that split it. Under rematerialisation, the results count as matrix products: Remat::kDots and kNone save the
// results that the gradient reads, and Remat::kFull makes the call again. The results of an elementwise call count as
// values, so kDots also makes an elementwise call again.
std::vector<Tensor> custom_call(const CustomCall& call, const std::vector<Tensor>& operands);

// Returns the shape of one device's shard. Throws InternalError when a dim is not divisible by its mesh axes.
Shape shard_of(const Shape& shape, const Partition& partition, const MeshAxes& mesh);

}  // namespace fettle
