#include "run/batch_spec.h"

#include <numeric>

namespace fettle {

RowGrouping row_grouping(const std::string& stage) {
  if (stage == "dpo" || stage == "rm") return RowGrouping::kPairs;
  return stage == "kto" ? RowGrouping::kWithMismatched : RowGrouping::kNone;
}

int64_t batch_shards(const MeshAxes& mesh) {
  return mesh.size_of("dp") * mesh.size_of("fsdp");
}

BatchSpec batch_spec(const Recipe& recipe, const MeshAxes& mesh, BatchUse use, int32_t pad_id) {
  const bool trains = use == BatchUse::kTraining;
  const int64_t rows_per_device = trains
                                      ? recipe.per_device_train_batch_size
                                      : recipe.per_device_eval_batch_size.value_or(recipe.per_device_train_batch_size);
  const RowGrouping grouping = row_grouping(recipe.stage);
  return {.micro_batches = trains ? recipe.gradient_accumulation_steps : 1,
          .sequences = rows_per_device * batch_shards(mesh) * sequences_per_group(grouping),
          .max_length = recipe.cutoff_len,
          .multiple = std::lcm<int64_t>(8, mesh.size_of("sp")),
          .packing = trains && recipe.packing,
          .grouping = grouping,
          .shuffle = trains && !recipe.disable_shuffling,
          .seed = static_cast<uint64_t>(recipe.seed),
          .pad_id = pad_id};
}

}  // namespace fettle
