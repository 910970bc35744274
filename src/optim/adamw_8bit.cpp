#include "optim/adamw_8bit.h"

#include "optim/adamw.h"
#include "optim/blockwise.h"

namespace fettle {
namespace {

std::vector<OptimState> adamw_8bit_state(const OptimWeight& weight, const OptimOptions& options) {
  if (!has_8bit_state(weight)) return adamw_state(weight, options);
  std::vector<OptimState> state = quantized_state("m", weight);
  for (OptimState& one : quantized_state("v", weight)) state.push_back(std::move(one));
  return state;
}

Updated adamw_8bit_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (!has_8bit_state(weight)) return adamw_update(weight, options, in);
  UpdateInputs exact = in;
  exact.state = {dequantize({in.state[0], in.state[1]}, weight, DynamicMap::kSigned),
                 dequantize({in.state[2], in.state[3]}, weight, DynamicMap::kUnsigned)};
  const Updated next = adamw_update(weight, options, exact);
  const Quantized m = quantize(next.state[0], weight, DynamicMap::kSigned);
  const Quantized v = quantize(next.state[1], weight, DynamicMap::kUnsigned);
  return {next.weight, {m.codes, m.absmax, v.codes, v.absmax}};
}

}  // namespace

UpdateRule adamw_8bit_rule() {
  return {"adamw_8bit", {}, adamw_8bit_state, adamw_scalars, adamw_8bit_update};
}

}  // namespace fettle
