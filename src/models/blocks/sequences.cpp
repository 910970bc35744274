#include "models/blocks/sequences.h"

#include <numeric>

#include "base/error.h"

namespace fettle {
namespace {

// Returns bool [.., T, S]: whether each position belongs to each sequence.
Tensor belongs(const Tensor& numbers, int64_t rows) {
  return compare(expand(numbers, numbers.rank()), Direction::kEQ, iota({DType::kI32, {rows}}, 0) + 1.0);
}

Dims all_but_last(const Tensor& x) {
  Dims dims(static_cast<size_t>(x.rank() - 1));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// Returns the place of each position in the micro-batch: i32 [B, T], from 1.
Tensor places_like(const Tensor& numbers_BT) {
  const Dims& dims = numbers_BT.dims();
  return reshape(iota({DType::kI32, {dims[0] * dims[1]}}, 0), dims) + 1.0;
}

// Returns x at one place for each sequence, and zeros for a sequence whose place is 0.
Tensor at_places(const Tensor& x_BTD, const Tensor& places_S) {
  const Tensor x_SD = take(reshape(x_BTD, {x_BTD.dim(0) * x_BTD.dim(1), x_BTD.dim(2)}), places_S - 1.0);
  // Padding may contain NaN. select() removes it; multiplying by zero would not.
  const Tensor found_S = compare(places_S, Direction::kGT, constant(0, DType::kI32));
  return select(expand(found_S, 1), x_SD, constant(0, x_BTD.dtype()));
}

// Returns x at one position of each sequence: the position where `taken_BT` is true.
Tensor at_rows(const Tensor& x_BTD, const Tensor& taken_BT, const Tensor& numbers_BT, int64_t rows) {
  const Tensor taken = select(taken_BT, places_like(numbers_BT), constant(0, DType::kI32));
  return at_places(x_BTD, sum_by_sequence(taken, numbers_BT, rows));
}

}  // namespace

Tensor sum_by_sequence(const Tensor& x, const Tensor& numbers, int64_t rows) {
  const Tensor parts = select(belongs(numbers, rows), expand(x, x.rank()), constant(0, x.dtype()));
  return reduce_sum(parts, all_but_last(parts));
}

Tensor tokens_by_sequence(const Tensor& numbers, int64_t rows) {
  return convert(sum_by_sequence(full(1, numbers.shape()), numbers, rows), DType::kF32);
}

Tensor spread_by_sequence(const Tensor& values_S, const Tensor& numbers) {
  const Tensor found = select(belongs(numbers, values_S.dim(0)), values_S, constant(0, values_S.dtype()));
  return reduce_sum(found, {numbers.rank()});
}

Tensor first_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows) {
  const int64_t t = numbers_BT.dim(1);
  const Tensor before = slice(pad(numbers_BT, {0, 1}, {0, 0}), 1, 0, t);
  return at_rows(x_BTD, compare(numbers_BT, Direction::kNE, before), numbers_BT, rows);
}

Tensor mean_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows) {
  const Tensor filled = compare(numbers_BT, Direction::kGT, constant(0, DType::kI32));
  // Padding may contain NaN.
  const Tensor x32 = convert(select(expand(filled, 2), x_BTD, constant(0, x_BTD.dtype())), DType::kF32);
  const Tensor sum_SD = dot_general(convert(belongs(numbers_BT, rows), DType::kF32), x32,
                                    {.lhs_contracting = {0, 1}, .rhs_contracting = {0, 1}});
  const Tensor count_S = maximum(tokens_by_sequence(numbers_BT, rows), constant(1, DType::kF32));
  return convert(sum_SD / expand(count_S, 1), x_BTD.dtype());
}

Tensor last_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows) {
  const int64_t t = numbers_BT.dim(1);
  const Tensor after = slice(pad(numbers_BT, {0, 0}, {0, 1}), 1, 1, t + 1);
  return at_rows(x_BTD, compare(numbers_BT, Direction::kNE, after), numbers_BT, rows);
}

Tensor last_counted_of_sequences(const Tensor& x_BTD, const Tensor& counted_BT, const Tensor& numbers_BT,
                                 int64_t rows) {
  const int64_t places = numbers_BT.dim(0) * numbers_BT.dim(1);
  constexpr int64_t kMost = (1 << 24) - 1;  // f32 holds all integers up to this one
  if (places > kMost)
    throw UserError(
        "a micro-batch of a classifier may have {} positions, but this one has {} rows of {}; lower "
        "per_device_train_batch_size, per_device_eval_batch_size or cutoff_len",
        kMost, numbers_BT.dim(0), numbers_BT.dim(1));
  const Tensor place = convert(places_like(numbers_BT), DType::kF32);
  // Among places that do not count, the first one has the largest key. Any place that counts has a larger one.
  const Tensor key = select(counted_BT, place, -place);
  const Tensor none = constant(-1.0 - static_cast<double>(places), DType::kF32);
  const Tensor keys = select(belongs(numbers_BT, rows), expand(key, 2), none);
  const Tensor best_S = reduce_max(keys, all_but_last(keys));
  const Tensor place_S = convert(maximum(best_S, -best_S), DType::kI32);
  return at_places(x_BTD, select(compare(best_S, Direction::kEQ, none), constant(0, DType::kI32), place_S));
}

}  // namespace fettle
