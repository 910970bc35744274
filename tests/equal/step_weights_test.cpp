// Tests the weights of tokens in the loss. Weighted losses are compared with sums made by hand and with runs without
// weights.
#include <gtest/gtest.h>

#include <cmath>

#include "step/evaluate.h"
#include "training.h"

namespace fettle {
namespace {

Recipe weights_recipe(const std::string& type = "lora") {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = type;
  recipe.per_device_train_batch_size = 4;
  recipe.max_grad_norm = 0;
  return recipe;
}

// Gives each token a weight, which depends on its place.
std::vector<Example> with_weights(std::vector<Example> rows,
                                  const std::function<float(size_t row, size_t token)>& weight) {
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 0; i < rows[row].input_ids.size(); ++i) rows[row].weights.push_back(weight(row, i));
  return rows;
}

void expect_same(const TrainResult& got, const TrainResult& wanted, double relative = 1e-6) {
  expect_equal_lists(got.losses, wanted.losses, relative, "loss");
  expect_equal_lists(got.norms, wanted.norms, relative * 10, "norm");
}

TEST(TokenWeights, OfOneChangeNothing) {
  for (const std::string type : {"lora", "full"}) {
    const TrainResult plain = train(weights_recipe(type));
    expect_same(train(weights_recipe(type), {.rows = with_weights(reference_rows(), [](size_t, size_t) { return 1; })}),
                plain);
  }
}

// The loss is the sum of weight * (negative log-probability), divided by the number of trained tokens. The losses of
// single tokens come from evaluations of rows in which only one token is trained.
TEST(TokenWeights, MultiplyTheLossOfEachToken) {
  std::vector<Example> rows = reference_rows(0, 4);
  const auto weight = [](size_t row, size_t i) { return 0.25f * static_cast<float>((row + 3 * i) % 7); };
  std::vector<Example> single;
  std::vector<double> factors;
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 1; i < rows[row].labels.size(); ++i) {
      if (rows[row].labels[i] == kIgnore) continue;
      single.push_back(rows[row]);
      for (size_t other = 0; other < rows[row].labels.size(); ++other)
        if (other != i) single.back().labels[other] = kIgnore;
      factors.push_back(weight(row, i));
    }
  const Recipe recipe = weights_recipe();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  Devices& devices = cpu_devices();
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  TrainState state = load_state(devices, run, repository, false);
  const std::vector<double> losses = Evaluator(devices, run, single).losses(state);
  ASSERT_EQ(losses.size(), factors.size());
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) sum += factors[i] * losses[i];
  const double wanted = sum / static_cast<double>(losses.size());
  const std::vector<Example> weighted = with_weights(rows, weight);
  EXPECT_NEAR(train(recipe, {.steps = 1, .rows = weighted}).losses[0], wanted, 2e-6 * wanted);
  // Evaluations weigh tokens in the same way.
  const Evaluation evaluation = Evaluator(devices, run, weighted).run(state);
  EXPECT_NEAR(evaluation.loss, wanted, 2e-6 * wanted);
  EXPECT_EQ(evaluation.tokens, static_cast<int64_t>(losses.size()));
}

TEST(TokenWeights, ScaleLossAndGradientOfEachObjective) {
  for (const char* objective : {"cross_entropy", "dft", "eaft", "asft"}) {
    SCOPED_TRACE(objective);
    Recipe recipe = weights_recipe();
    recipe.sft_loss = objective;
    const TrainResult plain = train(recipe, {.steps = 1});
    const TrainResult twice =
        train(recipe, {.steps = 1, .rows = with_weights(reference_rows(), [](size_t, size_t) { return 2; })});
    EXPECT_NEAR(twice.losses[0], 2 * plain.losses[0], 2e-6 * twice.losses[0]);
    EXPECT_NEAR(twice.norms[0], 2 * plain.norms[0], 2e-5 * twice.norms[0]);
  }
}

}  // namespace
}  // namespace fettle
