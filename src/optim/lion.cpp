#include "optim/lion.h"

#include "graph/ops.h"
#include "optim/blockwise.h"
#include "optim/update.h"

namespace fettle {
namespace {

std::vector<OptimState> lion_state(const OptimWeight& weight, const OptimOptions&) {
  return {{"m", weight.shape.with_dtype(DType::kF32), weight.axes}};
}

std::map<std::string, double> lion_scalars(const OptimOptions&, int64_t, double rate) {
  return {{"learning_rate", rate}};
}

Updated lion_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const Tensor& m = in.state[0];
  const Tensor direction = sign(m * options.beta1 + in.grad * (1 - options.beta1));
  return {decayed(weight, in) - rate_of(weight, in) * direction, {m * options.beta2 + in.grad * (1 - options.beta2)}};
}

std::vector<OptimState> lion_8bit_state(const OptimWeight& weight, const OptimOptions& options) {
  return has_8bit_state(weight) ? quantized_state("m", weight) : lion_state(weight, options);
}

Updated lion_8bit_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (!has_8bit_state(weight)) return lion_update(weight, options, in);
  UpdateInputs exact = in;
  exact.state = {dequantize({in.state[0], in.state[1]}, weight, DynamicMap::kSigned)};
  const Updated next = lion_update(weight, options, exact);
  const Quantized m = quantize(next.state[0], weight, DynamicMap::kSigned);
  return {next.weight, {m.codes, m.absmax}};
}

}  // namespace

UpdateRule lion_rule() {
  return {"lion_32bit", {}, lion_state, lion_scalars, lion_update};
}

UpdateRule lion_8bit_rule() {
  return {"lion_8bit", {}, lion_8bit_state, lion_scalars, lion_8bit_update};
}

}  // namespace fettle
