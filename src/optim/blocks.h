// Defines Blocks: how the elements of a weight form blocks of equal size. Optimizer state in few bits has one absmax
// for each block.
#pragma once

#include "graph/tensor.h"
#include "optim/optimizer.h"

namespace fettle {

// The elements of a layer in row-major order form blocks. If the sizes allow it, a block is a part of a row, or several
// whole rows. Then quantising needs no transfer between devices. Otherwise, the layer is flattened and padded to whole
// blocks.
struct Blocks {
  Dims whole, absmax;   // `whole`: [.., blocks, elements of a block..]; `absmax`: [.., blocks], one value per block
  Dims elements;        // the dims of `whole` that make up a block, counted from the end: -1 is the last
  LogicalAxes axes;     // axes of `absmax`
  int64_t padding = 0;  // number of elements that are added to a layer
};
Blocks blocks_of(const OptimWeight& weight, int64_t size);

// to_blocks() brings x from the weight's shape to Blocks::whole, and from_blocks() does the reverse.
Tensor to_blocks(const Tensor& x, const OptimWeight& weight, const Blocks& blocks);
Tensor from_blocks(const Tensor& x, const OptimWeight& weight, const Blocks& blocks);
// Reshapes absmax, which has one value per block, so that each value broadcasts to the elements of its block.
Tensor spread(const Tensor& absmax, const Blocks& blocks);

}  // namespace fettle
