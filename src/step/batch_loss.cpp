#include "step/batch_loss.h"

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "models/blocks/moe.h"
#include "models/classifier.h"
#include "step/preference.h"
#include "step/state/batch_arrays.h"

namespace fettle {
namespace {

// Trained tokens of each sequence, f32: [.., T] -> [..]. Of a classifier, which trains none, all that are no padding.
Tensor count_tokens(const BatchInputs& batch) {
  const auto targets = batch.find("targets");
  const Tensor counted = targets == batch.end() ? batch.at("segments") - 1.0 : targets->second;
  return convert(reduce_sum(convert(compare(counted, "GE", constant(0, DType::kI32)), DType::kI32), {-1}), DType::kF32);
}

bool balances(const Job& job) {
  return job.model.config.router_aux_loss_coef != 0;
}

// The model over the sequences of a batch, up to the head.
struct Pass {
  Forward forward;
  Tensor hidden_BTD, head_VD;

  // Sums are divided by the count of all micro-batches later: so each has its share of the mean.
  Tensor with_balance(const Job& job, const Tensor& sum, const Tensor& count) const {
    return forward.router ? sum + balance_loss(forward) * job.model.config.router_aux_loss_coef * count : sum;
  }

  TokenLoss loss(const Tensor& targets, const LossOptions& options) const {
    return token_loss(forward, hidden_BTD, head_VD, targets, options);
  }
};

Pass run_model(const Job& job, const ModelInGraph& model, const BatchInputs& batch, Remat remat,
               const DropoutKey* dropout) {
  Forward f = make_forward(job, model.weights, remat, model.squares);
  if (model.adapted) {
    f.adapt = lora_adapt(*job.lora, job.compute, dropout);
    f.expert_pairs = expert_pairs(*job.lora);
  }
  f.tokens = batch.at("tokens");
  f.positions = batch.at("positions");
  f.segments = batch.at("segments");
  if (const auto types = batch.find("token_types"); types != batch.end()) f.token_types = types->second;
  if (balances(job) && model.balanced) f.router = no_routes(job.model.config);
  const Tensor hidden = job.model.family->forward(f);
  return {f, hidden, job.model.classifies() ? Tensor{} : head_of(job.model, model.weights)};
}

Tensor sequence_logps(const TokenLoss& loss) {
  return -reduce_sum(loss.losses_BT, {1});
}

// Of stages cls and rm. The head is small: its gradient needs no care.
BatchLoss classifier_batch_loss(const Job& job, const ModelInGraph& model, const BatchInputs& batch, Remat remat,
                                const DropoutKey* dropout) {
  const Pass pass = run_model(job, model, batch, remat, dropout);
  BatchLoss out{.logits_BK = class_logits(pass.forward, job.model, pass.hidden_BTD)};
  if (job.recipe.stage == "rm") {
    const Tensor scores_S = reshape(out.logits_BK, {out.logits_BK.dim(0)});
    const PreferenceLoss loss = preference_loss(job.recipe, {.trained_S = scores_S, .tokens_S = count_tokens(batch)});
    out.losses_R = loss.losses_R;
    out.metrics = loss.metrics;
  } else {
    out.losses_R = class_losses(job.recipe.problem_type, out.logits_BK, batch.at("classes")) * counted_rows(job, batch);
  }
  out.sum = pass.with_balance(job, reduce_sum(out.losses_R, {0}), count_of(job, batch));
  return out;
}

BatchLoss preference_batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                                const DropoutKey* dropout, bool differentiable) {
  const Pass pass = run_model(job, models.trained, batch, remat, dropout);
  const Tensor& targets = batch.at("targets");
  SequenceLogps in{.trained_S = sequence_logps(pass.loss(targets, {}))};
  if (models.reference)
    in.reference_S = sequence_logps(run_model(job, *models.reference, batch, Remat::kFull, nullptr).loss(targets, {}));
  in.tokens_S = count_tokens(batch);
  if (job.recipe.stage == "kto") in.preferences_S = batch.at("preferences");
  const PreferenceLoss loss = preference_loss(job.recipe, in);
  BatchLoss out{.sum = reduce_sum(loss.losses_R, {0}), .losses_R = loss.losses_R, .metrics = loss.metrics};
  if (!differentiable) return out;
  // The loss by a token's logits is its slope by the sequence's log-probability times that token's own.
  const Tensor slope = stop_gradient(grad(out.sum, {in.trained_S})[0]);
  const TokenLoss weighted =
      pass.loss(targets, {.differentiable = true, .head_trained = job.trains_head(), .row_weights = -slope});
  out.sum = weighted.sum + stop_gradient(out.sum - weighted.sum);
  out.sum = pass.with_balance(job, out.sum, count_of(job, batch));
  return out;
}

// The reference model's weights: those of the trained one, but for its frozen copies.
Weights reference_weights(Program& program, const Job& job, const Weights& weights) {
  Weights out = weights;
  for (const Param& param : job.reference)
    out.set(param, add_param(program, job, param, reference_input(param), job.reference_dtype()));
  return out;
}

}  // namespace

BatchInputs add_batch(Program& program, const Job& job, const Dims& rows, int64_t length) {
  BatchInputs batch;
  for (const BatchArray& array : batch_arrays(job, rows, length))
    batch[array.name] = program.input("batch/" + array.name, array.shape,
                                      job.sharding.partition(array.axes, array.shape.dims, "the batch"));
  return batch;
}

Tensor counted_rows(const Job& job, const BatchInputs& batch) {
  const Tensor tokens = count_tokens(batch);
  if (has_preferences(job.recipe)) return real_rows(tokens);
  return job.model.classifies() ? minimum(tokens, constant(1, DType::kF32)) : tokens;
}

Tensor count_of(const Job& job, const BatchInputs& batch) {
  const Tensor counted = counted_rows(job, batch);
  Dims all;
  for (int64_t d = 0; d < counted.rank(); ++d) all.push_back(d);
  return reduce_sum(counted, all);
}

Models add_models(Program& program, const Job& job, const Weights& weights) {
  const ModelInGraph trained{weights, job.lora.has_value(), true};
  if (!has_reference(job.recipe)) return {trained, {}};
  // A new adapter begins as nothing; one that is trained further is copied.
  const bool adapted = !job.adapter.empty() && job.recipe.ref_model.empty();
  return {trained, ModelInGraph{reference_weights(program, job, weights), adapted}};
}

BatchLoss batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                     const DropoutKey* dropout) {
  if (job.model.classifies()) return classifier_batch_loss(job, models.trained, batch, remat, dropout);
  if (has_preferences(job.recipe)) return preference_batch_loss(job, models, batch, remat, dropout, true);
  const Pass pass = run_model(job, models.trained, batch, remat, dropout);
  const Tensor sum = pass.loss(batch.at("targets"), {.differentiable = true, .head_trained = job.trains_head()}).sum;
  return {.sum = pass.with_balance(job, sum, count_of(job, batch))};
}

BatchLoss row_losses(const Job& job, Models models, const BatchInputs& batch) {
  models.trained.balanced = false;
  if (job.model.classifies()) return classifier_batch_loss(job, models.trained, batch, Remat::kFull, nullptr);
  if (has_preferences(job.recipe)) return preference_batch_loss(job, models, batch, Remat::kFull, nullptr, false);
  const TokenLoss loss = run_model(job, models.trained, batch, Remat::kFull, nullptr).loss(batch.at("targets"), {});
  return {.losses_R = reduce_sum(loss.losses_BT, {1}), .correct_R = reduce_sum(loss.correct_BT, {1})};
}

}  // namespace fettle
