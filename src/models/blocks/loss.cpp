#include "models/blocks/loss.h"

#include <algorithm>

#include "graph/composite.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

// Returns how many parts of `size` hold `count`.
int64_t parts_for(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Returns the number of devices along these mesh axes.
int64_t size_of(const Forward& f, const std::vector<std::string>& axes) {
  int64_t size = 1;
  for (const std::string& axis : axes) size *= f.sharding.mesh().size_of(axis);
  return size;
}

// Returns c, the number of positions per chunk. Every device computes an equal part of a chunk: c / sp positions. The
// logits of a chunk take at most `budget` bytes on one device, unless even the smallest chunk takes more. c / sp
// divides T / sp, unless chunks would then be less than half as large as they may be. In that case, the last chunk is
// padded.
int64_t chunk_length(const Forward& f, int64_t b, int64_t t, int64_t v, int64_t budget) {
  // The numbers of vocabulary entries and of rows on one device.
  const int64_t vocab = v / size_of(f, f.sharding.partition({"act_vocab"}, {v}, "logits").dims[0]);
  const int64_t rows = b / size_of(f, f.sharding.partition({"batch"}, {b}, "rows").dims[0]);
  const int64_t sp = f.sharding.mesh().size_of("sp"), local = t / sp;
  const int64_t most = std::clamp<int64_t>(budget / (rows * vocab * 4), 1, local);
  int64_t even = most;
  while (local % even != 0) --even;
  if (2 * even >= most) return even * sp;
  const int64_t unit = most >= 16 ? 16 : 1, chunks = parts_for(local, most / unit * unit);
  return parts_for(parts_for(local, chunks), unit) * unit * sp;
}

// Cuts [B, T, ...] into n chunks [n, B, c, ...]. A chunk has the same number of positions from each device along sp. If
// n c is larger than T, pads the positions of each device with `filler`. from_chunks() does the reverse.
Tensor to_chunks(const Tensor& whole, int64_t chunk, int64_t sp, double filler = 0) {
  const int64_t b = whole.dim(0), local = whole.dim(1) / sp, n = parts_for(local, chunk / sp),
                padded = n * (chunk / sp);
  Tensor x = whole;
  if (padded > local) {
    Dims apart{b, sp, local}, low(static_cast<size_t>(whole.rank() + 1)), high = low;
    for (int64_t i = 2; i < whole.rank(); ++i) apart.push_back(whole.dim(i));
    high[2] = padded - local;
    x = pad(reshape(whole, apart), low, high, filler);
  }
  Dims split{b, sp, n, chunk / sp}, order{2, 0, 1, 3}, merged{n, b, chunk};
  for (int64_t i = 2; i < whole.rank(); ++i) {
    split.push_back(whole.dim(i));
    order.push_back(i + 2);
    merged.push_back(whole.dim(i));
  }
  return reshape(transpose(reshape(x, split), order), merged);
}

// Returns [B, T, ...].
Tensor from_chunks(const Tensor& x, int64_t t, int64_t sp) {
  const int64_t n = x.dim(0), b = x.dim(1), chunk = x.dim(2), local = t / sp, padded = n * (chunk / sp);
  Dims split{n, b, sp, chunk / sp}, order{1, 2, 0, 3}, apart{b, sp, padded}, merged{b, t};
  for (int64_t i = 3; i < x.rank(); ++i) {
    split.push_back(x.dim(i));
    order.push_back(i + 1);
    apart.push_back(x.dim(i));
    merged.push_back(x.dim(i));
  }
  const Tensor in_order = transpose(reshape(x, split), order);
  return reshape(padded > local ? slice(reshape(in_order, apart), 2, 0, local) : in_order, merged);
}

struct ChunkLoss {
  Tensor losses_BC, correct_BC, dlogits_BCV, probs_BCV, trained_BC;
};

ChunkLoss chunk_loss(const Tensor& logits_BCV, const Tensor& targets_BC) {
  const int64_t v = logits_BCV.dim(2);
  const Tensor trained = compare(targets_BC, Direction::kGE, constant(0, DType::kI32));
  const Tensor top = expand(reduce_max(logits_BCV, {-1}), -1);
  const Tensor weight = exp(logits_BCV - top);
  const Tensor total = expand(reduce_sum(weight, {-1}), -1);
  const Tensor one_hot =
      convert(compare(expand(targets_BC, 2), Direction::kEQ, iota({DType::kI32, {v}}, 0)), DType::kF32);
  const Tensor target_logit = reduce_sum(logits_BCV * one_hot, {-1});
  const Tensor loss = reshape(log(total) + top, targets_BC.dims()) - target_logit;
  const Tensor zero = constant(0, DType::kF32);
  const Tensor hit = convert(compare(target_logit, Direction::kGE, reshape(top, targets_BC.dims())), DType::kF32);
  return {select(trained, loss, zero), select(trained, hit, zero),
          select(expand(trained, 2), weight / total - one_hot, zero), weight / total, trained};
}

// Returns the entropy [B, C] of the softmax over only the `most` tokens with the largest logits.
Tensor top_entropy(const Tensor& logits_BCV, int64_t most) {
  const Tensor zero = constant(0, DType::kF32);
  const Tensor top = expand(reduce_max(logits_BCV, {-1}), -1);
  const Tensor x = logits_BCV - top;
  const Tensor none = zeros_like(reduce_max(x, {-1}));
  const Tensor lowest = constant(-1e30, DType::kF32);
  // Each iteration takes the largest value that is not taken yet, and all values equal to it. All iterations together
  // take at most `most` values.
  const std::vector<Tensor> carries{none + 1.0, none + static_cast<double>(most), none, none};
  const ScanStep out =
      scan(most, carries, {}, [&](const Tensor&, const std::vector<Tensor>& c, const std::vector<Tensor>&) -> ScanStep {
        const Tensor value = reduce_max(select(compare(x, Direction::kLT, expand(c[0], 2)), x, lowest), {-1});
        const Tensor same = convert(compare(x, Direction::kEQ, expand(value, 2)), DType::kF32);
        const Tensor taken = minimum(reduce_sum(same, {-1}), c[1]);
        const Tensor weight = exp(value) * taken;
        return {{value, maximum(c[1] - taken, zero), c[2] + weight, c[3] + weight * maximum(value, lowest)}, {}};
      });
  return log(out.carries[2]) - out.carries[3] / out.carries[2];
}

// The trained loss of each token of one chunk, and its derivative with respect to the logits.
struct ChunkObjective {
  Tensor losses_BC, slope_BCV;
};

ChunkObjective chunk_objective(const TokenObjective& objective, const ChunkLoss& c, const Tensor& logits_BCV,
                               const Tensor& other_BCV) {
  ChunkObjective out{c.losses_BC, c.dlogits_BCV};
  Tensor weight;
  if (objective.weight == TokenObjective::Weight::kProbability) weight = exp(-c.losses_BC);
  if (objective.weight == TokenObjective::Weight::kEntropy) {
    constexpr int64_t kMost = 20;
    constexpr double kScale = 3;  // about ln(kMost), the largest entropy
    const Tensor entropy = top_entropy(logits_BCV, std::min(kMost, logits_BCV.dim(2)));
    const Tensor least = constant(1e-30, DType::kF32);
    weight = objective.power == 1 ? entropy * (1 / kScale)
                                  : exp(log(maximum(entropy * (1 / kScale), least)) * objective.power);
  }
  if (weight) out = {out.losses_BC * weight, out.slope_BCV * expand(weight, 2)};
  if (!other_BCV) return out;
  const Tensor top = expand(reduce_max(other_BCV, {-1}), -1);
  const Tensor raised = exp(other_BCV - top);
  const Tensor total = expand(reduce_sum(raised, {-1}), -1);
  const Tensor q = raised / total;
  const Tensor own_top = expand(reduce_max(logits_BCV, {-1}), -1);
  const Tensor own_total = log(expand(reduce_sum(exp(logits_BCV - own_top), {-1}), -1)) + own_top;
  const Tensor kl = reduce_sum(q * ((other_BCV - top - log(total)) - (logits_BCV - own_total)), {-1});
  const Tensor zero = constant(0, DType::kF32);
  return {out.losses_BC + select(c.trained_BC, kl, zero) * objective.near,
          out.slope_BCV + select(expand(c.trained_BC, 2), c.probs_BCV - q, zero) * objective.near};
}

// Returns the largest absolute value of the weights, or 1 if they are all 0: an f32 scalar.
Tensor largest_weight(const Tensor& weights_BT) {
  const Tensor largest = stop_gradient(reduce_max(abs(weights_BT), {0, 1}));
  return select(compare(largest, Direction::kGT, constant(0, DType::kF32)), largest, constant(1, DType::kF32));
}

// Returns the head in the dtype of the products. The head is gathered over the devices here, once, instead of once per
// chunk.
TokenHead gathered(const Forward& f, const TokenHead& head) {
  return {f.sharding.constrain(convert(head.weight_VD, f.compute), {"act_vocab", ""}),
          head.bias_V ? f.sharding.constrain(head.bias_V, {"act_vocab"}) : Tensor{}};
}

// The number of parts into which the devices split the rows and the positions of a chunk.
struct Parts {
  int64_t rows = 1, positions = 1;
  int64_t count() const { return rows * positions; }
};

Parts parts_of(const Forward& f, int64_t rows, int64_t positions) {
  const Partition split = f.sharding.fitting({"batch", "length"}, {rows, positions});
  return {size_of(f, split.dims[0]), size_of(f, split.dims[1])};
}

// Adds up the gradient of the head over the chunks. If the devices split the tokens, each device adds up the gradient
// of its own tokens, and total() adds up the devices' sums. Without such own sums, the devices would exchange a
// gradient as large as the head after every chunk. If the head is large, own sums would take too much memory, so the
// devices do exchange the gradient; then chunks are larger.
class HeadGradient {
 public:
  HeadGradient(const Forward& f, const Tensor& head_VD, const Parts& parts, bool own_sums)
      : f_(f), head_(head_VD), parts_(own_sums ? parts : Parts{}) {}

  // Returns how many bytes the own sum takes on one device.
  static int64_t bytes(const Forward& f, const Tensor& head_VD) {
    const Partition split = f.sharding.fitting({"act_vocab"}, {head_VD.dim(0)});
    return head_VD.shape().with_dtype(DType::kF32).bytes() / size_of(f, split.dims[0]);
  }

  Tensor zero() const {
    const Shape whole = head_.shape().with_dtype(DType::kF32);
    if (parts_.count() == 1) return full(0, whole);
    return own(full(0, {DType::kF32, {parts_.rows, parts_.positions, whole.dims[0], whole.dims[1]}}));
  }
  Tensor add(const Tensor& sum, const Tensor& dlogits_BCV, const Tensor& hidden_BCD) const {
    if (parts_.count() == 1) return sum + row_products(dlogits_BCV, hidden_BCD);
    return own(
        sum +
        dot_general(
            cut(dlogits_BCV), cut(hidden_BCD),
            {.lhs_batching = {0, 2}, .rhs_batching = {0, 2}, .lhs_contracting = {1, 3}, .rhs_contracting = {1, 3}},
            DType::kF32));
  }
  Tensor total(const Tensor& sum) const {
    return parts_.count() == 1 ? sum : f_.sharding.constrain(reduce_sum(sum, {0, 1}), {"vocab", "embed"});
  }

 private:
  Tensor own(const Tensor& sum) const { return f_.sharding.constrain(sum, {"batch", "length", "act_vocab", ""}); }
  // Cuts [B, C, X] into [parts of rows, B, parts of positions, C, X].
  Tensor cut(const Tensor& x) const {
    return reshape(x, {parts_.rows, x.dim(0) / parts_.rows, parts_.positions, x.dim(1) / parts_.positions, x.dim(2)});
  }

  const Forward& f_;
  Tensor head_;
  Parts parts_;
};

}  // namespace

TokenHead head_of(const Model& model, const Weights& weights) {
  TokenHead head{weights.at(model.head().stack_name())};
  if (model.config.head_bias) head.bias_V = weights.at(model.family->head + ".bias");
  if (!model.config.normalised_head) return head;
  const Tensor head32 = convert(head.weight_VD, DType::kF32);
  const Tensor length = sqrt(expand(reduce_sum(head32 * head32, {-1}), -1));
  head.weight_VD = convert(head32 / maximum(length, constant(1e-12, DType::kF32)), head.weight_VD.dtype());
  return head;
}

Tensor logits(const Forward& f, const Tensor& hidden, const TokenHead& head) {
  Tensor products = product(&f.sharding, hidden, convert(head.weight_VD, f.compute), {.in_f32 = true});
  if (head.bias_V) products = products + convert(head.bias_V, DType::kF32);
  return soft_cap(products, f.config.logit_softcap);
}

CrossEntropy cross_entropy(const ShardingRules& rules, const Tensor& logits_BCV, const Tensor& targets_BC,
                           const Tensor& weights_BC, DType compute) {
  const LogicalAxes rows{"batch", "length"};
  const Partition split = rules.fitting(rows, targets_BC.dims());
  std::vector<Tensor> inputs{logits_BCV, targets_BC};
  std::vector<Partition> partitions{rules.fitting({"batch", "length", "act_vocab"}, logits_BCV.dims()), split};
  if (weights_BC) {
    inputs.push_back(weights_BC);
    partitions.push_back(split);
  }
  const std::vector<Tensor> out = composite("cross_entropy", {{"dtype", std::string(stablehlo_name(compute))}}, inputs,
                                            partitions, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
                                              const ChunkLoss c = chunk_loss(in[0], in[1]);
                                              const Tensor slope =
                                                  in.size() > 2 ? c.dlogits_BCV * expand(in[2], 2) : c.dlogits_BCV;
                                              return {c.losses_BC, c.correct_BC, convert(slope, compute)};
                                            });
  return {out[0], out[1], out[2]};
}

TokenLoss token_loss(const Forward& f, const Tensor& hidden_BTD, const TokenHead& stored_head, const Tensor& targets_BT,
                     const LossOptions& options) {
  PathScope scope("loss");
  const int64_t b = hidden_BTD.dim(0), t = hidden_BTD.dim(1), v = stored_head.weight_VD.dim(0);
  const int64_t sp = f.sharding.mesh().size_of("sp");
  const TokenHead head = gathered(f, stored_head);
  const bool head_grad = options.differentiable && options.head_trained, bias_grad = head_grad && head.bias_V;
  const int64_t own_bytes = HeadGradient::bytes(f, head.weight_VD);
  const bool own_sums = own_bytes <= options.own_sum_bytes;
  const bool exchanges = head_grad && parts_of(f, b, t).count() > 1 && !own_sums;
  const int64_t budget = exchanges ? std::max(options.chunk_bytes, own_bytes / 8) : options.chunk_bytes;
  const int64_t chunk = chunk_length(f, b, t, v, budget);
  const HeadGradient gradient(f, head.weight_VD, parts_of(f, b, chunk), own_sums);

  // float16 would round most slopes of a token with a small weight to 0. The loss scale comes too late to prevent that,
  // because it multiplies the finished gradient. So the largest weight becomes 1, and `unit` multiplies the sum.
  Tensor weights_BT = options.weights_BT, unit;
  if (weights_BT && options.differentiable && f.compute == DType::kF16) {
    unit = largest_weight(weights_BT);
    weights_BT = weights_BT / unit;
  }
  std::vector<Tensor> carries{constant(0, DType::kF32)};
  if (head_grad) carries.push_back(gradient.zero());
  if (bias_grad) carries.push_back(full(0, head.bias_V.shape().with_dtype(DType::kF32)));
  std::vector<Tensor> chunks{to_chunks(hidden_BTD, chunk, sp), to_chunks(targets_BT, chunk, sp, -100)};
  if (weights_BT) chunks.push_back(to_chunks(weights_BT, chunk, sp));
  const TokenObjective& objective = options.objective;
  TokenHead other_head;
  if (objective.other_BTD) {
    chunks.push_back(to_chunks(objective.other_BTD, chunk, sp));
    other_head = gathered(f, objective.other_head);
  }
  const ScanStep out =
      scan(chunks[0].dim(0), carries, chunks,
           [&](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
             const Tensor scores = f.sharding.constrain(logits(f, xs[0], head), {"batch", "length", "act_vocab"});
             const bool plain = options.differentiable && f.config.logit_softcap == 0 && !objective.other_BTD &&
                                objective.weight == TokenObjective::Weight::kOne;
             const Tensor weights = weights_BT ? xs[2] : Tensor{};
             ChunkLoss c;
             if (plain) {
               const CrossEntropy fused = cross_entropy(f.sharding, scores, xs[1], weights, f.compute);
               c = {.losses_BC = fused.losses_BC, .correct_BC = fused.correct_BC, .dlogits_BCV = fused.slope_BCV};
             } else {
               c = chunk_loss(scores, xs[1]);
             }
             Tensor other;
             if (objective.other_BTD)
               other = f.sharding.constrain(logits(f, xs.back(), other_head), {"batch", "length", "act_vocab"});
             const ChunkObjective trained = chunk_objective(objective, c, scores, other);
             const Tensor counted = weights ? trained.losses_BC * weights : trained.losses_BC;
             ScanStep step{{carried[0] + reduce_sum(counted, {0, 1})}, {c.losses_BC, c.correct_BC}};
             if (!options.differentiable) return step;
             Tensor slope = weights && !plain ? trained.slope_BCV * expand(weights, 2) : trained.slope_BCV;
             if (const double cap = f.config.logit_softcap; cap != 0)
               slope = slope * (1.0 - scores * scores / (cap * cap));
             const Tensor dlogits = convert(slope, f.compute);
             step.ys.push_back(product(&f.sharding, dlogits, head.weight_VD, {.transposed = true}));
             if (head_grad) step.carries.push_back(gradient.add(carried[1], dlogits, xs[0]));
             if (bias_grad) step.carries.push_back(carried[2] + reduce_sum(convert(dlogits, DType::kF32), {0, 1}));
             return step;
           });
  TokenLoss result{out.carries[0], from_chunks(out.ys[0], t, sp), from_chunks(out.ys[1], t, sp)};
  if (!options.differentiable) return result;
  std::vector<Tensor> inputs{hidden_BTD}, grads{from_chunks(out.ys[2], t, sp)};
  if (head_grad) {
    inputs.push_back(stored_head.weight_VD);
    grads.push_back(gradient.total(out.carries[1]));
  }
  if (bias_grad) {
    inputs.push_back(stored_head.bias_V);
    grads.push_back(out.carries[2]);
  }
  result.sum = custom_gradient(result.sum, inputs, grads);
  if (unit) result.sum = result.sum * unit;
  return result;
}

}  // namespace fettle
