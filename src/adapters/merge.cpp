#include "adapters/merge.h"

#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle {
namespace {

Tensor squares(const Tensor& weight, int64_t in) {
  return reduce_sum(weight * weight, {in});
}

// The factor on each output that brings it to its magnitude.
Tensor magnitude_over_weight_norm(const Tensor& magnitude, const Tensor& weight, int64_t in) {
  return magnitude / sqrt(maximum(squares(weight, in), constant(kLeastSquare, DType::kF32)));
}

}  // namespace

Tensor merged_weight(const Tensor& weight, const LoraParts& parts, const LoraOptions& options, double scale) {
  PathScope scope("merge");
  const int64_t in = options.fan_in_fan_out ? 0 : weight.rank() - 2;  // of a layer's
  std::vector<Tensor> xs{weight, parts.a, parts.b};
  if (parts.magnitude) xs.push_back(parts.magnitude);
  const ScanStep all = scan(
      weight.dim(0), {}, xs,
      [&](const Tensor& layer, const std::vector<Tensor>&, const std::vector<Tensor>& x) -> ScanStep {
        const Tensor &a = x[1], &b = x[2];
        const Tensor product = options.fan_in_fan_out
                                   ? dot_general(a, b, {.lhs_contracting = {0}, .rhs_contracting = {b.rank() - 1}})
                                   : dot_general(b, a, {.lhs_contracting = {b.rank() - 1}, .rhs_contracting = {0}});
        Tensor w = convert(x[0], DType::kF32) + product * scale;
        if (parts.magnitude) w = w * expand(magnitude_over_weight_norm(x[3], w, in), in);
        const Tensor merged = convert(w, weight.dtype());
        return {{}, {options.layers.empty() ? merged : select(has_pairs(options, layer), merged, x[0])}};
      });
  return all.ys[0];
}

Tensor merged_experts(const Tensor& weight, const Tensor& a, const Tensor& b, double scale) {
  PathScope scope("merge");
  const ScanStep all = scan(
      weight.dim(0), {}, {weight, a, b},
      [&](const Tensor&, const std::vector<Tensor>&, const std::vector<Tensor>& x) -> ScanStep {
        const DotDims dims{.lhs_batching = {2}, .rhs_batching = {0}, .lhs_contracting = {1}, .rhs_contracting = {1}};
        const Tensor product = dot_general(x[2], x[1], dims);
        return {{}, {convert(convert(x[0], DType::kF32) + product * scale, weight.dtype())}};
      });
  return all.ys[0];
}

Tensor row_norms(const std::vector<Tensor>& stacks, const std::function<Tensor(const std::vector<Tensor>&)>& weight_of,
                 bool fan_in_fan_out) {
  const ScanStep all = scan(stacks[0].dim(0), {}, stacks,
                            [&](const Tensor&, const std::vector<Tensor>&, const std::vector<Tensor>& x) -> ScanStep {
                              const Tensor weight = convert(weight_of(x), DType::kF32);
                              return {{}, {sqrt(squares(weight, fan_in_fan_out ? 0 : weight.rank() - 1))}};
                            });
  return all.ys[0];
}

}  // namespace fettle
