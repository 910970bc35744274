// Defines ops over the sequences in a micro-batch. Several sequences may share a line, which is one row of the
// micro-batch's arrays. The argument `rows` is S, the number of sequences of the step.
//
// `numbers` is i32 [.., T]: the number of each position's sequence, from 1; 0 in padding. The values of sequences are
// [S], in the order of the sequences' numbers. Sequences that are not in the micro-batch count as empty.
#pragma once

#include "graph/ops.h"

namespace fettle {

// Returns the sum of x [.., T] over the positions of each sequence: [S], in x's dtype.
Tensor sum_by_sequence(const Tensor& x, const Tensor& numbers, int64_t rows);
// Returns each sequence's number of positions, f32 [S].
Tensor tokens_by_sequence(const Tensor& numbers, int64_t rows);
// Returns for each position the value of its sequence: f32 [.., T] from f32 [S]; 0 in padding.
Tensor spread_by_sequence(const Tensor& values_S, const Tensor& numbers);

// Return x [B, T, D] at the first or the last position of each sequence: [S, D]; zeros for sequences that the
// micro-batch lacks.
Tensor first_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows);
Tensor last_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows);
// Returns x [B, T, D] at the last position of each sequence that counts: [S, D]. counted_BT is bool. If no position of
// a sequence counts, returns x at its first position; zeros for sequences that the micro-batch lacks.
Tensor last_counted_of_sequences(const Tensor& x_BTD, const Tensor& counted_BT, const Tensor& numbers_BT, int64_t rows);
// Returns the mean of x [B, T, D] over the positions of each sequence: [S, D]; zeros for sequences that the micro-batch
// lacks.
Tensor mean_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows);

}  // namespace fettle
