#include "optim/adam_mini.h"

#include "graph/ops.h"
#include "optim/adamw.h"
#include "optim/update.h"

namespace fettle {
namespace {

// The blocks of a weight. The weight's array is reshaped to the dims `apart`: [stack.., blocks.., elements of a
// block..]. `first` is the index of the first dim of elements.
struct MiniBlocks {
  Dims apart;
  int64_t first;
  LogicalAxes axes;  // the axes of the dims before `first`
};

MiniBlocks mini_blocks_of(const OptimWeight& weight) {
  const Dims& dims = weight.shape.dims;
  auto axes = [&](int64_t count) { return LogicalAxes(weight.axes.begin(), weight.axes.begin() + count); };
  if (!weight.is_matrix()) return {dims, weight.stacked, axes(weight.stacked)};
  if (weight.head_rows == 0) return {dims, weight.first_column(), axes(weight.first_column())};
  // The dim that numbers the rows. A query or key projection has only one such dim.
  const int64_t rows = weight.first_column() - 1;
  MiniBlocks out{dims, rows + 1, axes(rows)};
  out.apart[rows] /= weight.head_rows;
  out.apart.insert(out.apart.begin() + rows + 1, weight.head_rows);
  out.axes.push_back("");
  return out;
}

std::vector<OptimState> adam_mini_state(const OptimWeight& weight, const OptimOptions& options) {
  if (weight.bias) return adamw_state(weight, options);
  const MiniBlocks blocks = mini_blocks_of(weight);
  return {{"m", weight.shape.with_dtype(DType::kF32), weight.axes},
          {"v", {DType::kF32, {blocks.apart.begin(), blocks.apart.begin() + blocks.first}}, blocks.axes}};
}

Updated adam_mini_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (weight.bias) return adamw_update(weight, options, in);
  const MiniBlocks blocks = mini_blocks_of(weight);
  Dims within, ones = blocks.apart;
  double count = 1;
  for (auto d = static_cast<size_t>(blocks.first); d < blocks.apart.size(); ++d) {
    within.push_back(static_cast<int64_t>(d));
    count *= static_cast<double>(blocks.apart[d]);
    ones[d] = 1;
  }
  const Tensor square = reshape(in.grad * in.grad, blocks.apart);
  const Tensor m = in.state[0] * options.beta1 + in.grad * (1 - options.beta1);
  const Tensor v = in.state[1] * options.beta2 + reduce_sum(square, within) / count * (1 - options.beta2);
  const Tensor denominator = sqrt(v) / in.scalars.at("correction2_sqrt") + options.epsilon;
  const Tensor step = reshape(m, blocks.apart) / reshape(denominator, ones);
  const Tensor rate = rate_of(weight, in) / in.scalars.at("correction1");
  return {decayed(weight, in) - reshape(step, weight.shape.dims) * rate, {m, v}};
}

}  // namespace

UpdateRule adam_mini_rule() {
  return {"adam_mini", {}, adam_mini_state, adamw_scalars, adam_mini_update};
}

}  // namespace fettle
