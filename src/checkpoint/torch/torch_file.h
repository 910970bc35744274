// Defines TorchFile: one mapped and checked PyTorch checkpoint (pytorch_model.bin). It is a zip file with a pickle that
// lists the tensors, and a member with the bytes of each storage. Fettle executes nothing from it.
#pragma once

#include "checkpoint/tensor_file.h"

namespace fettle {

// Move-only. Tensors may share a storage, overlap, or be views that are not dense.
class TorchFile : public TensorFile {
 public:
  // Throws UserError, which names the file, when the file is missing, truncated, TorchScript, big-endian or from
  // PyTorch before 1.6. Also throws UserError when the pickle contains more than tensors in a dict, or when a storage
  // is missing or has the wrong size.
  static TorchFile open(const std::filesystem::path& path);

 private:
  using TensorFile::TensorFile;
};

}  // namespace fettle
