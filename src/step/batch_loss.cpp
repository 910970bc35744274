#include "step/batch_loss.h"

#include <numeric>

#include "graph/ops.h"
#include "graph/random.h"
#include "models/blocks/experts/balance.h"
#include "models/blocks/loss.h"
#include "models/blocks/sequences.h"
#include "step/embedding_noise.h"

namespace fettle {
namespace {

ModelPass run_model(const Run& run, const ModelInGraph& model, const BatchInputs& batch, const RematPolicy& remat,
                    const PositionKey* dropout) {
  Forward f = make_forward(run, model.weights,
                           {.remat = remat, .adapted = model.adapted, .dropout = dropout, .squares = model.squares});
  f.micro_batches = batch.micro_batches;
  f.used_micro_batches = batch.used;
  f.tokens = batch.at(BatchPart::kTokens);
  f.positions = batch.at(BatchPart::kPositions);
  f.segments = batch.at(BatchPart::kSegments);
  if (const auto types = batch.find(BatchPart::kTokenTypes); types != batch.end()) f.token_types = types->second;
  if (const auto prompts = batch.find(BatchPart::kPrompts); prompts != batch.end()) f.prompts = prompts->second;
  if (dropout != nullptr && run.noise_alpha > 0)
    f.disturb = [&, dropout](const Tensor& x) { return with_noise(x, run.noise_alpha, *dropout); };
  if (run.model.config.router_aux_loss_coef != 0 && model.balanced) f.router = no_routes(run.model.config);
  if (run.router_bias_rate > 0 && model.balanced) f.loads = no_loads(run.model.config);
  // Each second sequence is a prompt with another row's reply. As in TRL, it has no part in the balance of the experts.
  if (run.stage->grouping == RowGrouping::kWithMismatched && (f.router || f.loads))
    f.counted = remainder(batch.at(BatchPart::kSequences), constant(2, DType::kI32));
  const Tensor hidden = run.model.family->forward(f);
  f.disturb = nullptr;
  const TokenHead head = run.model.classifies() ? TokenHead{} : head_of(run.model, model.weights);
  if (run.sharding.stages() == 1) return {run.model, f, hidden, head};
  Forward after{
      .config = f.config, .weights = f.weights, .sharding = run.loss_sharding, .compute = run.precision.compute};
  after.tokens = f.tokens;
  return {run.model, after, after.sharding.constrain(hidden, {"batch", "length", "act_embed"}), head};
}

// Returns the weights of the reference model. Adds frozen copies of the parameters in run.reference.params as inputs of
// the program. All other weights are those of the trained model.
Weights reference_weights(Program& program, const Run& run, const Weights& weights) {
  Weights out = weights;
  for (const Param& param : run.reference.params)
    out.set(param, add_param(program, run, param, reference_input(param), run.reference_dtype()));
  return out;
}

BatchLoss stage_loss(const Run& run, const Models& models, const BatchInputs& batch, const ModelPass& trained,
                     bool differentiable) {
  LossInputs in{.batch = batch,
                .keys = run.keys,
                .labels = run.labels(),
                .trained = trained,
                .differentiable = differentiable,
                .head_trained = differentiable && !run.model.classifies() && run.trains_head()};
  if (models.reference) in.reference = [&] { return run_model(run, *models.reference, batch, {}, nullptr); };
  return run.stage->loss(in);
}

}  // namespace

BatchInputs add_batch(Program& program, const Run& run, const BatchShape& shape, BatchExtent extent) {
  BatchInputs batch;
  batch.sequences = shape.sequences;
  for (const BatchArray& array : batch_arrays(run, shape, extent))
    batch[array.part] = program.input("batch/" + array.name, array.shape,
                                      run.sharding.partition(array.axes, array.shape.dims, "the batch"));
  return batch;
}

Tensor count_of(const Run& run, const BatchInputs& batch) {
  const Tensor counts = run.stage->counts(batch);
  Dims all(counts.rank());
  std::iota(all.begin(), all.end(), 0);
  return reduce_sum(counts, all);
}

Models add_models(Program& program, const Run& run, const Weights& weights) {
  const ModelInGraph trained{weights, run.adapter.lora.has_value(), true};
  if (!run.has_reference()) return {trained, {}};
  return {trained, ModelInGraph{reference_weights(program, run, weights), run.reference.adapted}};
}

BatchLoss batch_loss(const Run& run, const Models& models, const BatchInputs& batch, const RematPolicy& remat,
                     const Tensor& seed) {
  const PositionKey dropout{seed, batch.at(BatchPart::kSequences), batch.at(BatchPart::kPositions)};
  const ModelPass trained = run_model(run, models.trained, batch, remat, &dropout);
  BatchLoss out = stage_loss(run, models, batch, trained, true);
  out.loads = trained.forward.loads;
  // The step later divides the sum over the micro-batches by their total count. So the balancing loss is multiplied by
  // this micro-batch's count here. The result is the mean of the micro-batches' balancing losses, weighted by their
  // counts.
  if (trained.forward.router)
    out.sum = out.sum + balance_loss(trained.forward) * run.model.config.router_aux_loss_coef * count_of(run, batch);
  return out;
}

BatchLoss row_losses(const Run& run, Models models, const BatchInputs& batch) {
  models.trained.balanced = false;
  const ModelPass trained = run_model(run, models.trained, batch, {}, nullptr);
  return stage_loss(run, models, batch, trained, false);
}

Tensor next_token_logits(const Run& run, Models models, const BatchInputs& batch,
                         const std::vector<int32_t>& candidates) {
  models.trained.balanced = false;
  const ModelPass pass = run_model(run, models.trained, batch, {}, nullptr);
  const Tensor zero = constant(0, DType::kI32);
  const Tensor is_trained = compare(batch.at(BatchPart::kTargets), Direction::kGE, zero);
  const Tensor numbers = select(is_trained, batch.at(BatchPart::kSequences), zero);
  const Tensor hidden_SD = last_of_sequences(pass.hidden_BTD, numbers, batch.sequences);
  std::vector<Tensor> ids;
  for (const int32_t id : candidates) ids.push_back(reshape(constant(id, DType::kI32), {1}));
  const Tensor ids_K = concatenate(ids, 0);
  TokenHead head{take(pass.head.weight_VD, ids_K)};
  if (pass.head.bias_V) head.bias_V = reshape(take(expand(pass.head.bias_V, 1), ids_K), {-1});
  return logits(pass.forward, hidden_SD, head);
}

}  // namespace fettle
