// Tests NEFTune's noise: it is within its bound, uniformly distributed, and the same wherever a row is in the batch and
// however many rows the batch has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/random.h"
#include "graph_run.h"
#include "step/embedding_noise.h"
#include "training.h"

namespace fettle {
namespace {

constexpr int64_t kFeatures = 64;

// Returns the noise for one line. `rows` and `positions` have the row number and the position of each of its tokens.
std::vector<double> noise(const std::vector<double>& rows, const std::vector<double>& positions, double seed) {
  const auto places = static_cast<int64_t>(rows.size());
  GraphRun run;
  const Tensor x = run.input(f32({1, places, kFeatures}, std::vector<double>(rows.size() * kFeatures, 0)));
  const PositionKey key{run.input(u32({}, {seed})), run.input(i32({1, places}, rows)),
                        run.input(i32({1, places}, positions))};
  run.output("noise", with_noise(x, 5, key));
  return run.run().at("noise").elements;
}

std::vector<double> part(const std::vector<double>& all, int64_t first, int64_t places) {
  return {all.begin() + first * kFeatures, all.begin() + (first + places) * kFeatures};
}

TEST(EmbeddingNoise, FillsItsBoundEvenly) {
  const std::vector<double> got = noise({1, 1, 1, 1, 90, 90}, {0, 1, 2, 3, 0, 1}, 7);
  for (const auto& [first, places] : {std::pair{0, 4}, {4, 2}}) {
    const std::vector<double> row = part(got, first, places);
    const double most = 5 / std::sqrt(static_cast<double>(places * kFeatures));
    double sum = 0, squares = 0, largest = 0;
    for (double x : row) sum += x, squares += x * x, largest = std::max(largest, std::abs(x));
    const auto count = static_cast<double>(row.size());
    EXPECT_LE(largest, most * 1.000001);
    EXPECT_GT(largest, most * 0.95);
    EXPECT_NEAR(sum / count, 0, most * 0.2);
    EXPECT_NEAR(squares / count, most * most / 3, most * most / 3 * 0.2) << "the variance of a uniform distribution";
  }
}

TEST(EmbeddingNoise, BelongsToTheRowAndTheSeed) {
  const std::vector<double> shared = noise({1, 1, 2, 2}, {0, 1, 0, 1}, 7),
                            swapped = noise({2, 2, 1, 1}, {0, 1, 0, 1}, 7);
  EXPECT_EQ(part(shared, 0, 2), part(swapped, 2, 2));
  EXPECT_EQ(part(shared, 2, 2), part(swapped, 0, 2));
  EXPECT_NE(part(shared, 0, 2), part(shared, 2, 2));
  EXPECT_NE(shared, noise({1, 1, 2, 2}, {0, 1, 0, 1}, 8));
}

TEST(EmbeddingNoise, NeedsMemoryThatIsLinearInThePositions) {
  constexpr int64_t kPlaces = 8192, kWidth = 4;
  GraphRun run;
  const Tensor x = run.input(f32({1, kPlaces, kWidth}, std::vector<double>(kPlaces * kWidth, 0)));
  const PositionKey key{run.input(u32({}, {7})), run.input(i32({1, kPlaces}, std::vector<double>(kPlaces, 1))),
                        run.input(i32({1, kPlaces}, std::vector<double>(kPlaces, 0)))};
  run.output("noise", with_noise(x, 5, key));
  EXPECT_LT(cpu_devices().compile(run.program()).memory_stats().temp, 64 * kPlaces * kWidth);
}

// Packed steps differ in their number of rows, and one program serves all of them.
TEST(EmbeddingNoise, OfPackedRowsDoesNotDependOnTheStepThatWasCompiled) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.packing = true;
  recipe.neftune_noise_alpha = 20;
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const std::vector<Example> rows = reference_rows();
  const Batches batches(rows, {.sequences = 1, .max_length = 160, .packing = true, .shuffle = false, .lengths = {160}});
  const Batch batch = batches.at(0);
  ASSERT_GT(batch.shape.sequences, 2);
  auto loss = [&](StepPrograms& programs) {
    TrainState state = load_state(devices, run, repository, true);
    return run_step(devices, run, programs.at(batch.shape).executable, state, batch, 1e-3).loss;
  };
  StepPrograms exact(devices, run), shared(devices, run);
  BatchShape of_one_row = batch.shape;
  of_one_row.sequences = 1;
  shared.at(of_one_row);
  EXPECT_EQ(loss(shared), loss(exact));
}

}  // namespace
}  // namespace fettle
