// Tests runs with their state in host memory: checkpoints, and steps that change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/saved/checkpoint_list.h"
#include "temp_folder.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "training_run.h"

namespace fettle {
namespace {

Recipe offloaded(Recipe recipe) {
  recipe.offload_optimizer = recipe.offload_param = true;
  return recipe;
}

// Runs with and without offload can continue from each other's checkpoints.
TEST(Offload, CheckpointsGoBothWays) {
  TempFolder folder;
  Recipe plain = run_recipe(folder / "out", "full");
  plain.gradient_accumulation_steps = 1;
  std::vector<double> wanted, got;
  TrainingRun whole(plain);
  while (wanted.size() < 3) wanted.push_back(whole.advance().loss);
  std::optional<StateReader> from;
  for (const Recipe& recipe : {offloaded(plain), plain, offloaded(plain)}) {
    TrainingRun run(recipe, from ? &*from : nullptr);
    if (from) check_meta(*from, run.run);
    got.push_back(run.advance().loss);
    CheckpointWriter(run.run, run.repository, run.batches.identity(), run.processes).save(run.state, {});
    from.emplace(state_folder(run.folder()));
  }
  expect_equal_lists(got, wanted, 1e-6, "loss");
}

// If the loss is not finite, the step returns its inputs unchanged, in the same memory.
TEST(Offload, WhatIsNotFiniteChangesNothing) {
  TempFolder folder;
  Recipe recipe = offloaded(run_recipe(folder / "out", "full"));
  recipe.gradient_accumulation_steps = 1;
  TrainingRun run(recipe);
  run.advance();
  const std::string norm = trained_input(run.run.model.param("model.norm.weight"));
  DeviceBuffer& weight = run.state.buffers.at(norm);
  HostArray broken = weight.download();
  broken.as<float>()[0] = std::numeric_limits<float>::infinity();
  weight = DeviceBuffer::upload(run.devices.client(), broken, weight.layout());
  const auto before = trained_values(run.run, run.state);
  EXPECT_FALSE(run.advance().finite());
  for (const auto& [name, value] : trained_values(run.run, run.state))
    EXPECT_TRUE(same_bytes(value, before.at(name))) << name;
}

}  // namespace
}  // namespace fettle
