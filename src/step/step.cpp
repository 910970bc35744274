#include "step/step.h"

#include "base/error.h"
#include "graph/grad.h"
#include "graph/ops.h"
#include "models/loss.h"
#include "models/moe.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"
#include "step/preference.h"

namespace fettle {
namespace {

struct BatchInputs {
  Tensor tokens, targets, positions, segments;
  Tensor preferences;  // null but in stage kto

  std::vector<Tensor> arrays() const {
    std::vector<Tensor> out{tokens, targets, positions, segments};
    if (preferences) out.push_back(preferences);
    return out;
  }
  static BatchInputs of(const std::vector<Tensor>& arrays) {
    return {arrays[0], arrays[1], arrays[2], arrays[3], arrays.size() > 4 ? arrays[4] : Tensor{}};
  }
};

// Trained tokens of each sequence, f32: [.., T] -> [..].
Tensor count_tokens(const Tensor& targets) {
  return convert(reduce_sum(convert(compare(targets, "GE", constant(0, DType::kI32)), DType::kI32), {-1}), DType::kF32);
}

Remat remat_of(const std::string& name) {
  return name == "none" ? Remat::kNone : name == "dots" ? Remat::kDots : Remat::kFull;
}

Tensor add_row(Program& program, const Job& job, const WeightRow& row, const std::string& name, DType dtype) {
  const Shape shape = stacked_shape(row, job.model.config, row.dtype.value_or(dtype));
  return program.input(name, shape, job.partition(row));
}

// [lead..., T] arrays of the batch.
BatchInputs add_batch(Program& program, const Job& job, const Dims& dims) {
  LogicalAxes axes(dims.size(), "");
  axes[dims.size() - 2] = "batch";
  axes[dims.size() - 1] = "length";
  const Partition partition = job.sharding.partition(axes, dims, "the batch");
  auto input = [&](const char* name) { return program.input(name, {DType::kI32, dims}, partition); };
  BatchInputs batch{
      input("batch/tokens"), input("batch/targets"), input("batch/positions"), input("batch/segments"), {}};
  if (job.recipe.stage == "kto") {
    const Dims rows(dims.begin(), dims.end() - 1);
    axes.pop_back();
    batch.preferences =
        program.input("batch/preferences", {DType::kI32, rows}, job.sharding.partition(axes, rows, "the batch"));
  }
  return batch;
}

// What the loss is a mean over: trained tokens, or rows of replies.
Tensor count_of(const Job& job, const Tensor& targets) {
  const Tensor tokens = count_tokens(targets);
  const Tensor counted = has_preferences(job.recipe) ? real_rows(tokens) : tokens;
  Dims all;
  for (int64_t d = 0; d < counted.rank(); ++d) all.push_back(d);
  return reduce_sum(counted, all);
}

// A model's weights with what its forward pass does beside them.
struct ModelInGraph {
  const Weights& weights;
  bool adapted = false;
  bool balanced = false;  // its routers' balance is a part of the loss
};

bool balances(const Job& job) {
  return job.model.config.router_aux_loss_coef != 0;
}

// The model over the sequences of a batch, up to the head.
struct Pass {
  Forward forward;
  Tensor hidden_BTD, head_VD;

  // Sums are divided by the count of all micro-batches later: so each has its share of the mean.
  Tensor with_balance(const Job& job, const Tensor& sum, const Tensor& count) const {
    return balances(job) ? sum + balance_loss(forward) * job.model.config.router_aux_loss_coef * count : sum;
  }

  TokenLoss loss(const Tensor& targets, const LossOptions& options) const {
    return token_loss(forward, hidden_BTD, head_VD, targets, options);
  }
};

Pass run_model(const Job& job, const ModelInGraph& model, const BatchInputs& batch, Remat remat,
               const DropoutKey* dropout) {
  Forward f = make_forward(job, model.weights, remat);
  if (model.adapted) f.adapt = lora_adapt(*job.lora, job.compute, dropout);
  f.tokens = batch.tokens;
  f.positions = batch.positions;
  f.segments = batch.segments;
  if (balances(job) && model.balanced) f.router = no_routes(job.model.config);
  const Tensor hidden = job.model.family->forward(f);
  return {f, hidden, head_of(job.model, model.weights)};
}

// The trained model, and of preferences the one it is compared with.
struct Models {
  ModelInGraph trained;
  std::optional<ModelInGraph> reference;
};

struct BatchLoss {
  Tensor sum;       // over the trained tokens, or the rows of replies
  Tensor losses_R;  // of preferences: of each row
  Tensor metrics;   // of preferences
};

Tensor sequence_logps(const TokenLoss& loss) {
  return -reduce_sum(loss.losses_BT, {1});
}

BatchLoss preference_batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                                const DropoutKey* dropout, bool differentiable) {
  const Pass pass = run_model(job, models.trained, batch, remat, dropout);
  SequenceLogps in{.trained_S = sequence_logps(pass.loss(batch.targets, {}))};
  if (models.reference)
    in.reference_S =
        sequence_logps(run_model(job, *models.reference, batch, Remat::kFull, nullptr).loss(batch.targets, {}));
  in.tokens_S = count_tokens(batch.targets);
  in.preferences_S = batch.preferences;
  const PreferenceLoss loss = preference_loss(job.recipe, in);
  BatchLoss out{reduce_sum(loss.losses_R, {0}), loss.losses_R, loss.metrics};
  if (!differentiable) return out;
  // The loss by a token's logits is its slope by the sequence's log-probability times that token's own.
  const Tensor slope = stop_gradient(grad(out.sum, {in.trained_S})[0]);
  const TokenLoss weighted =
      pass.loss(batch.targets, {.differentiable = true, .head_trained = job.trains_head(), .row_weights = -slope});
  out.sum = weighted.sum + stop_gradient(out.sum - weighted.sum);
  out.sum = pass.with_balance(job, out.sum, count_of(job, batch.targets));
  return out;
}

BatchLoss batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                     const DropoutKey* dropout) {
  if (has_preferences(job.recipe)) return preference_batch_loss(job, models, batch, remat, dropout, true);
  const Pass pass = run_model(job, models.trained, batch, remat, dropout);
  const Tensor sum = pass.loss(batch.targets, {.differentiable = true, .head_trained = job.trains_head()}).sum;
  return {pass.with_balance(job, sum, count_of(job, batch.targets)), {}, {}};
}

struct Gradients {
  Tensor loss;                // summed over tokens, or over rows of replies
  Tensor metrics;             // of preferences: sums
  std::vector<Tensor> grads;  // f32
};

// Micro-batches one after another in a loop; their sums of gradients and losses are carried. Gradients are those of the
// loss times `scale`, when there is one.
Gradients accumulate(const Job& job, const Models& models, const std::vector<Tensor>& trained, const BatchInputs& batch,
                     const Tensor& seed, const Tensor& scale) {
  const Remat remat = remat_of(job.recipe.gradient_checkpointing);
  auto one = [&](const BatchInputs& micro, const Tensor& index) -> Gradients {
    const DropoutKey key{bit_xor(seed, convert(index, DType::kU32) * 0x85ebca6b)};
    const BatchLoss loss = batch_loss(job, models, micro, remat, &key);
    Gradients out{loss.sum, loss.metrics, grad(scale ? loss.sum * scale : loss.sum, trained)};
    for (Tensor& g : out.grads) g = convert(g, DType::kF32);
    return out;
  };
  const int64_t micro_batches = batch.tokens.dim(0);
  if (micro_batches == 1) {
    std::vector<Tensor> first;
    for (const Tensor& x : batch.arrays()) first.push_back(reshape(x, {x.dims().begin() + 1, x.dims().end()}));
    return one(BatchInputs::of(first), constant(0, DType::kI32));
  }
  std::vector<Tensor> carries{constant(0, DType::kF32)};
  for (size_t i = 0; i < trained.size(); ++i) carries.push_back(full(0, trained[i].shape().with_dtype(DType::kF32)));
  const bool metrics = has_preferences(job.recipe);
  if (metrics) carries.push_back(full(0, {DType::kF32, {kPreferenceSums}}));
  const ScanStep sums =
      scan(micro_batches, carries, batch.arrays(),
           [&](const Tensor& index, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
             const Gradients g = one(BatchInputs::of(xs), index);
             ScanStep step{{carried[0] + g.loss}, {}};
             for (size_t i = 0; i < g.grads.size(); ++i) step.carries.push_back(carried[1 + i] + g.grads[i]);
             if (metrics) step.carries.push_back(carried.back() + g.metrics);
             return step;
           });
  const auto grads = sums.carries.begin() + 1;
  return {sums.carries[0],
          metrics ? sums.carries.back() : Tensor{},
          {grads, grads + static_cast<std::ptrdiff_t>(trained.size())}};
}

// The reference model's weights: those of the trained one, but for its frozen copies.
Weights reference_weights(Program& program, const Job& job, const Weights& weights) {
  Weights out = weights;
  for (const WeightRow& row : job.reference)
    out[stack_name(row)] = add_row(program, job, row, reference_input(row), job.reference_dtype());
  return out;
}

Models models_of(const Job& job, const Weights& weights, const Weights& reference) {
  const ModelInGraph trained{weights, job.lora.has_value(), true};
  if (!has_reference(job.recipe)) return {trained, {}};
  // A new adapter begins as nothing; one that is trained further is copied.
  const bool adapted = !job.adapter.empty() && job.recipe.ref_model.empty();
  return {trained, ModelInGraph{reference, adapted}};
}

}  // namespace

Weights add_weight_inputs(Program& program, const Job& job) {
  Weights weights;
  for (const WeightRow& row : job.trained)
    weights[stack_name(row)] = add_row(program, job, row, trained_input(row), job.trained_dtype);
  for (const WeightRow& row : job.frozen)
    weights[stack_name(row)] = add_row(program, job, row, frozen_input(row), job.frozen_dtype);
  return weights;
}

Forward make_forward(const Job& job, const Weights& weights, Remat remat) {
  Forward f{
      .config = job.model.config, .weights = weights, .sharding = job.sharding, .compute = job.compute, .remat = remat};
  f.unpack = unpack_quantised(job.quantised, job.model.family->layer_prefix, job.frozen_dtype, job.sharding);
  return f;
}

Program build_train_step(const Job& job, int64_t length) {
  Program program(job.sharding.mesh());
  BuildScope scope(program.block());
  Weights weights;
  std::vector<Tensor> trained;
  for (const WeightRow& row : job.trained) {
    trained.push_back(add_row(program, job, row, trained_input(row), job.trained_dtype));
    weights[stack_name(row)] = trained.back();
  }
  std::vector<std::vector<Tensor>> states;
  for (const WeightRow& row : job.trained) {
    states.emplace_back();
    for (const StateArray& array : optimizer_state(job, row))
      states.back().push_back(program.input(array.name, array.shape, array.partition));
  }
  for (const WeightRow& row : job.frozen)
    weights[stack_name(row)] = add_row(program, job, row, frozen_input(row), job.frozen_dtype);
  const Weights reference = reference_weights(program, job, weights);
  const BatchInputs batch =
      add_batch(program, job, {job.recipe.gradient_accumulation_steps, job.sequences_per_micro_batch(), length});
  std::map<std::string, Tensor> scalars;
  for (const auto& [name, value] : job.optimizer.scalars(1, 0)) scalars[name] = program.input(name, {DType::kF32, {}});
  const Tensor seed = program.input("seed", {DType::kU32, {}});
  const Tensor count = maximum(count_of(job, batch.targets), constant(1, DType::kF32));
  // float16 would overflow at a sum over many tokens: there the mean is scaled.
  const Tensor scaling = job.scales_loss() ? program.input(kLossScale, {DType::kF32, {2}}) : Tensor{};
  const Tensor loss_scale = scaling ? loss_scale_of(scaling) : Tensor{};
  const Gradients sums = accumulate(job, models_of(job, weights, reference), trained, batch, seed,
                                    loss_scale ? loss_scale / count : Tensor{});

  PathScope update("update");
  const Tensor loss = sums.loss / count;
  std::vector<Tensor> grads;
  for (const Tensor& g : sums.grads) grads.push_back(g / (loss_scale ? loss_scale : count));
  const Tensor norm = global_norm(grads);
  if (job.recipe.max_grad_norm > 0) {
    const Tensor factor = clip_factor(norm, job.recipe.max_grad_norm);
    for (Tensor& g : grads) g = g * factor;
  }
  const Tensor sound = logical_and(is_finite(loss), is_finite(norm));
  std::vector<Updated> updated;
  for (size_t i = 0; i < trained.size(); ++i) {
    UpdateInputs in{convert(trained[i], DType::kF32), grads[i], states[i], scalars};
    Updated next = job.optimizer.update(optim_weight(job, job.trained[i]), in);
    next.weight = select(sound, convert(next.weight, job.trained_dtype), trained[i]);
    for (size_t s = 0; s < next.state.size(); ++s) next.state[s] = select(sound, next.state[s], states[i][s]);
    updated.push_back(std::move(next));
  }
  for (size_t i = 0; i < updated.size(); ++i) {
    const std::string name = trained_input(job.trained[i]);
    program.output(name, updated[i].weight, job.partition(job.trained[i]), name);
  }
  for (size_t i = 0; i < updated.size(); ++i) {
    const std::vector<StateArray> arrays = optimizer_state(job, job.trained[i]);
    for (size_t s = 0; s < arrays.size(); ++s)
      program.output(arrays[s].name, updated[i].state[s], arrays[s].partition, arrays[s].name);
  }
  if (scaling) {
    const Tensor next = next_loss_scale(scaling, is_finite(norm));
    program.output(kLossScale, select(is_finite(loss), next, scaling), {}, kLossScale);
  }
  program.output("loss", loss);
  program.output("grad_norm", norm);
  if (sums.metrics) program.output("metrics", sums.metrics);
  return program;
}

Program build_eval_step(const Job& job, int64_t rows, int64_t length) {
  Program program(job.sharding.mesh());
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, job);
  const BatchInputs batch = add_batch(program, job, {rows, length});
  if (has_preferences(job.recipe)) {
    const Weights reference = reference_weights(program, job, weights);
    const BatchLoss loss =
        preference_batch_loss(job, models_of(job, weights, reference), batch, Remat::kFull, nullptr, false);
    program.output("loss", loss.losses_R);
    program.output("tokens", real_rows(count_tokens(batch.targets)));
    program.output("metrics", loss.metrics);
    return program;
  }
  const TokenLoss loss =
      run_model(job, {weights, job.lora.has_value()}, batch, Remat::kFull, nullptr).loss(batch.targets, {});
  program.output("loss", reduce_sum(loss.losses_BT, {1}));
  program.output("tokens", count_tokens(batch.targets));
  program.output("correct", reduce_sum(loss.correct_BT, {1}));
  return program;
}

}  // namespace fettle
