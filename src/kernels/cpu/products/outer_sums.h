// Defines products that are sums of outer products of rows: c = scale * a^T * b, where `a` and `b` are stored row by
// row and one of them has only few columns. The gradients of LoRA's weights are such products. The operand with few
// columns is packed. Each stored row of the other one is read where it is; with AMX, it is packed as tiles, too.
#pragma once

#include "kernels/cpu/products/matrix_product.h"

namespace fettle::cpu {

bool is_outer_sum(const MatrixProduct& product);
// Returns the number of words of scratch memory that an outer sum needs.
int64_t outer_sum_words(const MatrixProduct& product);
// Does what add_product() does, if is_outer_sum(product). Each element is a sum in f32 over the rows in their order.
TaskRow::Group add_outer_sum(const MatrixProduct& product, const BlockOps& ops, void* c, void* workspace,
                             TaskRow& tasks, TaskRow::Group after);

}  // namespace fettle::cpu
