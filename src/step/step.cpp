#include "step/step.h"

#include <algorithm>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/experts/balance.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"
#include "optim/update.h"
#include "stages/tokens.h"
#include "step/batch_loss.h"
#include "step/disk/update_program.h"
#include "step/offload.h"

namespace fettle {
namespace {

// Returns the arrays that have one slice for each micro-batch.
std::vector<Tensor> arrays_of(const BatchInputs& batch) {
  std::vector<Tensor> out;
  for (const auto& [part, array] : batch)
    if (by_position(part)) out.push_back(array);
  return out;
}

// Returns a copy of `batch` with `arrays` in place of the arrays that arrays_of(batch) returns, in the same order.
BatchInputs with_arrays(BatchInputs batch, const std::vector<Tensor>& arrays) {
  size_t next = 0;
  for (auto& [part, array] : batch)
    if (by_position(part)) array = arrays[next++];
  return batch;
}

// Joins the micro-batches into one batch for a pipeline. The pipeline takes them one after another
// (Forward::micro_batches). In the joined dim, the line is the major index and the micro-batch is the minor index, so
// each device keeps its lines.
BatchInputs as_one_batch(BatchInputs batch, const Tensor& used) {
  batch.used = used;
  for (auto& [part, array] : batch) {
    if (!by_position(part)) continue;
    batch.micro_batches = array.dim(0);
    array = reshape(transpose(array, {1, 0, 2}), {array.dim(1) * array.dim(0), array.dim(2)});
  }
  return batch;
}

struct Gradients {
  Tensor loss;                // sum over tokens or rows
  std::vector<Tensor> grads;  // in f32 if a loop sums them, else in the weights' dtype
  Tensor metrics;             // the sums that the stage's metrics need; null when the stage has no metrics
  Tensor loads;               // sum of Forward::loads; null when the routers' corrections do not change
  Tensor host_squares;        // squared norm of the gradients in host memory; null when no gradient is in host memory

  // Calls use(tensor) for each tensor that is not null, always in the same order.
  template <typename Use>
  void each(const Use& use) {
    use(loss);
    for (Tensor& one : grads) use(one);
    for (Tensor* one : {&metrics, &loads, &host_squares})
      if (*one) use(*one);
  }
};

// Returns the tensors of `g` that are not null. A loop over micro-batches carries them.
std::vector<Tensor> carries_of(Gradients g) {
  std::vector<Tensor> out;
  g.each([&](const Tensor& one) { out.push_back(one); });
  return out;
}

// Returns a copy of `g` with `carries` in place of the tensors that carries_of(g) returns.
Gradients with_carries(Gradients g, const std::vector<Tensor>& carries) {
  size_t next = 0;
  g.each([&](Tensor& one) { one = carries[next++]; });
  return g;
}

// Returns the sums before the first micro-batch.
Gradients no_gradients(const Run& run, const std::vector<Tensor>& trained, bool on_host) {
  Gradients out{.loss = constant(0, DType::kF32), .grads = {}, .metrics = {}, .loads = {}, .host_squares = {}};
  for (const Tensor& one : trained) out.grads.push_back(full(0, one.shape().with_dtype(DType::kF32)));
  if (run.stage->metric_sums > 0) out.metrics = full(0, {DType::kF32, {run.stage->metric_sums}});
  if (run.router_bias_rate > 0) out.loads = no_loads(run.model.config);
  if (on_host) out.host_squares = constant(0, DType::kF32);
  return out;
}

// Adds the gradients of micro-batch `index` to the sums of the earlier ones.
Gradients plus(const Run& run, Gradients sums, const Gradients& more, const Tensor& index) {
  sums.loss = sums.loss + more.loss;
  if (sums.host_squares) sums.host_squares = constant(0, DType::kF32);
  for (size_t i = 0; i < more.grads.size(); ++i) {
    const Param& param = run.trained[i];
    if (!gradient_on_host(run, param)) {
      sums.grads[i] = sums.grads[i] + convert(more.grads[i], DType::kF32);
      continue;
    }
    const Tensor first = compare(index, Direction::kEQ, constant(0, DType::kI32));
    const HostSum sum = add_by_layer(sums.grads[i], more.grads[i], run.partition(param), first);
    sums.grads[i] = sum.stack;
    sums.host_squares = sums.host_squares + sum.squares;
  }
  if (sums.metrics) sums.metrics = sums.metrics + more.metrics;
  if (sums.loads) sums.loads = sums.loads + more.loads;
  return sums;
}

// Runs the micro-batches one after another in a loop that carries the sums of gradients and losses. A single
// micro-batch that always runs needs no loop. A pipeline needs no loop either, because it takes all micro-batches at
// once. If `used` is given, only the first `used` micro-batches run. With `scale`, differentiates the loss times
// `scale`.
Gradients accumulate(const Run& run, Models models, const std::vector<Tensor>& trained, const BatchInputs& batch,
                     const Tensor& used, const Tensor& seed, const Tensor& scale) {
  const bool on_host =
      std::ranges::any_of(run.trained, [&](const auto& param) { return gradient_on_host(run, param); });
  const int64_t micro_batches = batch.at(BatchPart::kTokens).dim(0);
  // A pipeline makes its own loop.
  const bool loops = (micro_batches > 1 || used) && run.sharding.stages() == 1;
  auto one = [&](const BatchInputs& micro) -> Gradients {
    std::vector<Tensor> wanted = trained;
    // Without a loop over micro-batches, the backward pass computes the squared norm of the gradients in host memory
    // (fetch_layers). With this loop, add_by_layer() computes the squared norm of the summed gradients.
    if (on_host && !loops) wanted.push_back(models.trained.squares = constant(0, DType::kF32));
    const BatchLoss loss = batch_loss(run, models, micro, run.remat, seed);
    Gradients out{.loss = loss.sum,
                  .grads = grad(scale ? loss.sum * scale : loss.sum, wanted),
                  .metrics = loss.metrics,
                  .loads = loss.loads,
                  .host_squares = {}};
    if (models.trained.squares) {
      out.host_squares = out.grads.back();
      out.grads.pop_back();
    }
    return out;
  };
  if (run.sharding.stages() > 1) return one(as_one_batch(batch, used));
  if (!loops) {
    std::vector<Tensor> first;
    for (const Tensor& x : arrays_of(batch)) first.push_back(reshape(x, {x.dims().begin() + 1, x.dims().end()}));
    return one(with_arrays(batch, first));
  }
  const Gradients start = no_gradients(run, trained, on_host);
  const ScanStep sums =
      scan(micro_batches, carries_of(start), arrays_of(batch),
           [&](const Tensor& index, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
             const Gradients more = one(with_arrays(batch, xs));
             return {carries_of(plus(run, with_carries(start, carried), more, index)), {}};
           },
           {.limit = used});
  return with_carries(start, sums.carries);
}

Tensor gradient_norm(const Run& run, const Gradients& sums, const Tensor& divisor) {
  std::vector<Tensor> means;
  for (size_t i = 0; i < sums.grads.size(); ++i)
    if (!gradient_on_host(run, run.trained[i])) means.push_back(convert(sums.grads[i], DType::kF32) / divisor);
  const Tensor norm = global_norm(means);
  return sums.host_squares ? sqrt(norm * norm + sums.host_squares / divisor / divisor) : norm;
}

// Raw gradients, and the numbers by which the update divides and multiplies them.
struct ScaledGradients {
  std::vector<Tensor> grads;
  Tensor divisor, factor;  // `factor` is null without clipping
};

// Updates a parameter, whose gradient in `held` is raw. When `finite` is false, the weight and the state do not change.
Updated update_param(const Run& run, const Param& param, const HeldParam& held, const ScaledGradients& gradients,
                     const std::map<std::string, Tensor>& scalars, const Tensor& finite) {
  if (updated_by_layer(run, param)) {
    auto clipped = [&](const Tensor& g) { return scaled_gradient(g, gradients.divisor, gradients.factor); };
    return update_by_layer(run, param, held, clipped, scalars, finite);
  }
  const std::vector<StateArray> arrays = optimizer_state(run, param);
  WholeUpdate in{.weight = held.weight,
                 .grad = held.grad,
                 .state = held.state,
                 .divisor = gradients.divisor,
                 .factor = gradients.factor,
                 .finite = finite,
                 .scalars = scalars,
                 .partition = run.partition(param),
                 .of_state = {}};
  for (size_t s = 0; s < arrays.size(); ++s) {
    in.of_state.push_back(arrays[s].partition);
    if (arrays[s].memory == Memory::kHost) in.state[s] = place(in.state[s], Memory::kDevice, arrays[s].partition);
  }
  Updated next = updated(run.optimizer, optim_weight(run, param), in);
  for (size_t s = 0; s < arrays.size(); ++s)
    if (arrays[s].memory == Memory::kHost) next.state[s] = place(next.state[s], Memory::kHost, arrays[s].partition);
  return next;
}

// Adds the updated weights and state to the program's outputs. When `finite` is false, outputs the current weights and
// state unchanged.
void output_updates(Program& program, const Run& run, const std::vector<Tensor>& trained,
                    const std::vector<std::vector<Tensor>>& states, const ScaledGradients& gradients,
                    const std::map<std::string, Tensor>& scalars, const Tensor& finite) {
  std::vector<Updated> next;
  for (size_t i = 0; i < trained.size(); ++i)
    next.push_back(
        update_param(run, run.trained[i], {trained[i], gradients.grads[i], states[i]}, gradients, scalars, finite));
  for (size_t i = 0; i < next.size(); ++i) {
    const Param& param = run.trained[i];
    program.output(trained_input(param), next[i].weight, run.partition(param), trained_input(param), param.memory);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    const std::vector<StateArray> arrays = optimizer_state(run, run.trained[i]);
    for (size_t s = 0; s < arrays.size(); ++s)
      program.output(arrays[s].name, next[i].state[s], arrays[s].partition, arrays[s].name, arrays[s].memory);
  }
}

// Outputs the router corrections after this step (moved_corrections). When `finite` is false, outputs the current
// corrections unchanged.
void output_corrections(Program& program, const Run& run, const Weights& weights, const Tensor& loads,
                        const Tensor& finite) {
  for (const Param& param : run.frozen) {
    if (!run.moves(param)) continue;
    const Tensor& now = weights.at(param.stack_name());
    const Tensor next = moved_corrections(now, param.layers.numbers, loads, run.router_bias_rate);
    program.output(frozen_input(param), select(finite, next, now), run.partition(param), frozen_input(param),
                   param.memory);
  }
}

// Adds the gradients to the program's outputs, for the programs of build_update().
void output_gradients(Program& program, const Run& run, const ScaledGradients& gradients) {
  for (size_t i = 0; i < run.trained.size(); ++i) {
    const Param& param = run.trained[i];
    internal_check(gradients.grads[i].dtype() == gradient_dtype(run, param), "the gradient of {} is {}", param.hf_name,
                   gradients.grads[i].shape().to_string());
    program.output(gradient_output(param), gradients.grads[i], run.partition(param), "",
                   gradient_on_host(run, param) ? Memory::kHost : Memory::kDevice);
  }
  program.output(kDivisor, gradients.divisor);
  if (gradients.factor) program.output(kFactor, gradients.factor);
}

}  // namespace

Program build_train_step(const Run& run, int64_t length) {
  return build_train_step(run, padded_shape(run.batch, length));
}

Program build_train_step(const Run& run, const BatchShape& shape) {
  Program program(run.sharding.mesh(), choose_among(run.target.kernels));
  BuildScope scope(program.block());
  Weights weights;
  std::vector<Tensor> trained, computed;
  for (const Param& param : run.trained) {
    trained.push_back(add_param(program, run, param, trained_input(param), run.precision.trained));
    computed.push_back(weight_of(run, param, trained.back()));
    weights.set(param, computed.back());
  }
  std::vector<std::vector<Tensor>> states;
  for (const Param& param : run.trained) {
    states.emplace_back();
    for (const StateArray& array : optimizer_state(run, param))
      if (!array.on_disk)
        states.back().push_back(program.input(array.name, array.shape, array.partition, array.memory));
  }
  for (const Param& param : run.frozen)
    weights.set(param, add_param(program, run, param, frozen_input(param), run.precision.frozen));
  const Models models = add_models(program, run, weights);
  const BatchInputs batch = add_batch(program, run, shape, BatchExtent::kStep);
  const Tensor used = shape.counted ? program.input(kUsedMicroBatches, {DType::kI32, {}}) : Tensor{};
  std::map<std::string, Tensor> scalars;
  if (!run.state_on_disk())
    for (const auto& [name, value] : run.optimizer.scalars(1, 0))
      scalars[name] = program.input(name, {DType::kF32, {}});
  const Tensor seed = program.input("seed", {DType::kU32, {}});
  const Tensor count = maximum(count_of(run, batch), constant(1, DType::kF32));
  // In float16, the gradients of a sum over many tokens would overflow. So the program computes the gradients of the
  // mean times the loss scale.
  const Tensor scaling = run.scales_loss() ? program.input(kLossScale, {DType::kF32, {2}}) : Tensor{};
  const Tensor loss_scale = scaling ? loss_scale_of(scaling) : Tensor{};
  const Gradients sums =
      accumulate(run, models, computed, batch, used, seed, loss_scale ? loss_scale / count : Tensor{});

  PathScope update("update");
  const Tensor loss = sums.loss / count, divisor = loss_scale ? loss_scale : count;
  const Tensor norm = gradient_norm(run, sums, divisor);
  const Tensor factor = run.update.max_grad_norm > 0 ? clip_factor(norm, run.update.max_grad_norm) : Tensor{};
  const Tensor finite = logical_and(is_finite(loss), is_finite(norm));
  if (run.state_on_disk())
    output_gradients(program, run, {sums.grads, divisor, factor});
  else
    output_updates(program, run, trained, states, {sums.grads, divisor, factor}, scalars, finite);
  if (sums.loads) output_corrections(program, run, weights, sums.loads, finite);
  if (scaling) {
    const Tensor next = next_loss_scale(scaling, is_finite(norm));
    program.output(kLossScale, select(is_finite(loss), next, scaling), {}, kLossScale);
  }
  program.output("loss", loss);
  program.output("grad_norm", norm);
  if (sums.metrics) program.output("metrics", sums.metrics);
  return program;
}

Program build_eval_step(const Run& run, const BatchShape& shape, const std::vector<int32_t>& candidates) {
  Program program(run.sharding.mesh(), choose_among(run.target.kernels));
  BuildScope scope(program.block());
  const Models models = add_models(program, run, add_weight_inputs(program, run));
  const BatchInputs batch = add_batch(program, run, shape, BatchExtent::kMicroBatch);
  if (!candidates.empty()) {
    internal_check(run.stage->head == Head::kTokens, "build_eval_step: stage {} has no candidates", run.stage->name);
    program.output("tokens", trained_by_sequence(batch));
    program.output("logits", next_token_logits(run, models, batch, candidates));
    return program;
  }
  const BatchLoss loss = row_losses(run, models, batch);
  program.output("loss", loss.losses_R);
  program.output("tokens", loss.counts_R);
  if (loss.correct_R) program.output("correct", loss.correct_R);
  if (loss.metrics) program.output("metrics", loss.metrics);
  if (loss.logits_SK) program.output("logits", loss.logits_SK);
  return program;
}

}  // namespace fettle
