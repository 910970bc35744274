// Defines read_torch_pickle: what a PyTorch checkpoint's pickle says about its tensors, read without executing it.
//
// A pickle is a program of a stack machine that can call any Python function. This machine knows the instructions and
// the few functions that torch.save uses for tensors in containers; it makes notes in place of calls, and refuses all
// else by name. Sources: pickletools.py, torch/_utils.py, torch/serialization.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle {

// A tensor as a view of a storage, in elements.
struct PickledTensor {
  std::string name;
  std::string storage;  // its key: member data/<key> of the archive
  int64_t storage_elements = 0;
  int64_t offset = 0;
  Shape shape;
  Dims strides;
};

// The tensors of a pickled dict, in its order; the views lie inside their storages. `path` is for messages. Memory and
// time are linear in the pickle's length. Throws UserError naming what it refuses and where.
std::vector<PickledTensor> read_torch_pickle(std::span<const std::byte> pickle, const std::string& path);

}  // namespace fettle
