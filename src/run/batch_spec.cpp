#include "run/batch_spec.h"

#include <numeric>

#include "config/recipe.h"

namespace fettle {

int64_t batch_shards(const MeshAxes& mesh) {
  return mesh.size_of("dp") * mesh.size_of("fsdp");
}

BatchSpec batch_spec(const Recipe& recipe, const Stage& stage, int64_t cutoff_len, const MeshAxes& mesh, BatchUse use) {
  const bool trains = use == BatchUse::kTraining;
  const int64_t rows_per_device = trains
                                      ? recipe.per_device_train_batch_size
                                      : recipe.per_device_eval_batch_size.value_or(recipe.per_device_train_batch_size);
  const bool packs = recipe.set_at.contains("packing") ? recipe.packing : recipe.packing || stage.packs;
  return {.micro_batches = trains ? recipe.gradient_accumulation_steps : 1,
          .sequences = rows_per_device * batch_shards(mesh) * stage.sequences_per_row(),
          .max_length = cutoff_len,
          .multiple = std::lcm<int64_t>(8, mesh.size_of("sp")),
          .packing = trains && packs,
          .grouping = stage.grouping,
          .shuffle = trains && !recipe.disable_shuffling,
          .seed = static_cast<uint64_t>(recipe.seed),
          .skip_rows = trains ? recipe.skip_rows : std::vector<std::string>()};
}

}  // namespace fettle
