// Defines read_torch_pickle, which reads the tensors that the pickle of a PyTorch checkpoint lists, without executing
// it.
//
// A pickle is a program for a stack machine that can call any Python function. This reader knows only the instructions
// and functions that torch.save uses for tensors in containers. It records the calls of these functions without making
// them, and rejects all other functions by name. Sources: pickletools.py, torch/_utils.py, torch/serialization.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle {

// A tensor as a view of a storage. Offsets and strides are in elements.
struct PickledTensor {
  std::string name;
  std::string storage;  // the storage's key: its bytes are in member data/<key> of the archive
  int64_t storage_elements = 0;
  int64_t offset = 0;
  Shape shape;
  Dims strides;
};

// Returns the tensors of a pickled dict, in its order. Checks that all views lie inside their storages. Error messages
// show `path`. Memory and time are linear in the length of the pickle. Throws UserError, which says what it rejects,
// and where.
std::vector<PickledTensor> read_torch_pickle(std::span<const std::byte> pickle, const std::string& path);

}  // namespace fettle
