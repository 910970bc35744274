// Defines TorchFile: one mapped, checked PyTorch checkpoint (pytorch_model.bin), a zip file with a pickle that names
// the tensors and one member of bytes for each storage. Nothing in it is executed.
#pragma once

#include "checkpoint/tensor_file.h"

namespace fettle {

// Move-only. Tensors may share a storage, overlap and be views that are not dense.
class TorchFile : public TensorFile {
 public:
  // Throws UserError naming the file: missing, truncated, of PyTorch before 1.6, TorchScript, big endian, a pickle that
  // asks for more than tensors in a dict, a storage that is missing or has the wrong size.
  static TorchFile open(const std::filesystem::path& path);

 private:
  using TensorFile::TensorFile;
};

}  // namespace fettle
