// Tests a run that moves from mesh to mesh through checkpoints. It must equal a run that stays on its mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/saved/checkpoint_list.h"
#include "temp_folder.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "training_run.h"

namespace fettle {
namespace {

constexpr int64_t kRows = 8;  // rows of a micro-batch, over all devices

Recipe on_devices(int64_t count, const std::filesystem::path& output, const std::string& type) {
  Recipe recipe = run_recipe(output, type);
  recipe.mesh = {{"fsdp", count}};
  recipe.per_device_train_batch_size = kRows / count;
  return recipe;
}

class Meshes : public testing::TestWithParam<const char*> {};

TEST_P(Meshes, EightTwoOneFourEqualsEight) {
  TempFolder folder;
  constexpr int64_t kSteps = 2;  // on each mesh
  std::vector<double> wanted, got;
  std::vector<std::vector<std::string>> sources;
  std::optional<StateReader> from;
  auto take_leg = [&](TrainingRun& run) {
    if (from) check_meta(*from, run.run);
    for (int64_t step = 0; step < kSteps; ++step) got.push_back(run.advance().loss);
    sources.insert(sources.end(), run.sources.begin(), run.sources.end());
    CheckpointWriter(run.run, run.repository, run.batches.identity(), run.processes).save(run.state, {});
    from.emplace(state_folder(run.folder()));
  };
  // `whole` stays on its mesh. Its first steps are also the first steps of the run that moves.
  TrainingRun whole(on_devices(8, folder / "out", GetParam()));
  take_leg(whole);
  wanted = got;
  while (wanted.size() < 4 * kSteps) wanted.push_back(whole.advance().loss);
  for (int64_t count : {2, 1, 4}) {
    TrainingRun run(on_devices(count, folder / "out", GetParam()), &*from);
    take_leg(run);
  }
  expect_equal_lists(got, wanted, 1e-5, "loss");
  EXPECT_EQ(sources, whole.sources) << "the order of rows";
  // The first epoch is complete here. It has each row once.
  std::multiset<std::string> seen;
  for (int64_t step = 0; step < whole.batches.steps_per_epoch(); ++step)
    seen.insert(sources[static_cast<size_t>(step)].begin(), sources[static_cast<size_t>(step)].end());
  EXPECT_EQ(seen.size(), 80u);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 80u);
}

INSTANTIATE_TEST_SUITE_P(Types, Meshes, testing::Values("lora", "full"),
                         [](const auto& info) { return std::string(info.param); });

// The corrections of routers are in the checkpoint and in the result.
TEST(RouterBias, MovesOnAfterACheckpointBitForBit) {
  TempFolder folder;
  Recipe recipe = on_devices(2, folder / "out", "full");
  recipe.model_name_or_path = reference_model("minimax_m2").string();
  recipe.moe_router_bias_update_rate = 0.01;
  TrainingRun whole(recipe);
  whole.advance();
  CheckpointWriter(whole.run, whole.repository, whole.batches.identity(), whole.processes).save(whole.state, {});
  const ModelRepository result = ModelRepository::open(whole.folder());
  size_t corrections = 0;
  for (const Param& param : whole.run.frozen) {
    ASSERT_TRUE(whole.run.moves(param)) << param.hf_name;
    const HostArray all = whole.state.buffers.at(frozen_input(param)).download();
    for (int64_t i = 0; i < param.stored_count(); ++i, ++corrections) {
      const StoredTensor stored = result.find(param.stored_name(i)), base = whole.repository.find(param.stored_name(i));
      const HostArray written = stored.file->read(*stored.entry);
      EXPECT_EQ(std::memcmp(written.data(), all.data() + i * written.bytes(), static_cast<size_t>(written.bytes())), 0);
      EXPECT_FALSE(same_bytes(written, base.file->read(*base.entry))) << "it has moved";
    }
  }
  EXPECT_EQ(corrections, 2u);
  StateReader from(state_folder(whole.folder()));
  TrainingRun resumed(recipe, &from);
  check_meta(from, resumed.run);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(resumed.advance().loss, whole.advance().loss);
  const auto wanted = trained_values(whole.run, whole.state), got = trained_values(resumed.run, resumed.state);
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, value] : wanted) EXPECT_TRUE(same_bytes(got.at(name), value)) << name;
  recipe.moe_router_bias_update_rate = 0;
  const TrainingRun frozen(recipe);
  EXPECT_THROW(check_meta(from, frozen.run), UserError) << "it would go on from the base's corrections";
}

// A checkpoint does not depend on the number of pipeline stages.
TEST(Pipeline, CheckpointsGoBothWays) {
  TempFolder folder;
  const Recipe plain = on_devices(1, folder / "out", "lora");
  Recipe stages = plain;
  stages.mesh = {{"pp", 2}};
  std::vector<double> wanted, got;
  TrainingRun whole(plain);
  while (wanted.size() < 3) wanted.push_back(whole.advance().loss);
  std::optional<StateReader> from;
  for (const Recipe& recipe : {stages, plain, stages}) {
    TrainingRun run(recipe, from ? &*from : nullptr);
    if (from) check_meta(*from, run.run);
    got.push_back(run.advance().loss);
    CheckpointWriter(run.run, run.repository, run.batches.identity(), run.processes).save(run.state, {});
    from.emplace(state_folder(run.folder()));
  }
  expect_equal_lists(got, wanted, 1e-5, "loss");
}

}  // namespace
}  // namespace fettle
