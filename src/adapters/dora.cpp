#include "adapters/dora.h"

#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle {

// Computes the norm of each row of W + scale B A without the product B A. For a row w of W and the same row b of B, the
// squared norm is |w|^2 + 2 scale <b, A w> + scale^2 <b, A A^T b>.
Tensor magnitude_over_norm(const Layer& layer, const std::string& module, const LoraOptions& options) {
  const double scale = options.scale();
  auto f32 = [&](const std::string& part) { return stop_gradient(convert(layer[module + part], DType::kF32)); };
  const Tensor w = f32(".weight"), a = f32(".lora_A.weight"), b = f32(".lora_B.weight");
  const int64_t in = options.fan_in_fan_out ? 0 : w.rank() - 1, rank = b.rank() - 1;
  const Tensor wa = dot_general(w, a, {.lhs_contracting = {in}, .rhs_contracting = {1}});
  const Tensor aa = dot_general(a, a, {.lhs_contracting = {1}, .rhs_contracting = {1}});
  const Tensor baa = dot_general(b, aa, {.lhs_contracting = {rank}, .rhs_contracting = {0}});
  const Tensor square = reduce_sum(w * w, {in}) + reduce_sum(b * (wa * (2 * scale) + baa * (scale * scale)), {rank});
  return convert(layer[module + kMagnitude], DType::kF32) * rsqrt(maximum(square, constant(kLeastSquare, DType::kF32)));
}

Tensor start_of_magnitudes(const std::vector<Tensor>& stacks,
                           const std::function<Tensor(const std::vector<Tensor>&)>& weight_of, bool fan_in_fan_out) {
  const ScanStep all = scan(stacks[0].dim(0), {}, stacks,
                            [&](const Tensor&, const std::vector<Tensor>&, const std::vector<Tensor>& x) -> ScanStep {
                              const Tensor weight = convert(weight_of(x), DType::kF32);
                              const int64_t in = fan_in_fan_out ? 0 : weight.rank() - 1;
                              return {{}, {sqrt(reduce_sum(weight * weight, {in}))}};
                            });
  return all.ys[0];
}

}  // namespace fettle
