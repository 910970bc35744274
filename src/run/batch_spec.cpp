#include "run/batch_spec.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "config/recipe.h"
#include "run/resolve/expert_balance.h"
#include "sharding/rules.h"

namespace fettle {

int64_t batch_shards(const MeshAxes& mesh) {
  return mesh.size_of("dp") * mesh.size_of("fsdp");
}

namespace {

// Returns whether this mesh splits every weight into equal parts.
bool splits_evenly(const MeshAxes& mesh, const Recipe& recipe, const std::vector<Param>& params) {
  const ShardingRules rules(mesh, recipe.sharding);
  try {
    for (const Param& param : params) rules.partition(param.axes, param.dims, param.hf_name);
  } catch (const UserError&) {
    return false;
  }
  return true;
}

}  // namespace

MeshAxes mesh_of(const Recipe& recipe, int64_t devices, Purpose purpose, const std::vector<Param>& params) {
  if (recipe.mesh_is_auto()) {
    const MeshAxes mesh = make_mesh({{"fsdp", devices}}, devices);
    return splits_evenly(mesh, recipe, params) ? mesh : make_mesh({{"dp", devices}}, devices);
  }
  std::map<std::string, int64_t> axes = recipe.mesh;
  const auto stages = purpose == Purpose::kTraining ? decltype(axes)::node_type() : axes.extract(kStageAxis);
  if (!stages.empty()) {
    const auto with_more = [&](const char* axis) {
      std::map<std::string, int64_t> out = axes;
      out.try_emplace(axis, 1).first->second *= stages.mapped();
      return out;
    };
    const MeshAxes mesh = make_mesh(with_more("fsdp"), devices);
    return splits_evenly(mesh, recipe, params) ? mesh : make_mesh(with_more("dp"), devices);
  }
  return make_mesh(axes, devices);
}

bool sums_are_cheap(bool only_adapters, bool offload_param) {
  return only_adapters && !offload_param;
}

int64_t rows_per_device(const Recipe& recipe, BatchUse use) {
  const int64_t training = recipe.per_device_train_batch_size;
  return use == BatchUse::kTraining ? training : recipe.per_device_eval_batch_size.value_or(training);
}

namespace {

// Returns how the sequences of a step share lines. A line is one row of a micro-batch's arrays.
Lines lines_of(const Recipe& recipe, const Stage& stage, const ModelConfig& config, int64_t longest, BatchUse use) {
  // Some models use other rope frequencies for texts of more than rope_turn() tokens. The program only compares the
  // length of the whole line with this limit. If a sequence may exceed the limit, each sequence gets its own line.
  if (config.rope_turn() > 0 && longest > config.rope_turn()) return Lines::kOwn;
  if (stage.mixes_rows) return Lines::kShared;
  if (use == BatchUse::kEvaluation) return Lines::kRegrouped;
  // The loss that balances the load of experts also depends on all rows of a micro-batch.
  if (balance_factor(recipe, stage, config) != 0) return Lines::kShared;
  // kRegrouped may need several micro-batches. With gradient accumulation, a step has their costs anyway.
  const bool only_adapters = recipe.finetuning_type == "lora" && !recipe.train_from_scratch;
  const bool cheap = recipe.gradient_accumulation_steps > 1 || sums_are_cheap(only_adapters, recipe.offload_param);
  return cheap ? Lines::kRegrouped : Lines::kShared;
}

}  // namespace

BatchSpec batch_spec(const Recipe& recipe, const Stage& stage, const ModelConfig& config, int64_t cutoff_len,
                     const MeshAxes& mesh, BatchUse use) {
  const bool trains = use == BatchUse::kTraining;
  const int64_t shards = batch_shards(mesh);
  int64_t rows = rows_per_device(recipe, use);
  // KTO pairs each row with another row of the step. A training step has the rows of several micro-batches, but an
  // evaluation has only one.
  if (!trains && !recipe.per_device_eval_batch_size && stage.grouping == RowGrouping::kWithMismatched && shards == 1)
    rows = std::max<int64_t>(rows, 2);
  const bool packs = recipe.places.has("packing") ? recipe.packing : recipe.packing || stage.packs;
  return {.micro_batches = trains ? recipe.gradient_accumulation_steps : 1,
          .sequences = rows * shards * stage.sequences_per_row(),
          .max_length = cutoff_len,
          // Ring attention cuts a line into 2 x sp equal chunks (models/blocks/ring_attention.h).
          .multiple = std::lcm<int64_t>(8, mesh.size_of("sp") > 1 ? 2 * mesh.size_of("sp") : 1),
          .packing = trains && packs,
          .lines = lines_of(recipe, stage, config, cutoff_len, use),
          .stages = mesh.size_of(kStageAxis),
          .shards = shards,
          .ep = mesh.size_of("ep"),
          .grouping = stage.grouping,
          .shuffle = trains && !recipe.disable_shuffling,
          .seed = static_cast<uint64_t>(recipe.seed),
          .skip_rows = trains ? recipe.skip_rows : std::vector<std::string>(),
          .use = use};
}

}  // namespace fettle
