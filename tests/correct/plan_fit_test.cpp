// Tests the search for the largest size that fits, on functions whose answers are known and on a step.
#include <gtest/gtest.h>

#include <bit>

#include "gpu_plugin.h"
#include "paths.h"
#include "plan/fit.h"
#include "resolve_run.h"

namespace fettle {
namespace {

struct Counted {
  std::function<int64_t(int64_t)> needed;
  int64_t limit;
  int tries = 0;

  std::optional<int64_t> run(int64_t start, const std::function<int64_t(int64_t)>& grain, int64_t most) {
    return largest_size(
        [&](int64_t size) {
          ++tries;
          return SizeTried{size, needed(size), limit};
        },
        start, grain, most);
  }
};

int64_t one(int64_t) {
  return 1;
}

TEST(LargestSize, IsFoundInFewTriesOnALine) {
  for (int64_t start : {1, 7, 64, 1000}) {
    Counted line{[](int64_t size) { return 1000 + 13 * size; }, 5000};
    EXPECT_EQ(line.run(start, one, 65536), 307) << start;
    EXPECT_LE(line.tries, 6) << start;
  }
}

TEST(LargestSize, IsFoundOnStairsAndCurves) {
  Counted stairs{[](int64_t size) { return 1000 + 500 * (size / 16); }, 4400};
  EXPECT_EQ(stairs.run(2, one, 65536), 16 * 6 + 15);
  Counted square{[](int64_t size) { return size * size; }, 1'000'000};
  EXPECT_EQ(square.run(8, one, 65536), 1000);
  EXPECT_LE(square.tries, 20);
}

TEST(LargestSize, EndsOfTheRange) {
  EXPECT_EQ((Counted{[](int64_t) { return 10; }, 5}.run(8, one, 100)), std::nullopt);
  EXPECT_EQ((Counted{[](int64_t) { return 5; }, 5}.run(8, one, 100)), 100) << "a flat line fits up to the end";
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 1}.run(64, one, 100)), 1);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 99}.run(200, one, 100)), 99);
}

TEST(LargestSize, IsAMultipleOfTheGrain) {
  auto grain = [](int64_t size) {
    return std::max<int64_t>(8, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / 64);
  };
  Counted line{[](int64_t size) { return 100 * size; }, 100 * 5000};
  EXPECT_EQ(line.run(2048, grain, 131072), 4992) << "4096 / 64 = 64 divides it, 5000 does not";
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 8}.run(64, grain, 4096)), 8);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 7}.run(64, grain, 4096)), std::nullopt);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 1 << 20}.run(64, grain, 4100)), 4096);
}

// The user puts the mesh and the batch into the recipe. So the plan must have the evaluation of such a recipe.
TEST(LargestFit, OfAChosenMeshHasTheEvaluationOfARecipeWithThisMesh) {
  require_gpu_plugin("rocm");
  if (HasFatalFailure() || IsSkipped()) return;
  Recipe recipe;
  recipe.model_name_or_path = (source_folder() / "tests/reference/models/llama").string();
  recipe.target = "mi300x:2";
  recipe.mesh = {{"auto", 1}};
  recipe.lora_rank = 4;
  recipe.cutoff_len = 64;
  recipe.gradient_checkpointing = "full";
  recipe.gpu_memory_utilization = 1e-5;  // about 2 MB
  const Request request(recipe, Command::kPlan);
  const Machine machine = Machine::of(request);
  const Variant chosen{
      .per_device_train_batch_size = 2, .per_device_eval_batch_size = 2, .mesh = {{{"tp", 2}, {"fsdp", 1}}}};
  const StepPlan plan = largest_fit(request, chosen, machine, FitBy::kBatch);
  EXPECT_NE(plan.run.rows_per_device, 2);
  recipe.mesh = {{"tp", 2}};
  recipe.per_device_train_batch_size = plan.run.rows_per_device;
  const auto run = Request(recipe, Command::kPlan).resolve(machine.run_target(), Purpose::kTraining);
  EXPECT_EQ(plan.run.eval_rows_per_device, run.eval_rows_per_device);
}

}  // namespace
}  // namespace fettle
