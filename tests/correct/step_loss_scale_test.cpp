// Tests the loss scale of float16: when it changes, and what happens to a step whose gradients overflow.
#include <gtest/gtest.h>

#include "graph/ops.h"
#include "optim/loss_scale.h"
#include "resolve_run.h"
#include "step/run_step.h"
#include "training.h"

namespace fettle {
namespace {

TEST(LossScale, GrowsAfterTwoThousandGoodStepsAndHalvesAtAnOverflow) {
  GraphRun run;
  auto next = [&](double scale, double good, bool finite) {
    return next_loss_scale(run.input(f32({2}, {scale, good})), run.input(pred({}, {finite ? 1.0 : 0.0})));
  };
  run.output("good", next(1024, 7, true));
  run.output("grown", next(1024, 1999, true));
  run.output("halved", next(1024, 1999, false));
  const std::map<std::string, Value> got = run.run();
  EXPECT_EQ(got.at("good").elements, (std::vector<double>{1024, 8}));
  EXPECT_EQ(got.at("grown").elements, (std::vector<double>{2048, 0}));
  EXPECT_EQ(got.at("halved").elements, (std::vector<double>{512, 0}));
}

// The first scale overflows at once. The state does not change until the scale has decreased. Then the step is the same
// as without an overflow.
TEST(LossScale, AnOverflowChangesNothingAndTheStepIsRunAgain) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.fp16 = true;
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const Executable step = devices.compile(build_train_step(run, 40));
  const std::vector<Example> rows = reference_rows();
  const Batches batches(rows, {.sequences = 1, .max_length = 40, .shuffle = false, .lengths = {40}});
  auto weight = [&](const TrainState& state) {
    return to_value(state.buffers.at("trained/model.layers.{}.mlp.up_proj.weight").download()).elements;
  };
  TrainState plain = load_state(devices, run, repository, true), state = load_state(devices, run, repository, true);
  state.buffers.at(kLossScale) = replicate(devices, HostArray::from<float>({DType::kF32, {2}}, {1e9f * 65536, 3}));
  const std::vector<double> before = weight(state);

  StepOutcome outcome = run_step(devices, run, step, state, batches.at(0), 1e-3);
  EXPECT_TRUE(outcome.overflowed);
  EXPECT_FALSE(outcome.finite());
  EXPECT_EQ(outcome.loss_scale, 1e9f * 65536 / 2);
  EXPECT_EQ(state.step, 0);
  EXPECT_EQ(weight(state), before);
  int overflows = 1;
  for (; !outcome.finite() && overflows < 60; ++overflows)
    outcome = run_step(devices, run, step, state, batches.at(0), 1e-3);
  ASSERT_TRUE(outcome.finite());
  EXPECT_FALSE(outcome.overflowed);
  EXPECT_EQ(state.step, 1);

  const StepOutcome wanted = run_step(devices, run, step, plain, batches.at(0), 1e-3);
  ASSERT_TRUE(wanted.finite()) << "the first scale overflows";
  EXPECT_EQ(outcome.loss, wanted.loss);
  EXPECT_NEAR(outcome.grad_norm, wanted.grad_norm, 1e-2 * wanted.grad_norm);
}

}  // namespace
}  // namespace fettle
