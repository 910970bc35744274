// Defines what tests share that compare training on a mesh of devices with training on one device.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "training.h"

namespace fettle {

using Mesh = std::map<std::string, int64_t>;

// Returns a recipe whose micro-batches have `rows` rows over all devices of the mesh.
inline Recipe mesh_recipe(const Mesh& mesh, const std::string& type, const std::string& model, int64_t rows,
                          int64_t micro_batches) {
  Recipe recipe = reference_recipe(model);
  recipe.mesh = mesh;
  recipe.finetuning_type = type;
  recipe.lora_dropout = 0.1;
  recipe.gradient_accumulation_steps = micro_batches;
  int64_t shards = 1;
  for (const char* axis : {"dp", "fsdp"})
    if (mesh.contains(axis)) shards *= mesh.at(axis);
  recipe.per_device_train_batch_size = rows / shards;
  return recipe;
}

inline std::string name_of(const Mesh& mesh) {
  std::string name;
  for (const auto& [axis, size] : mesh) name += axis + std::to_string(size);
  return name;
}

inline void expect_equal(const TrainResult& got, const TrainResult& wanted, const std::string& what) {
  expect_equal_lists(got.losses, wanted.losses, 1e-5, what + " loss");
  expect_equal_lists(got.norms, wanted.norms, 1e-4, what + " norm");
}

}  // namespace fettle
