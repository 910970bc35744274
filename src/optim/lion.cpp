#include "optim/lion.h"

#include "graph/ops.h"
#include "optim/blockwise.h"
#include "optim/update.h"

namespace fettle {
namespace {

std::vector<StateRow> state(const OptimWeight& weight, const OptimOptions&) {
  return {{"m", weight.shape.with_dtype(DType::kF32), weight.axes}};
}

std::map<std::string, double> scalars(const OptimOptions&, int64_t, double rate) {
  return {{"learning_rate", rate}};
}

Updated update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const Tensor& m = in.state[0];
  const Tensor direction = sign(m * options.beta1 + in.grad * (1 - options.beta1));
  return {decayed(weight, in) - rate_of(weight, in) * direction, {m * options.beta2 + in.grad * (1 - options.beta2)}};
}

std::vector<StateRow> state_8bit(const OptimWeight& weight, const OptimOptions& options) {
  return is_quantized(weight) ? quantized_rows("m", weight) : state(weight, options);
}

Updated update_8bit(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (!is_quantized(weight)) return update(weight, options, in);
  UpdateInputs exact = in;
  exact.state = {dequantize({in.state[0], in.state[1]}, weight, DynamicMap::kSigned)};
  const Updated next = update(weight, options, exact);
  const Quantized m = quantize(next.state[0], weight, DynamicMap::kSigned);
  return {next.weight, {m.codes, m.absmax}};
}

}  // namespace

UpdateRule lion_rule() {
  return {"lion_32bit", {}, state, scalars, update};
}

UpdateRule lion_8bit_rule() {
  return {"lion_8bit", {}, state_8bit, scalars, update_8bit};
}

}  // namespace fettle
