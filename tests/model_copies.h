// Defines functions that copy models of tests/reference and change the copies.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "checkpoint/safetensors.h"
#include "models/module_rules.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {

using NamedArrays = std::vector<std::pair<std::string, HostArray>>;

// Writes a model folder with these tensors.
inline void write_model(const std::filesystem::path& folder, const nlohmann::json& config, const NamedArrays& tensors) {
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
  NamedArrays tensors;
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    HostArray values(stored.entry->shape.with_dtype(DType::kF32));
    stored.file->read_slice(*stored.entry, Box::whole(values.shape().dims), DType::kF32, values.data());
    tensors.emplace_back(name, std::move(values));
  }
  write_model(folder, config, tensors);
}

// Adds the tensors that store the weight [n, k] of a module, to `out`.
using AddWeight = std::function<void(NamedArrays& out, const std::string& module, int64_t n, int64_t k,
                                     const std::function<float(int64_t output, int64_t input)>& value)>;

// Returns the model's tensors as f32, except that `add` adds those of single experts and of the linear layers for which
// wanted(module) is true. The model has all experts of a layer in one tensor [E, n, k], or [E, k, n] (inputs_first).
inline NamedArrays with_stored_weights(const std::filesystem::path& model, const AddWeight& add,
                                       const std::function<bool(const std::string& module)>& wanted,
                                       bool inputs_first = false) {
  const ModelRepository repository = ModelRepository::open(model);
  NamedArrays out;
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    HostArray array = stored.file->read(*stored.entry).to(DType::kF32);
    const Dims dims = array.shape().dims;
    const std::span<const float> values = array.as<float>();
    const std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    const int64_t parts = dims.size() == 3 ? std::ssize(expert_modules(name, 0)) : 0;
    for (int64_t part = 0; part < parts * dims[0]; ++part) {
      const int64_t n = dims[inputs_first ? 2 : 1], k = dims[inputs_first ? 1 : 2], expert = part / parts;
      add(out, expert_modules(name, expert)[static_cast<size_t>(part % parts)], n / parts, k,
          [&](int64_t row, int64_t input) {
            const int64_t output = part % parts * (n / parts) + row;
            const int64_t at = inputs_first ? input * n + output : output * k + input;
            return values[static_cast<size_t>(expert * n * k + at)];
          });
    }
    if (parts > 0) continue;
    if (dims.size() == 2 && wanted(module))
      add(out, module, dims[0], dims[1],
          [&](int64_t row, int64_t input) { return values[static_cast<size_t>(row * dims[1] + input)]; });
    else
      out.emplace_back(name, std::move(array));
  }
  return out;
}

// Writes the model with a tensor for each expert. The model has all experts of a layer in one tensor.
inline void write_experts_apart(const std::filesystem::path& model, const std::filesystem::path& folder,
                                bool inputs_first = false) {
  const AddWeight add = [](NamedArrays& out, const std::string& module, int64_t n, int64_t k, const auto& value) {
    HostArray one(Shape{DType::kF32, {n, k}});
    for (int64_t i = 0; i < n * k; ++i) one.as<float>()[static_cast<size_t>(i)] = value(i / k, i % k);
    out.emplace_back(module + ".weight", std::move(one));
  };
  write_model(folder, ModelRepository::open(model).config(),
              with_stored_weights(
                  model, add, [](const std::string&) { return false; }, inputs_first));
}

// Copies the model's config and weights to `folder`, and returns its path.
inline std::string copy_model(const std::filesystem::path& folder, const std::string& model = "llama") {
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(reference_model(model) / file, folder);
  return folder.string();
}

// Writes the model with further layers that predict tokens further ahead (MTP), as published: Qwen's `mtp.*`, or a
// layer after the last one. Each of their values is different. Returns the names of the added tensors.
inline std::vector<std::string> write_with_later_layers(const std::filesystem::path& folder, const std::string& model) {
  const ModelRepository repository = ModelRepository::open(reference_model(model));
  NamedArrays tensors;
  std::vector<std::string> added;
  float next = 1;
  auto add = [&](const std::string& name, const Dims& dims) {
    HostArray values(Shape{DType::kF32, dims});
    for (float& value : values.as<float>()) value = next++;
    added.push_back(name);
    tensors.emplace_back(name, std::move(values));
  };
  const bool qwen = model.starts_with("qwen");
  const nlohmann::json& config = repository.config();
  const nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
  const int64_t hidden = text["hidden_size"], layers = text["num_hidden_layers"];
  const std::string copied = "layers." + std::to_string(qwen ? 2 : layers - 1) + ".";  // Qwen's has full attention
  const std::string to = qwen ? "mtp.layers.0." : "model.layers." + std::to_string(layers) + ".";
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    tensors.emplace_back(name, stored.file->read(*stored.entry));
    if (const size_t at = name.find(copied); at != std::string::npos && name.find("visual") == std::string::npos)
      add(to + name.substr(at + copied.size()), stored.entry->shape.dims);
  }
  if (qwen) {
    add("mtp.fc.weight", {hidden, 2 * hidden});
    for (const char* norm : {"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"})
      add("mtp." + std::string(norm) + ".weight", {hidden});
  } else {
    add(to + "eh_proj.weight", {hidden, 2 * hidden});
    for (const char* norm : {"enorm", "hnorm", "shared_head.norm"}) add(to + norm + ".weight", {hidden});
    for (const char* table : {"embed_tokens", "shared_head.head"})
      add(to + table + ".weight", {text["vocab_size"], hidden});
  }
  write_model(folder, config, tensors);
  return added;
}

// Checks that both folders have these tensors with the same dtypes, shapes and bytes.
inline void expect_same_tensors(const std::filesystem::path& got, const std::filesystem::path& wanted,
                                const std::vector<std::string>& names) {
  const ModelRepository a = ModelRepository::open(got), b = ModelRepository::open(wanted);
  for (const std::string& name : names) {
    ASSERT_TRUE(a.contains(name)) << name;
    const StoredTensor x = a.find(name), y = b.find(name);
    ASSERT_EQ(x.entry->shape, y.entry->shape) << name;
    const HostArray left = x.file->read(*x.entry), right = y.file->read(*y.entry);
    EXPECT_EQ(std::memcmp(left.data(), right.data(), static_cast<size_t>(right.bytes())), 0) << name;
  }
}

// Sets all values of the tensor `name` in a safetensors file to zero.
inline void change_tensor(const std::filesystem::path& file, const std::string& name) {
  const TensorEntry entry = *SafetensorsFile::open(file).find(name);
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(entry.offset);
  out << std::string(static_cast<size_t>(entry.bytes), '\0');
}

// Changes one bit in the middle of the tensor `name` in a safetensors file.
inline void change_byte(const std::filesystem::path& file, const std::string& name) {
  const TensorEntry entry = *SafetensorsFile::open(file).find(name);
  std::fstream both(file, std::ios::in | std::ios::out | std::ios::binary);
  both.seekg(entry.offset + entry.bytes / 2);
  const char changed = static_cast<char>(both.get() ^ 1);
  both.seekp(entry.offset + entry.bytes / 2);
  both.put(changed);
}

}  // namespace fettle
