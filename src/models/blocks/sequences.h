// Defines ops over the rows of data in a micro-batch. Several rows may share a line, which is one row of the
// micro-batch's arrays.
//
// `numbers` is i32 [.., T]: the number of the row that each position belongs to, from 1; 0 in padding. The values of
// rows are [S], in the order of the rows' numbers; rows that are not in the micro-batch count as empty.
#pragma once

#include "graph/ops.h"

namespace fettle {

// Adds up x [.., T] over the positions of each row: [S], in x's dtype.
Tensor sum_by_sequence(const Tensor& x, const Tensor& numbers, int64_t rows);
// Returns each row's number of positions, f32 [S].
Tensor tokens_by_sequence(const Tensor& numbers, int64_t rows);
// Gives each position its row's value: f32 [.., T] from f32 [S]; 0 in padding.
Tensor spread_by_sequence(const Tensor& values_S, const Tensor& numbers);

// Returns x [B, T, D] at the first or the last position of each row: [S, D]; zeros for rows that the micro-batch lacks.
Tensor first_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows);
Tensor last_of_sequences(const Tensor& x_BTD, const Tensor& numbers_BT, int64_t rows);

}  // namespace fettle
