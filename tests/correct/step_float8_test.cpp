// Compares training with the layers' matrix products in 8-bit floats with training in bfloat16. The CPU emulates 8-bit
// floats.
#include <gtest/gtest.h>

#include "loss_difference.h"
#include "optim/schedule.h"
#include "training.h"

namespace fettle {
namespace {

TEST(Float8Training, LossesAreNearThoseInBf16) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.bf16 = true;
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  const Schedule schedule{"cosine", 5, 20};
  const TrainOptions options{.steps = 20, .rate_at = [&](int64_t step) { return 5e-4 * schedule.multiplier(step); }};
  const TrainResult in_bf16 = train(recipe, options);
  recipe.fp8 = true;
  const TrainResult in_8_bits = train(recipe, options);
  expect_equal_lists(in_8_bits.losses, in_bf16.losses, 1e-2, "loss");
  const double largest = largest_difference(in_8_bits.losses, in_bf16.losses);
  std::printf("largest relative difference of a loss %.2g, last losses %.4f and %.4f\n", largest,
              in_8_bits.losses.back(), in_bf16.losses.back());
  EXPECT_GT(largest, 1e-3) << "nothing was rounded to 8 bits";
}

}  // namespace
}  // namespace fettle
