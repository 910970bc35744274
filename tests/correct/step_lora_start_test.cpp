// Tests the LoRA weights at the start of a run.
#include <gtest/gtest.h>

#include "training.h"

namespace fettle {
namespace {

// New LoRA weights change nothing, because B is zero. A is Kaiming-uniform with a = sqrt(5), which is uniform in
// +-1/sqrt(in).
TEST(LoraStart, IsPefts) {
  Recipe recipe = reference_recipe("llama");
  recipe.lora_rank = 64;
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  TrainState state = load_state(devices, run, repository, false);
  const Value a = to_value(state.buffers.at("trained/model.layers.{}.mlp.down_proj.lora_A.weight").download());
  const Value b = to_value(state.buffers.at("trained/model.layers.{}.mlp.down_proj.lora_B.weight").download());
  EXPECT_EQ(a.shape.dims, (Dims{2, 64, 96}));
  for (double x : b.elements) ASSERT_EQ(x, 0);
  const double bound = 1 / std::sqrt(96.0), n = static_cast<double>(a.elements.size());
  double mean = 0, square = 0, largest = 0;
  for (double x : a.elements) {
    mean += x / n;
    square += x * x / n;
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
  EXPECT_NEAR(mean, 0, 5 * bound / std::sqrt(3 * n));
  EXPECT_NEAR(square, bound * bound / 3, 0.03 * bound * bound);
}

}  // namespace
}  // namespace fettle
