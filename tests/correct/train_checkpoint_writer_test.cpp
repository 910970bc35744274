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

// A checkpoint's state has each array of the run once: those of which the result is made, and all others.
TEST(CheckpointWriter, TheStateHasEveryArrayOfTheRun) {
  TempFolder folder;
  int64_t number = 0;
  const auto check = [&](const char* what, Recipe recipe) {
    SCOPED_TRACE(what);
    recipe.output_dir = (folder / std::to_string(++number)).string();
    TrainingRun run(recipe);
    ++run.state.step;
    CheckpointWriter writer(run.run, run.repository, run.batches.identity(), run.processes);
    writer.save(run.state, {});
    writer.require();
    std::vector<std::string> wanted;
    for (const StateArray& array : trained_arrays(run.run)) wanted.push_back(array.name);
    EXPECT_THAT(StateReader(state_folder(run.folder())).names(), testing::UnorderedElementsAreArray(wanted));
    EXPECT_LT(result_arrays(run.run).size(), wanted.size()) << "the result lacks the optimizer's state";
    for (const ResultPart& part : result_parts(run.run))
      for (const std::string& name : {part.weights, part.start})
        EXPECT_EQ(std::ranges::count(wanted, name), name.empty() ? 0 : 1) << name;
  };
  const Recipe lora = run_recipe("", "lora"), full = run_recipe("", "full");
  Recipe other = lora;
  check("LoRA", other);
  other.pissa_init = true;
  check("PiSSA", other);
  other = full;
  other.fp16 = true;
  check("a loss scale", other);
  other = full;
  other.model_name_or_path = reference_recipe("deepseek_v3").model_name_or_path;
  other.moe_router_bias_update_rate = 0.01;
  check("corrections of routers, which no gradient trains", other);
  other.moe_router_bias_update_rate = 0;
  other.train_from_scratch = true;
  check("random weights", other);
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

}  // namespace
}  // namespace fettle
