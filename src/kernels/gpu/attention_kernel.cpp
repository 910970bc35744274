#include "kernels/gpu/attention_kernel.h"

#include <algorithm>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/attention_site.h"
#include "kernels/gpu/attention_bounds.h"
#include "kernels/gpu/attention_ir.h"

namespace fettle::gpu {
namespace {

using Tensors = std::vector<Tensor>;

// The sizes of blocks for heads of up to `width` elements.
struct Tuning {
  int64_t width;
  AttentionTiles forward, query_gradient, key_gradient;
};

// How a vendor's devices compute attention.
struct GpuKernel {
  const char* id;
  std::vector<Tuning> halves, singles;        // for 16-bit floats and for f32, by ascending width
  int64_t forward_percent, backward_percent;  // CallCost::percent
};

// Source of the rates: Shah et al., "FlashAttention-3" (arXiv 2407.08608), measured on an H100 SXM (peak 989 TFLOP/s)
// with heads of 128 elements and 4,096 positions. Forward: Triton with a causal mask, 353 TFLOP/s (figure 5). Backward:
// FlashAttention-2 without a mask, 310 TFLOP/s (figure 6). The paper has no backward pass in Triton, so the backward
// rate is that of FlashAttention-2, the same method in CUDA. With Fettle's own kernels, only whole steps were measured
// (benchmarks/2026-11-26-h100.md).
const GpuKernel& cuda_kernel() {
  static const GpuKernel kernel{.id = kCudaAttention,
                                .halves = {{64, {128, 64, 4, 2}, {64, 64, 4, 2}, {64, 64, 4, 2}},
                                           {128, {128, 64, 8, 2}, {64, 64, 4, 2}, {64, 64, 8, 2}},
                                           {256, {64, 32, 4, 2}, {64, 32, 8, 1}, {32, 64, 8, 1}}},
                                .singles = {{64, {32, 32, 4, 1}, {32, 32, 4, 1}, {32, 32, 4, 1}},
                                            {256, {16, 16, 4, 1}, {16, 16, 4, 1}, {16, 16, 4, 1}}},
                                .forward_percent = 35,
                                .backward_percent = 31};
  return kernel;
}

// Source of the rates: github.com/ROCm/flash-attention, issue 142, measured on an MI300X (peak 1,307 TFLOP/s) with ROCm
// 6.3.2, heads of 128 elements, 16,384 positions and no mask. Forward 340 to 355 TFLOP/s, backward 194 to 207. These
// are FlashAttention-2 in Composable Kernel, AMD's library: the same method, but not in Triton. Fettle's own kernels
// have not been measured on a device.
const GpuKernel& rocm_kernel() {
  static const GpuKernel kernel{.id = kRocmAttention,
                                .halves = {{64, {128, 64, 4, 1}, {64, 64, 4, 1}, {64, 64, 4, 1}},
                                           {128, {128, 64, 4, 1}, {64, 64, 4, 1}, {64, 64, 4, 1}},
                                           {256, {64, 32, 4, 1}, {32, 32, 4, 1}, {32, 32, 4, 1}}},
                                .singles = {{64, {32, 32, 4, 1}, {32, 32, 4, 1}, {32, 32, 4, 1}},
                                            {256, {16, 16, 4, 1}, {16, 16, 4, 1}, {16, 16, 4, 1}}},
                                .forward_percent = 26,
                                .backward_percent = 15};
  return kernel;
}

enum class Pass { kForward, kQueryGradient, kKeyGradient };

// The data that the calls for one composite share.
struct Site : AttentionSite {
  const GpuKernel* kernel = nullptr;
  Tuning tuning;
  AttentionShape shard;  // one device's part

  const AttentionTiles& tiles(Pass pass) const {
    return pass == Pass::kForward         ? tuning.forward
           : pass == Pass::kQueryGradient ? tuning.query_gradient
                                          : tuning.key_gradient;
  }
};

std::optional<Site> read(const CompositeSite& site, const GpuKernel& kernel) {
  const std::optional<AttentionSite> found = read_attention(site);
  if (!found) return std::nullopt;
  const DType dtype = found->q.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) return std::nullopt;
  // A GPU starts at most 65535 instances along y and z, which are the heads and the rows. Block numbers must be exact
  // in f32 (attention_bounds.cpp).
  constexpr int64_t kMostInstances = 65535, kLongest = int64_t{1} << 24;
  const Dims& q = found->q_shard.dims;
  if (q[0] > kMostInstances || q[2] > kMostInstances || q[1] > kLongest) return std::nullopt;
  const std::vector<Tuning>& tunings = dtype == DType::kF32 ? kernel.singles : kernel.halves;
  const auto tuning = std::find_if(tunings.begin(), tunings.end(), [&](const Tuning& t) { return q[3] <= t.width; });
  if (tuning == tunings.end()) return std::nullopt;
  Site out{*found, &kernel, *tuning, {}};
  out.shard = {.rows = q[0],
               .length = q[1],
               .heads = q[2],
               .key_heads = found->k_shard.dims[2],
               .width = q[3],
               .dtype = dtype,
               .causal = found->causal,
               .window = found->window,
               .scale = static_cast<float>(found->scale),
               .softcap = static_cast<float>(found->softcap),
               .slopes = !found->slopes.empty()};
  return out;
}

// Returns the FLOPs over all devices. Leaves out only the blocks that the causal mask or a constant window hides.
// Blocks that documents or a window operand hide are counted, because these are not known in advance.
int64_t flops(const Site& site, Pass pass) {
  const AttentionShape& s = site.shard;
  const AttentionTiles& tiles = site.tiles(pass);
  int64_t seen = 0;
  for (int64_t first = 0; first < s.length; first += tiles.queries) {
    const int64_t end = s.causal ? std::min(s.length, first + tiles.queries) : s.length;
    const int64_t start = s.window > 0 ? std::max<int64_t>(0, first - s.window + 1) : 0;
    seen += blocks_of(end, tiles.keys) - start / tiles.keys;
  }
  // The gradients compute the scores again. dq takes three products. dk and dv take four products together.
  const int64_t products = pass == Pass::kForward ? 2 : pass == Pass::kQueryGradient ? 3 : 4;
  return site.devices * s.rows * s.heads * seen * products * 2 * tiles.queries * tiles.keys * s.padded_width();
}

// Makes one call. `inputs` are the composite's inputs; `more` has further operands with their partitions.
Tensors call(const Site& site, Pass pass, const Tensors& inputs, const std::vector<std::pair<Tensor, Partition>>& more,
             const std::vector<std::pair<Shape, Partition>>& results,
             const std::function<Tensors(const VjpArgs&)>& gradient = {}) {
  const AttentionTiles& tiles = site.tiles(pass);
  const bool of_queries = pass != Pass::kKeyGradient;
  const Tensor window = site.window == 0  ? Tensor{}
                        : site.window > 0 ? constant(static_cast<double>(site.window), DType::kI32)
                                          : inputs.at(4);
  const Tensor bounds =
      block_bounds(inputs[3], window,
                   {.queries = tiles.queries, .keys = tiles.keys, .of_queries = of_queries, .causal = site.causal});
  Tensors operands{inputs[0], inputs[1], inputs[2], inputs[3], bounds};
  CustomCall out{
      .kernel = site.kernel->id,
      .target = kTritonTarget,
      .in = {site.split_q, site.split_k, site.split_k, site.split_segments, {{site.split_q.dims[0], {}, {}}}},
      .gradient = gradient};
  auto add = [&](const Tensor& value, const Partition& split) {
    operands.push_back(value);
    out.in.push_back(split);
  };
  if (site.window < 0) add(window, {});
  if (!site.slopes.empty())
    add(literal(site.slopes, {DType::kF32, {static_cast<int64_t>(site.slopes.size())}}), site.split_heads());
  for (const auto& [value, split] : more) add(value, split);
  int64_t bytes = 0;
  for (const Tensor& operand : operands) bytes += operand.shape().bytes();
  for (const auto& [shape, split] : results) {
    out.results.push_back(shape);
    out.out.push_back(split);
    bytes += shape.bytes();
  }
  const char* name = pass == Pass::kForward         ? "attention"
                     : pass == Pass::kQueryGradient ? "attention_query_gradient"
                                                    : "attention_key_gradient";
  const auto ir = pass == Pass::kForward         ? attention_ir
                  : pass == Pass::kQueryGradient ? query_gradient_ir
                                                 : key_gradient_ir;
  const int64_t own = of_queries ? tiles.queries : tiles.keys;
  auto integer = [](int64_t value) { return static_cast<int32_t>(value); };
  out.attributes = {{"name", std::string(name)},
                    {"ir", ir(name, site.shard, tiles)},
                    {"num_warps", integer(tiles.warps)},
                    {"num_stages", integer(tiles.stages)},
                    {"grid_x", integer(blocks_of(site.shard.length, own))},
                    {"grid_y", integer(of_queries ? site.shard.heads : site.shard.key_heads)},
                    {"grid_z", integer(site.shard.rows)},
                    {"debug", false}};
  out.cost = {.flops = flops(site, pass),
              .bytes = bytes,
              .percent = pass == Pass::kForward ? site.kernel->forward_percent : site.kernel->backward_percent};
  return custom_call(out, operands);
}

// Computes the gradients of the operands. Only the result o has a cotangent, because log_sum is not a result of the
// composite.
Tensors gradient(const Site& site, const VjpArgs& args) {
  Tensors cotangents(args.operands.size());
  if (!args.cotangents[0]) return cotangents;
  const Tensor &o = args.results[0], &log_sum = args.results[1], &d_o = args.cotangents[0];
  // The call's operands begin with q, k, v, segments, bounds and, if site.window < 0, the window. All of these except
  // `bounds` are the composite's inputs.
  Tensors inputs(args.operands.begin(), args.operands.begin() + 4);
  if (site.window < 0) inputs.push_back(args.operands[5]);
  const Tensor dots_BTN = reduce_sum(convert(o, DType::kF32) * convert(d_o, DType::kF32), {3});
  const std::vector<std::pair<Tensor, Partition>> more{
      {d_o, site.split_q}, {log_sum, site.split_sums}, {transpose(dots_BTN, {0, 2, 1}), site.split_sums}};
  cotangents[0] = call(site, Pass::kQueryGradient, inputs, more, {{site.q, site.split_q}})[0];
  const Tensors of_keys =
      call(site, Pass::kKeyGradient, inputs, more, {{site.k, site.split_k}, {site.k, site.split_k}});
  cotangents[1] = of_keys[0];
  cotangents[2] = of_keys[1];
  return cotangents;
}

std::optional<Kernel> kernel_of(const CompositeSite& composite, const GpuKernel& kernel) {
  const std::optional<Site> found = read(composite, kernel);
  if (!found) return std::nullopt;
  return [site = *found](const Tensors& inputs) -> Tensors {
    const Shape sums{DType::kF32, {site.q.dims[0], site.q.dims[2], site.q.dims[1]}};
    return {call(site, Pass::kForward, inputs, {}, {{site.q, site.split_q}, {sums, site.split_sums}},
                 [site](const VjpArgs& args) { return gradient(site, args); })[0]};
  };
}

}  // namespace

std::optional<Kernel> cuda_attention(const CompositeSite& site) {
  return kernel_of(site, cuda_kernel());
}

std::optional<Kernel> rocm_attention(const CompositeSite& site) {
  return kernel_of(site, rocm_kernel());
}

bool attention_pays(const CompositeSite& site) {
  return site.inputs[0].dtype != DType::kF32;
}

}  // namespace fettle::gpu
