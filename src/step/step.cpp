#include "step/step.h"

#include <algorithm>

#include "base/error.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "models/blocks/moe.h"
#include "models/classifier.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"
#include "step/offload.h"
#include "step/preference.h"
#include "step/state/placement.h"

namespace fettle {
namespace {

using BatchInputs = std::map<std::string, Tensor>;  // by BatchArray::name

std::vector<Tensor> arrays_of(const BatchInputs& batch) {
  std::vector<Tensor> out;
  for (const auto& [name, array] : batch) out.push_back(array);
  return out;
}

BatchInputs with_arrays(const BatchInputs& batch, const std::vector<Tensor>& arrays) {
  BatchInputs out;
  for (const auto& [name, array] : batch) out[name] = arrays[out.size()];
  return out;
}

// Trained tokens of each sequence, f32: [.., T] -> [..]. Of a classifier, which trains none, all that are no padding.
Tensor count_tokens(const BatchInputs& batch) {
  const auto targets = batch.find("targets");
  const Tensor counted = targets == batch.end() ? batch.at("segments") - 1.0 : targets->second;
  return convert(reduce_sum(convert(compare(counted, "GE", constant(0, DType::kI32)), DType::kI32), {-1}), DType::kF32);
}

Remat remat_of(const std::string& name) {
  return name == "none" ? Remat::kNone : name == "dots" ? Remat::kDots : Remat::kFull;
}

// A trained row's input as the forward pass reads it.
Tensor weight_of(const Job& job, const WeightRow& row, const Tensor& input) {
  return job.has_master(row) ? copy_of_master(input, job.partition(row), job.compute) : input;
}

Tensor add_row(Program& program, const Job& job, const WeightRow& row, const std::string& name, DType dtype) {
  const Shape shape = stacked_shape(row, job.model.config, row.dtype.value_or(dtype));
  return program.input(name, shape, job.partition(row), job.weight_memory(row));
}

BatchInputs add_batch(Program& program, const Job& job, const Dims& rows, int64_t length) {
  BatchInputs batch;
  for (const BatchArray& array : batch_arrays(job, rows, length))
    batch[array.name] = program.input("batch/" + array.name, array.shape,
                                      job.sharding.partition(array.axes, array.shape.dims, "the batch"));
  return batch;
}

// What a row counts in the loss's mean, f32 [.., B] or [.., R]: its trained tokens, or 1 when it is no filler.
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

// A model's weights with what its forward pass does beside them.
struct ModelInGraph {
  const Weights& weights;
  bool adapted = false;
  bool balanced = false;  // its routers' balance is a part of the loss
  Tensor squares = {};    // as fetch_layers takes it
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

// The trained model, and of preferences the one it is compared with.
struct Models {
  ModelInGraph trained;
  std::optional<ModelInGraph> reference;
};

struct BatchLoss {
  Tensor sum;        // over the trained tokens, or the rows
  Tensor losses_R;   // of preferences and classifiers: of each row
  Tensor metrics;    // of preferences
  Tensor logits_BK;  // of classifiers
};

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
  BatchLoss out{reduce_sum(loss.losses_R, {0}), loss.losses_R, loss.metrics, {}};
  if (!differentiable) return out;
  // The loss by a token's logits is its slope by the sequence's log-probability times that token's own.
  const Tensor slope = stop_gradient(grad(out.sum, {in.trained_S})[0]);
  const TokenLoss weighted =
      pass.loss(targets, {.differentiable = true, .head_trained = job.trains_head(), .row_weights = -slope});
  out.sum = weighted.sum + stop_gradient(out.sum - weighted.sum);
  out.sum = pass.with_balance(job, out.sum, count_of(job, batch));
  return out;
}

BatchLoss batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                     const DropoutKey* dropout) {
  if (job.model.classifies()) return classifier_batch_loss(job, models.trained, batch, remat, dropout);
  if (has_preferences(job.recipe)) return preference_batch_loss(job, models, batch, remat, dropout, true);
  const Pass pass = run_model(job, models.trained, batch, remat, dropout);
  const Tensor sum = pass.loss(batch.at("targets"), {.differentiable = true, .head_trained = job.trains_head()}).sum;
  return {.sum = pass.with_balance(job, sum, count_of(job, batch))};
}

struct Gradients {
  Tensor loss;                // summed over tokens, or over rows of replies
  Tensor metrics;             // of preferences: sums
  std::vector<Tensor> grads;  // of one micro-batch in the weights' dtype, of several f32
  Tensor host_squares;        // of those in the host's memory, summed; null: there are none
};

// Micro-batches one after another in a loop; their sums of gradients and losses are carried. Gradients are those of the
// loss times `scale`, when there is one.
Gradients accumulate(const Job& job, Models models, const std::vector<Tensor>& trained, const BatchInputs& batch,
                     const Tensor& seed, const Tensor& scale) {
  const Remat remat = remat_of(job.recipe.gradient_checkpointing);
  const bool on_host = std::ranges::any_of(job.trained, [&](const auto& row) { return gradient_on_host(job, row); });
  const int64_t micro_batches = batch.at("tokens").dim(0);
  auto one = [&](const BatchInputs& micro, const Tensor& index) -> Gradients {
    const DropoutKey key{bit_xor(seed, convert(index, DType::kU32) * 0x85ebca6b)};
    std::vector<Tensor> wanted = trained;
    // Of several micro-batches the squares are those of the sum.
    if (on_host && micro_batches == 1) wanted.push_back(models.trained.squares = constant(0, DType::kF32));
    const BatchLoss loss = batch_loss(job, models, micro, remat, &key);
    Gradients out{loss.sum, loss.metrics, grad(scale ? loss.sum * scale : loss.sum, wanted), {}};
    if (models.trained.squares) {
      out.host_squares = out.grads.back();
      out.grads.pop_back();
    }
    return out;
  };
  if (micro_batches == 1) {
    BatchInputs first;
    for (const auto& [name, x] : batch) first[name] = reshape(x, {x.dims().begin() + 1, x.dims().end()});
    return one(first, constant(0, DType::kI32));
  }
  std::vector<Tensor> carries{constant(0, DType::kF32)};
  for (size_t i = 0; i < trained.size(); ++i) carries.push_back(full(0, trained[i].shape().with_dtype(DType::kF32)));
  const bool metrics = has_preferences(job.recipe);
  if (metrics) carries.push_back(full(0, {DType::kF32, {kPreferenceSums}}));
  if (on_host) carries.push_back(constant(0, DType::kF32));
  const ScanStep sums =
      scan(micro_batches, carries, arrays_of(batch),
           [&](const Tensor& index, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
             const Gradients g = one(with_arrays(batch, xs), index);
             ScanStep step{{carried[0] + g.loss}, {}};
             Tensor squares = constant(0, DType::kF32);
             for (size_t i = 0; i < g.grads.size(); ++i) {
               const WeightRow& row = job.trained[i];
               if (!gradient_on_host(job, row)) {
                 step.carries.push_back(carried[1 + i] + convert(g.grads[i], DType::kF32));
                 continue;
               }
               const Tensor first = compare(index, "EQ", constant(0, DType::kI32));
               const HostSum sum = add_by_layer(carried[1 + i], g.grads[i], job.partition(row), first);
               step.carries.push_back(sum.stack);
               squares = squares + sum.squares;
             }
             if (metrics) step.carries.push_back(carried[1 + g.grads.size()] + g.metrics);
             if (on_host) step.carries.push_back(squares);
             return step;
           });
  const auto grads = sums.carries.begin() + 1;
  return {sums.carries[0],
          metrics ? sums.carries[1 + trained.size()] : Tensor{},
          {grads, grads + static_cast<std::ptrdiff_t>(trained.size())},
          on_host ? sums.carries.back() : Tensor{}};
}

Tensor gradient_norm(const Job& job, const Gradients& sums, const Tensor& divisor) {
  std::vector<Tensor> means;
  for (size_t i = 0; i < sums.grads.size(); ++i)
    if (!gradient_on_host(job, job.trained[i])) means.push_back(convert(sums.grads[i], DType::kF32) / divisor);
  const Tensor norm = global_norm(means);
  return sums.host_squares ? sqrt(norm * norm + sums.host_squares / divisor / divisor) : norm;
}

// `clipped` makes the update's gradient of a raw one. Where `sound` does not hold, all stays as it was.
Updated update_row(const Job& job, const WeightRow& row, const HeldRow& held,
                   const std::function<Tensor(const Tensor&)>& clipped, const std::map<std::string, Tensor>& scalars,
                   const Tensor& sound) {
  if (updated_by_layer(job, row)) return update_by_layer(job, row, held, clipped, scalars, sound);
  const std::vector<StateArray> arrays = optimizer_state(job, row);
  UpdateInputs in{convert(held.weight, DType::kF32), clipped(held.grad), held.state, scalars};
  for (size_t s = 0; s < arrays.size(); ++s)
    if (arrays[s].memory == Memory::kHost) in.state[s] = place(in.state[s], Memory::kDevice, arrays[s].partition);
  Updated next = job.optimizer.update(optim_weight(job, row), in);
  next.weight = select(sound, convert(next.weight, job.trained_dtype), held.weight);
  for (size_t s = 0; s < arrays.size(); ++s) {
    next.state[s] = select(sound, next.state[s], in.state[s]);
    if (arrays[s].memory == Memory::kHost) next.state[s] = place(next.state[s], Memory::kHost, arrays[s].partition);
  }
  return next;
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
    weights[stack_name(row)] = weight_of(job, row, add_row(program, job, row, trained_input(row), job.trained_dtype));
  for (const WeightRow& row : job.frozen)
    weights[stack_name(row)] = add_row(program, job, row, frozen_input(row), job.frozen_dtype);
  return weights;
}

Forward make_forward(const Job& job, const Weights& weights, Remat remat, const Tensor& squares) {
  Forward f{
      .config = job.model.config, .weights = weights, .sharding = job.sharding, .compute = job.compute, .remat = remat};
  f.float8 = job.float8;
  f.fetch = fetch_layers(job, squares);
  f.unpack = unpack_quantised(job.quantised, job.model.family->layer_prefix, job.frozen_dtype, job.sharding);
  return f;
}

Program build_train_step(const Job& job, int64_t length) {
  Program program(job.sharding.mesh());
  BuildScope scope(program.block());
  Weights weights;
  std::vector<Tensor> trained, computed;
  for (const WeightRow& row : job.trained) {
    trained.push_back(add_row(program, job, row, trained_input(row), job.trained_dtype));
    computed.push_back(weights[stack_name(row)] = weight_of(job, row, trained.back()));
  }
  std::vector<std::vector<Tensor>> states;
  for (const WeightRow& row : job.trained) {
    states.emplace_back();
    for (const StateArray& array : optimizer_state(job, row))
      states.back().push_back(program.input(array.name, array.shape, array.partition, array.memory));
  }
  for (const WeightRow& row : job.frozen)
    weights[stack_name(row)] = add_row(program, job, row, frozen_input(row), job.frozen_dtype);
  const Weights reference = reference_weights(program, job, weights);
  const BatchInputs batch =
      add_batch(program, job, {job.recipe.gradient_accumulation_steps, job.sequences_per_micro_batch()}, length);
  std::map<std::string, Tensor> scalars;
  for (const auto& [name, value] : job.optimizer.scalars(1, 0)) scalars[name] = program.input(name, {DType::kF32, {}});
  const Tensor seed = program.input("seed", {DType::kU32, {}});
  const Tensor count = maximum(count_of(job, batch), constant(1, DType::kF32));
  // float16 would overflow at a sum over many tokens: there the mean is scaled.
  const Tensor scaling = job.scales_loss() ? program.input(kLossScale, {DType::kF32, {2}}) : Tensor{};
  const Tensor loss_scale = scaling ? loss_scale_of(scaling) : Tensor{};
  const Gradients sums = accumulate(job, models_of(job, weights, reference), computed, batch, seed,
                                    loss_scale ? loss_scale / count : Tensor{});

  PathScope update("update");
  const Tensor loss = sums.loss / count, divisor = loss_scale ? loss_scale : count;
  const Tensor norm = gradient_norm(job, sums, divisor);
  const Tensor factor = job.recipe.max_grad_norm > 0 ? clip_factor(norm, job.recipe.max_grad_norm) : Tensor{};
  auto clipped = [&](const Tensor& g) {
    const Tensor mean = convert(g, DType::kF32) / divisor;
    return factor ? mean * factor : mean;
  };
  const Tensor sound = logical_and(is_finite(loss), is_finite(norm));
  std::vector<Updated> updated;
  for (size_t i = 0; i < trained.size(); ++i)
    updated.push_back(update_row(job, job.trained[i], {trained[i], sums.grads[i], states[i]}, clipped, scalars, sound));
  for (size_t i = 0; i < updated.size(); ++i) {
    const WeightRow& row = job.trained[i];
    program.output(trained_input(row), updated[i].weight, job.partition(row), trained_input(row),
                   job.weight_memory(row));
  }
  for (size_t i = 0; i < updated.size(); ++i) {
    const std::vector<StateArray> arrays = optimizer_state(job, job.trained[i]);
    for (size_t s = 0; s < arrays.size(); ++s)
      program.output(arrays[s].name, updated[i].state[s], arrays[s].partition, arrays[s].name, arrays[s].memory);
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
  const BatchInputs batch = add_batch(program, job, {rows}, length);
  if (job.model.classifies()) {
    const BatchLoss loss = classifier_batch_loss(job, {weights, job.lora.has_value()}, batch, Remat::kFull, nullptr);
    program.output("loss", loss.losses_R);
    program.output("tokens", counted_rows(job, batch));
    if (job.recipe.stage == "rm")
      program.output("metrics", loss.metrics);
    else
      program.output("logits", loss.logits_BK);
    return program;
  }
  if (has_preferences(job.recipe)) {
    const Weights reference = reference_weights(program, job, weights);
    const BatchLoss loss =
        preference_batch_loss(job, models_of(job, weights, reference), batch, Remat::kFull, nullptr, false);
    program.output("loss", loss.losses_R);
    program.output("tokens", counted_rows(job, batch));
    program.output("metrics", loss.metrics);
    return program;
  }
  const TokenLoss loss =
      run_model(job, {weights, job.lora.has_value()}, batch, Remat::kFull, nullptr).loss(batch.at("targets"), {});
  program.output("loss", reduce_sum(loss.losses_BT, {1}));
  program.output("tokens", counted_rows(job, batch));
  program.output("correct", reduce_sum(loss.correct_BT, {1}));
  return program;
}

}  // namespace fettle
