#include "step/step.h"

#include "base/error.h"
#include "graph/grad.h"
#include "graph/ops.h"
#include "models/loss.h"
#include "models/moe.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"

namespace fettle {
namespace {

struct BatchInputs {
  Tensor tokens, targets, positions, segments;
};

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
  return {input("batch/tokens"), input("batch/targets"), input("batch/positions"), input("batch/segments")};
}

Tensor count_trained(const Tensor& targets) {
  const Tensor trained = convert(compare(targets, "GE", constant(0, DType::kI32)), DType::kI32);
  Dims all;
  for (int64_t d = 0; d < targets.rank(); ++d) all.push_back(d);
  return convert(reduce_sum(trained, all), DType::kF32);
}

TokenLoss forward_loss(const Job& job, const Weights& weights, const BatchInputs& batch, Remat remat,
                       const DropoutKey* dropout, bool differentiable) {
  Forward f = make_forward(job, weights, remat);
  if (job.lora) f.adapt = lora_adapt(*job.lora, job.compute, dropout);
  f.tokens = batch.tokens;
  f.positions = batch.positions;
  f.segments = batch.segments;
  const double balance = differentiable ? job.model.config.router_aux_loss_coef : 0;
  if (balance != 0) f.router = no_routes(job.model.config);
  const Tensor hidden = job.model.family->forward(f);
  TokenLoss loss = token_loss(f, hidden, head_of(job.model, weights), batch.targets,
                              {.differentiable = differentiable, .head_trained = differentiable && job.trains_head()});
  // Sums are divided by the trained tokens of all micro-batches later: so each has its share of the mean.
  if (balance != 0) loss.sum = loss.sum + balance_loss(f) * balance * count_trained(batch.targets);
  return loss;
}

struct Gradients {
  Tensor loss;                // summed over tokens
  std::vector<Tensor> grads;  // f32
};

// Micro-batches one after another in a loop; their sums of gradients and losses are carried. Gradients are those of the
// loss times `scale`, when there is one.
Gradients accumulate(const Job& job, const Weights& weights, const std::vector<Tensor>& trained,
                     const BatchInputs& batch, const Tensor& seed, const Tensor& scale) {
  const Remat remat = remat_of(job.recipe.gradient_checkpointing);
  auto one = [&](const BatchInputs& micro, const Tensor& index) -> Gradients {
    const DropoutKey key{bit_xor(seed, convert(index, DType::kU32) * 0x85ebca6b)};
    const TokenLoss loss = forward_loss(job, weights, micro, remat, &key, true);
    Gradients out{loss.sum, grad(scale ? loss.sum * scale : loss.sum, trained)};
    for (Tensor& g : out.grads) g = convert(g, DType::kF32);
    return out;
  };
  const int64_t micro_batches = batch.tokens.dim(0);
  if (micro_batches == 1) {
    auto first = [](const Tensor& x) { return reshape(x, {x.dim(1), x.dim(2)}); };
    return one({first(batch.tokens), first(batch.targets), first(batch.positions), first(batch.segments)},
               constant(0, DType::kI32));
  }
  std::vector<Tensor> carries{constant(0, DType::kF32)};
  for (size_t i = 0; i < trained.size(); ++i) carries.push_back(full(0, trained[i].shape().with_dtype(DType::kF32)));
  const ScanStep sums =
      scan(micro_batches, carries, {batch.tokens, batch.targets, batch.positions, batch.segments},
           [&](const Tensor& index, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
             const Gradients g = one({xs[0], xs[1], xs[2], xs[3]}, index);
             ScanStep step{{carried[0] + g.loss}, {}};
             for (size_t i = 0; i < g.grads.size(); ++i) step.carries.push_back(carried[1 + i] + g.grads[i]);
             return step;
           });
  return {sums.carries[0], {sums.carries.begin() + 1, sums.carries.end()}};
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
  const BatchInputs batch =
      add_batch(program, job, {job.recipe.gradient_accumulation_steps, job.rows_per_micro_batch(), length});
  std::map<std::string, Tensor> scalars;
  for (const auto& [name, value] : job.optimizer.scalars(1, 0)) scalars[name] = program.input(name, {DType::kF32, {}});
  const Tensor seed = program.input("seed", {DType::kU32, {}});
  const Tensor tokens = maximum(count_trained(batch.targets), constant(1, DType::kF32));
  // float16 would overflow at a sum over many tokens: there the mean is scaled.
  const Tensor scaling = job.scales_loss() ? program.input(kLossScale, {DType::kF32, {2}}) : Tensor{};
  const Tensor loss_scale = scaling ? loss_scale_of(scaling) : Tensor{};
  const Gradients sums = accumulate(job, weights, trained, batch, seed, loss_scale ? loss_scale / tokens : Tensor{});

  PathScope update("update");
  const Tensor loss = sums.loss / tokens;
  std::vector<Tensor> grads;
  for (const Tensor& g : sums.grads) grads.push_back(g / (loss_scale ? loss_scale : tokens));
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
  return program;
}

Program build_eval_step(const Job& job, int64_t rows, int64_t length) {
  Program program(job.sharding.mesh());
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, job);
  const BatchInputs batch = add_batch(program, job, {rows, length});
  const TokenLoss loss = forward_loss(job, weights, batch, Remat::kFull, nullptr, false);
  program.output("loss", reduce_sum(loss.losses_BT, {1}));
  const Tensor trained = compare(batch.targets, "GE", constant(0, DType::kI32));
  program.output("tokens", reduce_sum(convert(trained, DType::kF32), {1}));
  program.output("correct", reduce_sum(loss.correct_BT, {1}));
  return program;
}

}  // namespace fettle
