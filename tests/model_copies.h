// Defines functions that copy models of tests/reference and change the copies.
#pragma once

#include <fstream>

#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "checkpoint/safetensors.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {

// Writes a model folder with these tensors.
inline void write_model(const std::filesystem::path& folder, const nlohmann::json& config,
                        const std::vector<std::pair<std::string, HostArray>>& tensors) {
  std::filesystem::create_directories(folder);
  write_text(folder / "config.json", config.dump());
  NamedShapes shapes;
  for (const auto& [name, array] : tensors) shapes.emplace_back(name, array.shape());
  ModelWriter writer(folder, shapes, int64_t{1} << 30);
  for (const auto& [name, array] : tensors) writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  writer.finish();
}

// Writes the model with the values of its weights as f32, without quantization_config.
inline void write_as_floats(const std::filesystem::path& model, const std::filesystem::path& folder) {
  const ModelRepository repository = ModelRepository::open(model);
  nlohmann::json config = repository.config();
  config.erase("quantization_config");
  std::vector<std::pair<std::string, HostArray>> tensors;
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    HostArray values(stored.entry->shape.with_dtype(DType::kF32));
    stored.file->read_slice(*stored.entry, Box::whole(values.shape().dims), DType::kF32, values.data());
    tensors.emplace_back(name, std::move(values));
  }
  write_model(folder, config, tensors);
}

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
