#include "models/classifier.h"

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {

Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD) {
  internal_check(model.classifies(), "class_logits: this {} is not a classifier", model.family->model_type);
  PathScope scope("classifier");
  const ClassifierHead& head = model.family->classifier;
  const Dims tokens{hidden_BTD.dim(0), hidden_BTD.dim(1)};
  const Tensor zero = constant(0, DType::kI32);
  const Tensor real_BT = compare(f.segments, "GT", zero);
  const Tensor place_BT = broadcast_to(iota({DType::kI32, {tokens[1]}}, 0), tokens);
  Tensor taken_BT;
  if (head.pooled == Pooled::kFirst) {
    taken_BT = logical_and(real_BT, compare(place_BT, "EQ", zero));
  } else {
    const Tensor length_B = reduce_sum(convert(real_BT, DType::kI32), {1});  // each row begins at place 0
    taken_BT = compare(place_BT + 1.0, "EQ", expand(length_B, 1));
  }
  // Padding may contain NaN. select() removes it; multiplying by zero would not.
  Tensor x_BD = reduce_sum(select(expand(taken_BT, 2), hidden_BTD, constant(0, hidden_BTD.dtype())), {1});
  for (const std::string& module : head.modules) {
    const bool last = module == head.modules.back();
    const DType dtype = last ? DType::kF32 : f.compute;
    x_BD = dot_general(x_BD, convert(f.weights.at(module + ".weight"), f.compute),
                       {.lhs_contracting = {1}, .rhs_contracting = {1}}, dtype);
    if (head.bias) x_BD = x_BD + convert(f.weights.at(module + ".bias"), dtype);
    if (!last) x_BD = tanh(x_BD);
  }
  return x_BD;
}

Tensor class_losses(Problem problem, const Tensor& logits_BK, const Tensor& classes) {
  PathScope scope("loss");
  const int64_t k = logits_BK.dim(1);
  const double share = 1 / static_cast<double>(k);
  if (problem == Problem::kSingleLabel) {
    const Tensor label_B1 = convert(classes, DType::kI32);
    const Tensor one_hot = convert(compare(label_B1, "EQ", expand(iota({DType::kI32, {k}}, 0), 0)), DType::kF32);
    const Tensor top_B1 = stop_gradient(expand(reduce_max(logits_BK, {1}), 1));
    const Tensor shifted = logits_BK - top_B1;
    return log(reduce_sum(exp(shifted), {1})) - reduce_sum(shifted * one_hot, {1});
  }
  if (problem == Problem::kMultiLabel) {
    const Tensor right = classes * log_sigmoid(logits_BK) + (1.0 - classes) * log_sigmoid(-logits_BK);
    return reduce_sum(right, {1}) * -share;
  }
  const Tensor off = logits_BK - classes;
  return reduce_sum(off * off, {1}) * share;
}

}  // namespace fettle
