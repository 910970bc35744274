// Tests how much disk space a run needs.
#include <gtest/gtest.h>

#include "resolve_run.h"
#include "temp_folder.h"
#include "train/disk_space.h"
#include "train/result.h"
#include "training_run.h"

namespace fettle {
namespace {

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
    return (disk_needed(run, repository, length, {.resumed_step = done}, present) - 4 * parameters) /
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
  EXPECT_EQ(disk_needed(run, repository, length, {.several = true}, 0) - disk_needed(run, repository, length, {}, 0),
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
      EXPECT_LE(disk_needed(make_run(recipe, repository.config(), "config.json", 1), repository, length, {}, present),
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
