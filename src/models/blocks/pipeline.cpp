#include "models/blocks/pipeline.h"

#include "graph/ops.h"

namespace fettle {
namespace {

// Returns the micro-batches of x [B, ...] as [micro-batches, B', ...].
Tensor by_micro_batch(const Tensor& x, int64_t micro_batches) {
  Dims apart = x.dims(), order{1, 0};
  apart[0] = micro_batches;
  apart.insert(apart.begin(), x.dim(0) / micro_batches);
  for (int64_t d = 2; d < static_cast<int64_t>(apart.size()); ++d) order.push_back(d);
  return transpose(reshape(x, apart), order);
}

// Returns the rows of micro-batch `number` (i32) of x [B, ...].
Tensor rows_of(const Tensor& x, int64_t micro_batches, const Tensor& number) {
  const Tensor all = by_micro_batch(x, micro_batches);
  std::vector<Tensor> starts(all.rank(), constant(0, DType::kI32));
  starts[0] = number;
  Dims sizes = all.dims();
  sizes[0] = 1;
  return reshape(dynamic_slice(all, starts, sizes), {sizes.begin() + 1, sizes.end()});
}

// Returns the Forward of a stage that computes micro-batch `number` (i32).
Forward forward_of(const Forward& f, const Tensor& number) {
  Forward stage = f;
  const Forward::RowsOf rows = [&](const Tensor& x) { return rows_of(x, f.micro_batches, number); };
  for (Tensor* array :
       {&stage.tokens, &stage.positions, &stage.segments, &stage.prompts, &stage.token_types, &stage.lengths})
    if (*array) *array = rows(*array);
  if (f.enter_stage) f.enter_stage(stage, rows);
  stage.micro_batches = 1;
  return stage;
}

}  // namespace

Tensor run_stages(const Forward& f, const Tensor& x, const std::vector<Tensor>& stacks, const StageLayers& layers) {
  const int64_t stages = f.sharding.stages(), count = f.micro_batches, ticks = count + stages - 1;
  const Shape state{x.dtype(), {stages, x.dim(0) / count, x.dim(1), x.dim(2)}};
  auto constrain = [&](const Tensor& states, bool by_tick) {
    LogicalAxes axes{"stages", "batch", "length", "act_embed"};
    if (by_tick) axes.insert(axes.begin(), "");
    return f.sharding.constrain(states, axes);
  };
  // Returns `values` [ticks, stages, ...] with zeros for all stages but `stage`.
  auto only = [&](int64_t stage, const Tensor& values) {
    const Tensor number = iota({DType::kI32, {stages, 1, 1, 1}}, 0);
    const Tensor is_stage = compare(number, Direction::kEQ, constant(static_cast<double>(stage), DType::kI32));
    return constrain(select(is_stage, values, constant(0, values.dtype())), true);
  };
  const Tensor inputs = pad(by_micro_batch(x, count), {0, 0, 0, 0}, {stages - 1, 0, 0, 0});
  Dims for_stages = state.dims;
  for_stages.insert(for_stages.begin(), ticks);
  const Tensor fed = only(0, broadcast_to(expand(inputs, 1), for_stages));

  // `results` are those of the previous tick. Each moves to the next stage; pad makes room for stage 0.
  const ScanBody tick = [&](const Tensor& time, const std::vector<Tensor>& results, const std::vector<Tensor>& next) {
    std::vector<Tensor> slices{constrain(pad(results[0], {1, 0, 0, 0}, {-1, 0, 0, 0}) + next[0], false)};
    slices.insert(slices.end(), stacks.begin(), stacks.end());
    const ScanBody one = [&](const Tensor& stage, const auto&, const std::vector<Tensor>& own) -> ScanStep {
      const Tensor zero = constant(0, DType::kI32), last = constant(static_cast<double>(count - 1), DType::kI32);
      const Tensor number = time - stage, near = minimum(maximum(number, zero), last);
      Forward of_stage = forward_of(f, near);
      const Tensor in = select(compare(number, Direction::kEQ, near), own[0], zeros_like(own[0]));
      return {{}, {layers(of_stage, stage, in, {own.begin() + 1, own.end()})}};
    };
    const ScanStep done = scan(stages, {}, slices, one, {.remat = Remat::kDots, .axis = kStageAxis});
    const Tensor now = constrain(done.ys[0], false);
    return ScanStep{{now}, {now}};
  };
  const Tensor first = constrain(full(0, state), false);
  const Tensor& used = f.used_micro_batches;
  const Tensor limit = used ? used + static_cast<double>(stages - 1) : Tensor{};
  const Tensor all = scan(ticks, {first}, {fed}, tick, {.remat = Remat::kDots, .limit = limit}).ys[0];
  const Tensor last =
      reduce_sum(only(stages - 1, all), {1});  // gives the last stage's values: only() made the others 0
  const Tensor out = transpose(slice(last, 0, stages - 1, ticks), {1, 0, 2, 3});
  return f.sharding.constrain(reshape(out, x.dims()), {"batch", "length", "act_embed"});
}

}  // namespace fettle
