// Tests checkpoints that are written in the background: their content does not change while later steps run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/arrays/box_copy.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/checkpoints/checkpoint_writer.h"
#include "train/output_folder.h"
#include "train/result.h"
#include "training_run.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// The write begins before a step and ends after it. The step must not change the bytes that are written.
TEST(CheckpointWriter, ContainsTheRequestedStep) {
  TempFolder folder;
  for (const char* type : {"lora", "full"}) {
    Recipe recipe = run_recipe(folder / type, type);
    recipe.mesh = {{"dp", 2}, {"fsdp", 2}};
    TrainingRun run(recipe);
    CheckpointWriter writer(run.run, run.repository, run.batches.identity(), run.processes);
    run.advance();
    const auto wanted = trained_values(run.run, run.state);
    const fs::path checkpoint = run.folder();
    const StateSnapshot snapshot = take_snapshot(run.run, run.state);
    EXPECT_GT(writer.save(run.state, {.trainer = {.global_step = 1, .train_batch_size = 7}}), 0);
    run.advance();
    writer.require();

    StateReader state(state_folder(checkpoint));
    check_meta(state, run.run);
    check_data(state, run.run, run.batches.identity());
    read_record(state);
    EXPECT_EQ(state.meta().at("step"), 1);
    EXPECT_EQ(read_trainer_state(checkpoint / "trainer_state.json").train_batch_size, 7);
    const auto after = trained_values(run.run, run.state);
    int64_t bytes = 0, changed = 0;
    for (const auto& [name, array] : wanted) {
      EXPECT_TRUE(same_bytes(state.read(name), array)) << name;
      HostArray global(array.shape());
      for (const HostShards::Shard& shard : snapshot.at(name).shards) {
        copy_common(shard.box, shard.bytes.data(), Box::whole(array.shape().dims), global.data(), 4);
        bytes += shard.bytes.bytes();
      }
      EXPECT_TRUE(same_bytes(global, array)) << name;
      changed += same_bytes(array, after.at(name)) ? 0 : 1;
    }
    EXPECT_GT(changed, 0) << "the step must have changed something";
    EXPECT_EQ(bytes, snapshot_bytes(run.run)) << "replicas are not copied";
    EXPECT_EQ(bytes, snapshot_bytes(run.run, run.state));

    if (type == std::string("lora")) {
      const AdapterFolder adapter = read_adapter(checkpoint);
      for (const auto& [index, layer] : {std::pair{1, 0}, {15, 1}}) {
        const AdapterTensor& one = adapter.tensors[static_cast<size_t>(index)];
        const HostArray got = adapter.file.read(*one.entry);
        const HostArray& stacked = wanted.at("trained/model.layers.{}.mlp.down_proj.lora_B.weight");
        ASSERT_EQ(one.module, fmt::format("model.layers.{}.mlp.down_proj", layer));
        EXPECT_EQ(std::memcmp(got.data(), stacked.data() + layer * got.bytes(), static_cast<size_t>(got.bytes())), 0);
      }
    } else {
      EXPECT_EQ(ModelRepository::open(checkpoint).names(), run.repository.names());
    }
  }
}

// If there is no memory for the copy, training waits while the same files are written.
TEST(CheckpointWriter, WithoutMemoryForTheCopyWritesTheSameFiles) {
  TempFolder folder;
  std::map<std::string, std::string> written[2];
  const RunRecord record;  // both runs have the same start time, which a checkpoint contains
  for (int64_t memory : {int64_t{0}, int64_t{1} << 40}) {
    const fs::path output = folder / (memory == 0 ? "direct" : "copied");
    Recipe recipe = run_recipe(output, "full");
    recipe.mesh = {{"fsdp", 2}};
    TrainingRun run(recipe);
    CheckpointWriter writer(run.run, run.repository, run.batches.identity(), run.processes, [=] { return memory; });
    writer.save(run.state, record);
    EXPECT_EQ(fs::exists(run.folder()) || memory != 0, true) << "it exists when save() returns";
    writer.require();
    for (const std::string& file : list_tree(output)) written[memory == 0 ? 0 : 1][file] = read_text(output / file);
  }
  EXPECT_GT(written[0].size(), 4u);
  ASSERT_EQ(written[0].size(), written[1].size());
  for (const auto& [file, bytes] : written[0]) EXPECT_TRUE(written[1][file] == bytes) << file;
}

TEST(CheckpointWriter, OldOnesAreDeletedAfterTheNewOneIsComplete) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  recipe.save_total_limit = 2;
  TrainingRun run(recipe);
  CheckpointWriter writer(run.run, run.repository, run.batches.identity(), run.processes);
  for (int i = 0; i < 4; ++i) {
    ++run.state.step;
    writer.save(run.state, {});
  }
  writer.require();
  std::vector<int64_t> steps;
  for (const CheckpointFolder& one : list_checkpoints(folder / "out")) steps.push_back(one.complete ? one.step : -1);
  EXPECT_THAT(steps, testing::ElementsAre(3, 4));
}

TEST(DiskNeeded, CountsTheCheckpointsThatAreKept) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto checkpoints = [&](int64_t limit, int64_t every, int64_t total, int64_t done, int64_t present) {
    recipe.save_total_limit = limit;
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    // A checkpoint has 16 bytes per trained parameter, all in f32: the weight, its two moments, and its copy in the
    // adapter. The result is the adapter, with 4 bytes.
    const int64_t parameters = run.count(run.trained);
    const bool best = recipe.save_strategy == "best";
    const RunLength length{
        .total_steps = total, .save_every = best ? 0 : every, .eval_every = best ? every : int64_t{0}};
    return (disk_needed(run, repository, length, done, present) - 4 * parameters) /
           (16.0 * static_cast<double>(parameters));
  };
  EXPECT_EQ(checkpoints(0, 10, 100, 0, 0), 10);
  EXPECT_EQ(checkpoints(0, 10, 95, 0, 0), 10) << "one at the end";
  EXPECT_EQ(checkpoints(0, 10, 100, 35, 3), 7);
  EXPECT_EQ(checkpoints(3, 10, 100, 0, 0), 4) << "an old one is deleted after the new one is complete";
  EXPECT_EQ(checkpoints(3, 10, 20, 0, 0), 2);
  EXPECT_EQ(checkpoints(3, 10, 100, 50, 3), 1);
  EXPECT_EQ(checkpoints(0, 0, 100, 0, 0), 1) << "an interrupt saves one";
  EXPECT_EQ(checkpoints(1, 10, 100, 0, 0), 2);
  recipe.load_best_model_at_end = true;
  recipe.eval_strategy = recipe.save_strategy = "steps";
  recipe.val_size = 0.1;
  EXPECT_EQ(checkpoints(1, 10, 100, 0, 0), 3) << "the best, the last and the new one";
  EXPECT_EQ(checkpoints(1, 10, 100, 50, 2), 1);
  EXPECT_EQ(checkpoints(2, 10, 100, 0, 0), 3);
  recipe.save_strategy = "best";
  EXPECT_EQ(checkpoints(0, 10, 100, 0, 0), 10) << "every evaluation may be the best";
  EXPECT_EQ(checkpoints(0, 10, 95, 0, 0), 10);
  EXPECT_EQ(checkpoints(0, 10, 100, 85, 8), 2) << "a resumed run";
}

// If several processes train, they need room for the parts of the trained weights, from which process 0 makes the
// result. Optimizer state is not in these parts.
TEST(DiskNeeded, CountsThePartsOfSeveralProcesses) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const RunLength length{.total_steps = 100, .save_every = 10};
  EXPECT_EQ(disk_needed(run, repository, length, 0, 0, true) - disk_needed(run, repository, length, 0, 0),
            4 * run.count(run.trained));
  EXPECT_EQ(result_arrays(run).size(), run.trained.size());
}

// PiSSA's result has twice the rank. Modules that are trained in full keep their size.
TEST(DiskNeeded, PissaDoublesTheLoraWeightsOnly) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  recipe.additional_target = {"lm_head"};
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto plain = make_run(recipe, repository.config(), "config.json", 1);
  EXPECT_EQ(result_bytes(plain, repository), 4 * plain.count(plain.trained));
  recipe.pissa_init = true;
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  std::vector<Param> lora = run.trained;
  std::erase_if(lora, [](const Param& param) { return !param.is_lora(); });
  ASSERT_LT(lora.size(), run.trained.size());
  EXPECT_EQ(result_bytes(run, repository) - result_bytes(plain, repository), 4 * run.count(lora));
}

TEST(DiskNeeded, ALimitIsSuggestedOnlyWhereItHelps) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const RunLength length{.total_steps = 100, .save_every = 1};
  // Returns the suggested limit. The disk has room for `room` checkpoints and the result, and `present` checkpoints
  // already exist.
  auto limit = [&](int64_t own, double room, int64_t present) {
    recipe.save_total_limit = own;
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    const int64_t parameters = run.count(run.trained);
    const auto free = static_cast<int64_t>((16 * room + 4) * static_cast<double>(parameters));
    const std::optional<int64_t> found = save_total_limit_within(run, repository, present, free);
    if (found) {
      recipe.save_total_limit = *found;
      EXPECT_LE(disk_needed(make_run(recipe, repository.config(), "config.json", 1), repository, length, 0, present),
                free);
    }
    return found.value_or(0);
  };
  EXPECT_EQ(limit(0, 5.5, 0), 4);
  EXPECT_EQ(limit(0, 2.5, 3), 4) << "three of them are there";
  EXPECT_EQ(limit(0, 1.5, 0), 0) << "the old and the new one exist at the same time";
  EXPECT_EQ(limit(0, 0.5, 3), 0) << "no further one fits";
  EXPECT_EQ(limit(0, -2, 3), 0);
  EXPECT_EQ(limit(3, 5.5, 0), 0) << "the recipe's own limit is smaller";
  EXPECT_EQ(limit(0, 2.5, 0), 1);
  recipe.load_best_model_at_end = true;
  recipe.eval_strategy = recipe.save_strategy = "steps";
  recipe.val_size = 0.1;
  EXPECT_EQ(limit(0, 2.5, 0), 0) << "the best one stays beside the last";
  EXPECT_EQ(limit(0, 3.5, 0), 2);
}

}  // namespace
}  // namespace fettle
