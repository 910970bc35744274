#include "models/classifier.h"

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "models/blocks/sequences.h"

namespace fettle {
namespace {

// Returns the hidden state [S, D] that the head of a causal model reads. As in Transformers' classifiers, this is the
// last token of a row that is not pad_token_id, if config.json has one: a row that ends with this token is read before
// it.
Tensor last_tokens(const Forward& f, const Tensor& hidden_BTD, const Tensor& numbers_BT, int64_t rows) {
  if (!f.config.pad_token_id) return last_of_sequences(hidden_BTD, numbers_BT, rows);
  const Tensor counted = compare(f.tokens, Direction::kNE, constant(*f.config.pad_token_id, DType::kI32));
  return last_counted_of_sequences(hidden_BTD, counted, numbers_BT, rows);
}

}  // namespace

Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD, const Tensor& numbers_BT,
                    int64_t rows) {
  internal_check(model.classifies(), "class_logits: this {} is not a classifier", model.family->model_type);
  PathScope scope("classifier");
  const ClassifierHead& head = model.family->classifier;
  const ClassifierFields& fields = f.config.classifier;
  Tensor x_SD = fields.mean                     ? mean_of_sequences(hidden_BTD, numbers_BT, rows)
                : head.pooled == Pooled::kFirst ? first_of_sequences(hidden_BTD, numbers_BT, rows)
                                                : last_tokens(f, hidden_BTD, numbers_BT, rows);
  for (const std::string& module : head.modules) {
    const bool last = module == head.modules.back();
    const DType dtype = last ? DType::kF32 : f.compute;
    if (last && !head.norm.empty()) x_SD = norm(f.config, f.weights, head.norm, x_SD);
    x_SD = dot_general(x_SD, convert(f.weights.at(module + ".weight"), f.compute),
                       {.lhs_contracting = {1}, .rhs_contracting = {1}}, dtype);
    if (head.bias && (last || fields.inner_bias)) x_SD = x_SD + convert(f.weights.at(module + ".bias"), dtype);
    if (!last) x_SD = activation(fields.act, x_SD);
  }
  return x_SD;
}

Tensor class_losses(Problem problem, const Tensor& logits_SK, const Tensor& classes) {
  PathScope scope("loss");
  const int64_t k = logits_SK.dim(1);
  const double share = 1 / static_cast<double>(k);
  if (problem == Problem::kSingleLabel) {
    const Tensor label_S1 = convert(classes, DType::kI32);
    const Tensor one_hot =
        convert(compare(label_S1, Direction::kEQ, expand(iota({DType::kI32, {k}}, 0), 0)), DType::kF32);
    const Tensor top_S1 = stop_gradient(expand(reduce_max(logits_SK, {1}), 1));
    const Tensor shifted = logits_SK - top_S1;
    return log(reduce_sum(exp(shifted), {1})) - reduce_sum(shifted * one_hot, {1});
  }
  if (problem == Problem::kMultiLabel) {
    const Tensor right = classes * log_sigmoid(logits_SK) + (1.0 - classes) * log_sigmoid(-logits_SK);
    return reduce_sum(right, {1}) * -share;
  }
  const Tensor off = logits_SK - classes;
  return reduce_sum(off * off, {1}) * share;
}

}  // namespace fettle
