#include "kernels/cpu/row_kernels.h"

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/split_rows.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

// Returns how the first `dims` dims are split.
Partition first_dims(Partition split, size_t dims) {
  split.dims.resize(dims);
  return split;
}

Shape rows_shape(const Shape& shape, DType dtype) {
  return {dtype, Dims(shape.dims.begin(), shape.dims.end() - 1)};
}

}  // namespace

bool rows_pay(const CompositeSite& site) {
  constexpr int64_t kFewest = 64;
  const Shape& x = site.inputs[0];
  return x.dims[0] * x.dims[1] >= kFewest && has_fast_ops(DType::kBF16);
}

std::optional<Kernel> gated_kernel(const CompositeSite& site) {
  const Shape shape = site.inputs[0];
  const std::string name = std::get<std::string>(site.attributes.at("activation"));
  const bool silu = name == "silu" || name == "swish";
  const bool gelu = name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast";
  if (!is_cpu_float(shape) || site.inputs[1] != shape || site.partitions[0] != site.partitions[1] || (!silu && !gelu))
    return std::nullopt;
  const Partition split = site.partitions[0];
  const int64_t bytes = shape.bytes(), elements = shape.elements();
  auto gradient = [=](const VjpArgs& args) -> Tensors {
    if (!args.cotangents[0]) return Tensors(2);
    return custom_call({.kernel = kGatedKernel,
                        .target = kGatedGradientTarget,
                        .attributes = {{"silu", silu}},
                        .results = {shape, shape},
                        .in = {split, split, split},
                        .out = {split, split},
                        .cost = {.flops = 30 * elements, .bytes = 5 * bytes},
                        .takes_slices = true,
                        .elementwise = true},
                       {args.operands[0], args.operands[1], args.cotangents[0]});
  };
  return [=](const Tensors& inputs) -> Tensors {
    return custom_call({.kernel = kGatedKernel,
                        .target = kGatedTarget,
                        .attributes = {{"silu", silu}},
                        .results = {shape},
                        .in = {split, split},
                        .out = {split},
                        .cost = {.flops = 25 * elements, .bytes = 3 * bytes},
                        .takes_slices = true,
                        .elementwise = true,
                        .gradient = gradient},
                       inputs);
  };
}

std::optional<Kernel> rms_norm_kernel(const CompositeSite& site) {
  const Shape x = site.inputs[0], weight = site.inputs[1];
  const Partition split = site.partitions[0];
  if (!is_cpu_float(x) || !is_cpu_float(weight) || weight.dims != Dims{x.dims.back()} ||
      !rows_are_split(x, split, site.mesh))
    return std::nullopt;
  const double eps = std::get<double>(site.attributes.at("eps"));
  const double offset = std::get<double>(site.attributes.at("weight_offset"));
  const Shape inverse = rows_shape(x, DType::kF32);
  const Partition rows = first_dims(split, inverse.dims.size());
  const int64_t bytes = x.bytes(), elements = x.elements();
  // The call's operands are x and the f32 weight. Its results are y and the inverse of the root mean square.
  auto gradient = [=](const VjpArgs& args) -> Tensors {
    Tensors out(2);
    const Tensor& dy = args.cotangents[0];
    if (!dy) return out;
    const Tensor &in = args.operands[0], &factor = args.results[1];
    if (args.active[0])
      out[0] = custom_call({.kernel = kRmsNormKernel,
                            .target = kRmsNormGradientTarget,
                            .results = {x},
                            .in = {split, {}, rows, split},
                            .out = {split},
                            .cost = {.flops = 8 * elements, .bytes = 3 * bytes},
                            .takes_slices = true,
                            .elementwise = true},
                           {in, args.operands[1], factor, dy})[0];
    if (args.active[1]) {
      Dims all_but_last;
      for (int64_t d = 0; d + 1 < in.rank(); ++d) all_but_last.push_back(d);
      out[1] = reduce_sum(convert(dy, DType::kF32) * convert(in, DType::kF32) * expand(factor, -1), all_but_last);
    }
    return out;
  };
  return [=](const Tensors& inputs) -> Tensors {
    const Tensor weight32 = convert(inputs[1], DType::kF32);
    return {custom_call({.kernel = kRmsNormKernel,
                         .target = kRmsNormTarget,
                         .attributes = {{"eps", static_cast<float>(eps)}},
                         .results = {x, inverse},
                         .in = {split, {}},
                         .out = {split, rows},
                         .cost = {.flops = 4 * elements, .bytes = 2 * bytes},
                         .takes_slices = true,
                         .elementwise = true,
                         .gradient = gradient},
                        {inputs[0], offset == 0 ? weight32 : weight32 + offset})[0]};
  };
}

std::optional<Kernel> cross_entropy_kernel(const CompositeSite& site) {
  const Shape logits = site.inputs[0], slope = site.results[2];
  const Partition split = site.partitions[0];
  if (logits.dtype != DType::kF32 || !is_cpu_float(slope) || !rows_are_split(logits, split, site.mesh))
    return std::nullopt;
  const Shape rows = rows_shape(logits, DType::kF32);
  const Partition of_rows = first_dims(split, rows.dims.size());
  return [=](const Tensors& inputs) -> Tensors {
    Tensors operands = inputs;
    if (operands.size() < 3) operands.push_back(full(1, rows));
    return custom_call({.kernel = kCrossEntropyKernel,
                        .target = kCrossEntropyTarget,
                        .results = {rows, rows, slope},
                        .in = {split, of_rows, of_rows},
                        .out = {of_rows, of_rows, split},
                        .cost = {.flops = 25 * logits.elements(), .bytes = logits.bytes() + slope.bytes()},
                        .takes_slices = true},
                       operands);
  };
}

}  // namespace fettle::cpu
