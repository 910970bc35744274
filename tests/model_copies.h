// Defines copy_model and change_tensor, which copy the llama of tests/reference and change the copies.
#pragma once

#include <fstream>

#include "checkpoint/safetensors.h"
#include "training.h"

namespace fettle {

// Returns `folder`, with config and weights.
inline std::string copy_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(reference_model("llama") / file, folder);
  return folder.string();
}

// Zeroes the tensor of a safetensors file.
inline void change_tensor(const std::filesystem::path& file, const std::string& name) {
  const TensorEntry entry = *SafetensorsFile::open(file).find(name);
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(entry.offset);
  out << std::string(static_cast<size_t>(entry.bytes), '\0');
}

}  // namespace fettle
