// Tests runs with their optimizer state, or also their weights, in a file: checkpoints, steps that change nothing, and
// a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/environment.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "temp_folder.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/result.h"
#include "training_run.h"

namespace fettle {
namespace {

Recipe on_disk(Recipe recipe, const TempFolder& folder) {
  recipe.offload_dir = (folder / "state").string();
  return recipe;
}

class OffloadDirRun : public testing::TestWithParam<const char*> {
 protected:
  Recipe plain() const {
    Recipe recipe = run_recipe(folder_ / "out", "full");
    recipe.optim = GetParam();
    return recipe;
  }
  TempFolder folder_{program_file().parent_path()};
};

INSTANTIATE_TEST_SUITE_P(Rules, OffloadDirRun, testing::Values("adamw_torch", "adamw_8bit"),
                         [](const auto& info) { return std::string(info.param); });

// Runs with and without offload_dir continue from each other's checkpoints. The moments of the last run equal those of
// a run without offload_dir and without interruption.
TEST_P(OffloadDirRun, CheckpointsGoBothWays) {
  if (environment("XLA_FLAGS").find("algsimp") == std::string::npos)
    GTEST_SKIP()
        << "XLA_FLAGS does not disable algsimp and fusion (step_offload_dir_test.cpp); run this test with ctest";
  std::vector<double> wanted, got;
  TrainingRun whole(plain());
  while (wanted.size() < 4) wanted.push_back(whole.advance().loss);
  std::optional<StateReader> from;
  std::map<std::string, HostArray> last;
  for (const Recipe& recipe :
       {on_disk(plain(), folder_), plain(), on_disk(plain(), folder_), on_disk(plain(), folder_)}) {
    TrainingRun run(recipe, from ? &*from : nullptr);
    if (from) check_meta(*from, run.run);
    got.push_back(run.advance().loss);
    CheckpointWriter(run.run, run.repository, run.batches.identity(), run.processes).save(run.state, {});
    from.emplace(state_folder(run.folder()));
    from->verify();
    last = trained_values(run.run, run.state);
  }
  expect_equal_lists(got, wanted, 1e-6, "loss");
  for (const auto& [name, value] : trained_values(whole.run, whole.state)) {
    if (value.shape().dtype != DType::kF32) continue;  // 8-bit codes may differ by one
    const Value a = to_value(value), b = to_value(last.at(name));
    for (size_t i = 0; i < a.elements.size(); ++i)
      ASSERT_NEAR(b.elements[i], a.elements[i], 1e-6 * std::max(1.0, std::abs(a.elements[i]))) << name;
  }
}

// The float32 weights in the file equal the weights of a run without offload_dir, in checkpoints and in results. Each
// run continues from the other's checkpoint. The devices have only 16-bit copies.
TEST_P(OffloadDirRun, Float32WeightsGoBothWays) {
  if (environment("XLA_FLAGS").find("algsimp") == std::string::npos)
    GTEST_SKIP()
        << "XLA_FLAGS does not disable algsimp and fusion (step_offload_dir_test.cpp); run this test with ctest";
  Recipe recipe = plain();
  recipe.bf16 = true;
  Recipe apart = recipe;
  apart.output_dir = (folder_ / "whole").string();
  TrainingRun whole(apart);
  std::vector<double> wanted, got;
  while (wanted.size() < 3) wanted.push_back(whole.advance().loss);
  CheckpointWriter(whole.run, whole.repository, whole.batches.identity(), whole.processes).save(whole.state, {});
  const auto values = trained_values(whole.run, whole.state);
  std::optional<StateReader> from;
  for (const bool weights : {true, false, true}) {
    Recipe other = weights ? on_disk(recipe, folder_) : recipe;
    other.offload_dir_weights = weights;
    TrainingRun run(other, from ? &*from : nullptr);
    if (from) check_meta(*from, run.run);
    got.push_back(run.advance().loss);
    CheckpointWriter(run.run, run.repository, run.batches.identity(), run.processes).save(run.state, {});
    from.emplace(state_folder(run.folder()));
    from->verify();
    int copies = 0;
    for (const Param& param : run.run.trained)
      copies += run.state.buffers.at(trained_input(param)).shape().dtype == DType::kBF16 ? 1 : 0;
    EXPECT_EQ(copies, weights ? 7 : 0);  // four matrices of attention, three of the MLP
    if (run.state.step < 3) continue;
    for (const auto& [name, value] : trained_values(run.run, run.state))
      EXPECT_TRUE(same_bytes(value, values.at(name))) << name;
    const std::string file = "model.safetensors";
    EXPECT_EQ(read_text(std::filesystem::path(run.folder()) / file),
              read_text(std::filesystem::path(whole.folder()) / file));
    std::filesystem::create_directory(folder_ / "result");
    write_result(folder_ / "result", run.run, run.repository, run.state);
    EXPECT_EQ(read_text(folder_ / "result" / file), read_text(std::filesystem::path(whole.folder()) / file));
  }
  EXPECT_EQ(got, wanted);
}

// A checkpoint has the state of its step, although the file changes in the next step.
TEST_P(OffloadDirRun, ResumeIsBitIdentical) {
  TrainingRun whole(on_disk(plain(), folder_));
  whole.advance();
  CheckpointWriter writer(whole.run, whole.repository, whole.batches.identity(), whole.processes);
  writer.save(whole.state, {});
  const std::string checkpoint = whole.folder();
  whole.advance();
  whole.advance();
  StateReader reader(state_folder(checkpoint));
  TrainingRun resumed(on_disk(plain(), folder_), &reader);
  resumed.advance();
  resumed.advance();
  const auto wanted = trained_values(whole.run, whole.state);
  for (const auto& [name, value] : trained_values(resumed.run, resumed.state))
    EXPECT_TRUE(same_bytes(value, wanted.at(name))) << name;
}

TEST_P(OffloadDirRun, WhatIsNotFiniteChangesNothing) {
  TrainingRun run(on_disk(plain(), folder_));
  run.advance();
  DeviceBuffer& weight = run.state.buffers.at(trained_input(run.run.model.param("model.norm.weight")));
  const HostArray sound = weight.download();
  HostArray broken = sound.clone();
  broken.as<float>()[0] = std::numeric_limits<float>::infinity();
  auto put = [&](const HostArray& values) {
    weight = DeviceBuffer::upload(run.devices.client(), values, weight.layout());
  };
  put(broken);
  const auto before = trained_values(run.run, run.state);
  EXPECT_FALSE(run.advance().finite());
  for (const auto& [name, value] : trained_values(run.run, run.state))
    EXPECT_TRUE(same_bytes(value, before.at(name))) << name;
  put(sound);  // the blocks that were read ahead are still right
  TrainingRun other(on_disk(plain(), folder_));
  other.advance();
  EXPECT_EQ(run.advance().loss, other.advance().loss);
  const auto wanted = trained_values(other.run, other.state);
  for (const auto& [name, value] : trained_values(run.run, run.state))
    EXPECT_TRUE(same_bytes(value, wanted.at(name))) << name;
}

}  // namespace
}  // namespace fettle
