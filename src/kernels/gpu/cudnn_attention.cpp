#include "kernels/gpu/cudnn_attention.h"

#include <array>
#include <nlohmann/json.hpp>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/attention_site.h"

namespace fettle::gpu {
namespace {

using Tensors = std::vector<Tensor>;

// The bias has T^2 numbers for each row, so the kernel refuses longer rows.
constexpr int64_t kLongest = 8192;
constexpr int64_t kWidest = 128;  // cuDNN computes wider heads only on some devices

// Source of the rates: Shah et al., "FlashAttention-3" (arXiv 2407.08608), measured on an H100 SXM (peak 989 TFLOP/s)
// with heads of 128 elements and 4,096 positions. Forward: cuDNN with a causal mask, 518 TFLOP/s (figure 5). Backward:
// cuDNN without a mask, 499 TFLOP/s (figure 6). Both rates are without a bias; no rate with a bias was found.
constexpr int64_t kForwardPercent = 52, kBackwardPercent = 50;

bool supported(const AttentionSite& site) {
  const Dims& q = site.q_shard.dims;
  return (site.q.dtype == DType::kBF16 || site.q.dtype == DType::kF16) && q[3] <= kWidest && q[3] % 8 == 0 &&
         q[1] <= kLongest && q[1] % 2 == 0 && site.softcap == 0 && site.slopes.empty();
}

// Returns the dims of a product in the form of xla.DotDimensionNumbers.
nlohmann::json product_dims(int lhs_contracting, int rhs_contracting, std::array<int, 2> lhs_batch,
                            std::array<int, 2> rhs_batch) {
  auto texts = [](auto... dims) { return nlohmann::json::array({std::to_string(dims)...}); };
  return {{"lhs_contracting_dimensions", texts(lhs_contracting)},
          {"rhs_contracting_dimensions", texts(rhs_contracting)},
          {"lhs_batch_dimensions", texts(lhs_batch[0], lhs_batch[1])},
          {"rhs_batch_dimensions", texts(rhs_batch[0], rhs_batch[1])}};
}

// Returns the text of an xla.gpu.GpuBackendConfig. Scores are [B, N, T, T]; the other factors of products are
// [B, T, N, H].
std::string config(const AttentionSite& site, bool backward) {
  const Dims& q = site.q_shard.dims;
  auto text = [](int64_t number) { return std::to_string(number); };
  nlohmann::json fmha = {{"algorithm",
                          {{"algo_id", "0"},
                           {"math_type", "TENSOR_OP_MATH"},
                           {"tuning_knobs", {{"17", "1"}, {"24", "0"}}},
                           {"is_cudnn_frontend", true},
                           {"workspace_size", "0"}}},
                         {"fmha_scale", site.scale},
                         {"intermediate_tensor_shape",
                          {{"element_type", site.q.dtype == DType::kBF16 ? "BF16" : "F16"},
                           {"dimensions", {text(q[0]), text(q[2]), text(q[1]), text(q[1])}},
                           {"layout", {{"minor_to_major", {"3", "2", "1", "0"}}}}}},
                         {"is_flash_attention", true},
                         {"mask_type", site.causal ? "CAUSAL" : "NO_MASK"},
                         {"dropout_rate", 0.0},
                         {"seed", 42},
                         {"sliding_window_length", 0},
                         {"max_seg_per_batch", 1},
                         {"is_paged_attention", false}};
  const nlohmann::json by_head = product_dims(3, 3, {0, 2}, {0, 2}), to_queries = product_dims(3, 1, {0, 1}, {0, 2}),
                       to_keys = product_dims(2, 1, {0, 1}, {0, 2});
  if (backward) {
    fmha["bmm1_grad_gemm1_dot_dimension_numbers"] = to_keys;
    fmha["bmm1_grad_gemm2_dot_dimension_numbers"] = to_queries;
    fmha["bmm2_grad_gemm1_dot_dimension_numbers"] = to_keys;
    fmha["bmm2_grad_gemm2_dot_dimension_numbers"] = by_head;
  } else {
    fmha["bmm1_dot_dimension_numbers"] = by_head;
    fmha["bmm2_dot_dimension_numbers"] = to_queries;
  }
  return nlohmann::json{{"operation_queue_id", "0"}, {"cudnn_fmha_backend_config", fmha}}.dump();
}

// Returns the operations and the traffic of one pass, summed over all devices. With a causal mask, cuDNN skips the
// blocks above the diagonal. Blocks that only the bias hides are computed. The bias is read once for each head.
CallCost cost(const AttentionSite& site, bool backward) {
  constexpr int64_t kBlock = 128;  // assumed size of cuDNN's blocks
  const Dims &q = site.q.dims, &local = site.q_shard.dims;
  const int64_t pairs = site.causal ? q[1] * (q[1] + kBlock) / 2 : q[1] * q[1];
  const int64_t scores = q[0] * q[2] * pairs, products = backward ? 5 : 2;
  const int64_t statistics = 4 * q[0] * q[2] * q[1];
  CallCost out{.flops = scores * products * 2 * q[3],
               .bytes = (backward ? 4 : 2) * (site.q.bytes() + site.k.bytes()) + statistics + 2 * scores,
               .percent = backward ? kBackwardPercent : kForwardPercent};
  if (!backward) return out;
  // The scratch memory has the gradient of queries and the dot products of o and its gradient, both in f32. With
  // grouped heads, it also has the gradients of keys and values of each query head. Source: CompositeSDPABackwardNode
  // of cudnn-frontend, without its deterministic mode.
  const int64_t rows = local[0] * local[2] * local[1];
  out.workspace = rows * local[3] * 4 + rows * 4;
  if (site.k_shard.dims[2] != local[2]) out.workspace += 2 * rows * local[3] * 2;
  return out;
}

struct Operand {
  Tensor value;
  Partition split;
};

struct Result {
  Shape shape;
  Partition split;
  Dims minor_to_major;
};

// Returns the description of a result that cuDNN gives as [B, N, T, H], and whose memory is in the order [B, T, N, H].
Result heads_first(const Shape& shape, const Partition& split) {
  const Dims& d = shape.dims;
  return {{shape.dtype, {d[0], d[2], d[1], d[3]}},
          {{split.dims[0], split.dims[2], split.dims[1], split.dims[3]}},
          {3, 1, 2, 0}};
}

Tensor heads_last(const Tensor& x) {
  return transpose(x, {0, 2, 1, 3});
}

Tensors call(const AttentionSite& site, bool backward, const std::vector<Operand>& operands,
             std::vector<Result> results, const std::function<Tensors(const VjpArgs&)>& gradient = {}) {
  results.push_back({{DType::kU8, {0}}, {}, {0}});  // the workspace, whose size XLA sets on the device
  CustomCall out{.kernel = kCudnnAttention,
                 .target = backward ? "__cudnn$fmhaScaleBiasSoftmaxBackward" : "__cudnn$fmhaScaleBiasSoftmax",
                 .config = config(site, backward),
                 .cost = cost(site, backward),
                 .gradient = gradient};
  Tensors values;
  for (const Operand& operand : operands) {
    values.push_back(operand.value);
    out.in.push_back(operand.split);
  }
  for (const Result& result : results) {
    out.results.push_back(result.shape);
    out.out.push_back(result.split);
    out.result_layouts.push_back(result.minor_to_major);
  }
  return custom_call(out, values);
}

// Computes the gradients of q, k and v. The forward call's operands are q, k, v and the bias. Its results are o [B, N,
// T, H], the log-sum-exp f32 [B, N, T], and the workspace. Only o has a cotangent.
Tensors gradient(const AttentionSite& site, const VjpArgs& args) {
  Tensors cotangents(args.operands.size());
  if (!args.cotangents[0]) return cotangents;
  const Result of_queries = heads_first(site.q, site.split_q), of_keys = heads_first(site.k, site.split_k);
  const Tensors found = call(site, true,
                             {{args.operands[0], site.split_q},
                              {args.operands[1], site.split_k},
                              {args.operands[2], site.split_k},
                              {args.results[1], site.split_sums},
                              {heads_last(args.cotangents[0]), site.split_q},
                              {args.operands[3], {{site.split_q.dims[0], {}, {}, {}}}},
                              {heads_last(args.results[0]), site.split_q}},
                             {of_queries, of_keys, of_keys});
  for (size_t i = 0; i < 3; ++i) cotangents[i] = heads_last(found[i]);
  return cotangents;
}

}  // namespace

Tensor attention_bias(const Tensor& segments_BT, const Tensor& window, DType dtype) {
  const int64_t b = segments_BT.dim(0), t = segments_BT.dim(1);
  Tensor seen = compare(expand(segments_BT, 2), Direction::kEQ, expand(segments_BT, 1));
  if (window) {
    const Shape pairs{DType::kI32, {t, t}};
    seen = logical_and(seen, broadcast_to(compare(iota(pairs, 0) - iota(pairs, 1), Direction::kLT, window), {b, t, t}));
  }
  // The bias of a pair that is not seen. JAX uses the same numbers. They are not close to the dtype's lowest finite
  // number, because cuDNN subtracts two of these biases from each other.
  const double hidden = dtype == DType::kBF16 ? -0x1p41 : -0x1p15;
  return expand(select(seen, constant(0, dtype), constant(hidden, dtype)), 1);
}

std::optional<Kernel> cudnn_attention(const CompositeSite& composite) {
  const std::optional<AttentionSite> found = read_attention(composite);
  if (!found || !supported(*found)) return std::nullopt;
  return [site = *found](const Tensors& inputs) -> Tensors {
    const Tensor window = site.window == 0  ? Tensor{}
                          : site.window > 0 ? constant(static_cast<double>(site.window), DType::kI32)
                                            : inputs.at(4);
    const Tensor bias = attention_bias(inputs[3], window, site.q.dtype);
    const Shape sums{DType::kF32, {site.q.dims[0], site.q.dims[2], site.q.dims[1]}};
    const Tensors results = call(site, false,
                                 {{inputs[0], site.split_q},
                                  {inputs[1], site.split_k},
                                  {inputs[2], site.split_k},
                                  {bias, {{site.split_q.dims[0], {}, {}, {}}}}},
                                 {heads_first(site.q, site.split_q), {sums, site.split_sums, {2, 1, 0}}},
                                 [site](const VjpArgs& args) { return gradient(site, args); });
    return {heads_last(results[0])};
  };
}

}  // namespace fettle::gpu
