// Defines copy_model and change_tensor, which copy the llama of tests/reference and change the copies.
#pragma once

#include <fstream>

#include "checkpoint/safetensors.h"
#include "training.h"

namespace fettle {

// Copies the model's config and weights to `folder`, and returns its path.
inline std::string copy_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(reference_model("llama") / file, folder);
  return folder.string();
}

// Sets all values of the tensor `name` in a safetensors file to zero.
inline void change_tensor(const std::filesystem::path& file, const std::string& name) {
  const TensorEntry entry = *SafetensorsFile::open(file).find(name);
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(entry.offset);
  out << std::string(static_cast<size_t>(entry.bytes), '\0');
}

}  // namespace fettle
