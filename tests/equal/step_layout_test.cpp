// Tests that rows that share lines give the same losses and gradients as rows in their own lines, in every stage.
#include <gtest/gtest.h>

#include "class_rows.h"
#include "preference_rows.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

struct Setting {
  std::string name, model, stage, type;
  Lines lines;  // the value that the run must choose
  int64_t rows = 4, accumulation = 1;
  std::string problem = "";
  bool weighted = false;
};

std::vector<Example> labelled_rows(const std::string& problem) {
  std::vector<Example> rows = reference_rows();
  const nlohmann::json& labels = classifiers_json()["labels"][problem];
  for (size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& label = labels[i % labels.size()];
    rows[i].classes = label.is_array() ? label.get<std::vector<float>>() : std::vector<float>{label.get<float>()};
    for (int32_t& id : rows[i].input_ids) id = std::max(id, 2);
    rows[i].labels.assign(rows[i].input_ids.size(), kIgnore);
    rows[i].second_text.assign(rows[i].input_ids.size(), 0);
    std::fill(rows[i].second_text.begin() + static_cast<std::ptrdiff_t>(rows[i].second_text.size() / 2),
              rows[i].second_text.end(), 1);
  }
  return rows;
}

std::vector<Example> rows_of(const Setting& setting) {
  if (setting.stage == "dpo" || setting.stage == "rm") return preference_pairs();
  if (setting.stage == "kto") return rated_replies();
  if (setting.stage == "cls") return labelled_rows(setting.problem);
  std::vector<Example> rows = reference_rows();
  if (setting.weighted)
    for (size_t row = 0; row < rows.size(); ++row)
      for (size_t i = 0; i < rows[row].input_ids.size(); ++i)
        rows[row].weights.push_back(0.5f * static_cast<float>((row + i) % 5));
  return rows;
}

Recipe recipe_of(const Setting& setting) {
  Recipe recipe = setting.stage == "cls" ? class_recipe(setting.model, setting.problem, setting.type)
                                         : reference_recipe(setting.model);
  recipe.stage = setting.stage;
  recipe.finetuning_type = setting.type;
  recipe.per_device_train_batch_size = setting.rows;
  recipe.gradient_accumulation_steps = setting.accumulation;
  if (setting.type == "lora") recipe.lora_dropout = 0.2;
  recipe.neftune_noise_alpha = 1;
  return recipe;
}

class SharedLines : public testing::TestWithParam<Setting> {};

TEST_P(SharedLines, EqualLinesOfTheirOwn) {
  const Setting& setting = GetParam();
  const Recipe recipe = recipe_of(setting);
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  EXPECT_EQ(make_run(recipe, repository.config(), "config.json", 1).batch.lines, setting.lines);
  TrainOptions options{.rows = rows_of(setting)};
  const TrainResult own = train(recipe, options);
  options.laid = true;
  const TrainResult laid = train(recipe, options);
  // If a micro-batch must keep its rows, sharing lines does not always save positions.
  EXPECT_LE(laid.positions, own.positions);
  if (setting.lines == Lines::kRegrouped) {
    EXPECT_LT(laid.positions, own.positions);
  }
  EXPECT_LE(laid.shapes.size(), kMostShapes);
  // The first loss has no rounding errors of earlier steps.
  EXPECT_NEAR(laid.losses[0], own.losses[0], 2e-6 * std::abs(own.losses[0]));
  expect_equal_lists(laid.losses, own.losses, 1e-5, "loss");
  expect_equal_lists(laid.norms, own.norms, 1e-4, "norm");
  expect_equal_gradients(laid, own, 1e-3);
  for (const auto& [name, values] : own.metrics)
    for (size_t step = 0; step < values.size(); ++step)
      EXPECT_NEAR(laid.metrics.at(name).at(step), values[step], 1e-4 * std::max(1.0, std::abs(values[step]))) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Stages, SharedLines,
    testing::Values(Setting{"pt", "llama", "pt", "lora", Lines::kRegrouped},
                    Setting{"sft", "llama", "sft", "lora", Lines::kRegrouped},
                    Setting{"sft_accumulated", "gpt2", "sft", "lora", Lines::kRegrouped, 1, 6},
                    Setting{"sft_weighted", "llama", "sft", "lora", Lines::kRegrouped, 4, 1, "", true},
                    Setting{"sft_full", "mistral", "sft", "full", Lines::kShared, 6},
                    Setting{"sft_full_accumulated", "llama", "sft", "full", Lines::kRegrouped, 2, 3},
                    Setting{"balanced_experts", "mixtral", "sft", "full", Lines::kShared, 6},
                    Setting{"dpo", "llama", "dpo", "lora", Lines::kRegrouped, 3},
                    Setting{"kto", "llama", "kto", "lora", Lines::kShared, 6},
                    Setting{"rm", "llama", "rm", "lora", Lines::kRegrouped, 3, 2},
                    Setting{"cls_first", "bert", "cls", "lora", Lines::kRegrouped, 6, 1, kSingle},
                    Setting{"cls_mean", "modernbert_mean", "cls", "full", Lines::kShared, 6, 1, kMulti},
                    Setting{"cls_last", "llama_classifier", "cls", "full", Lines::kShared, 6, 1, kMulti}),
    [](const auto& test) { return test.param.name; });

// A step's micro-batches may be computed several at once (plan/remat_choice.h).
class MergedMicroBatches : public testing::TestWithParam<Setting> {};

TEST_P(MergedMicroBatches, TrainAsOneAfterTheOther) {
  const Setting& setting = GetParam();
  const Recipe recipe = recipe_of(setting);
  TrainOptions options{.laid = true, .rows = rows_of(setting)};
  const TrainResult apart = train(recipe, options);
  for (int64_t times = 2; times <= setting.accumulation; ++times) {
    if (setting.accumulation % times != 0) continue;
    SCOPED_TRACE(times);
    options.merged = times;
    const TrainResult merged = train(recipe, options);
    EXPECT_NE(merged.shapes, apart.shapes);
    EXPECT_NEAR(merged.losses[0], apart.losses[0], 2e-6 * std::abs(apart.losses[0]));
    expect_equal_lists(merged.losses, apart.losses, 1e-5, "loss");
    expect_equal_lists(merged.norms, apart.norms, 1e-4, "norm");
    expect_equal_gradients(merged, apart, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, MergedMicroBatches,
    testing::Values(Setting{"sft", "gpt2", "sft", "lora", Lines::kRegrouped, 1, 6},
                    Setting{"sft_full", "llama", "sft", "full", Lines::kRegrouped, 2, 2},
                    Setting{"sft_weighted", "llama", "sft", "lora", Lines::kRegrouped, 1, 4, "", true},
                    Setting{"dpo", "llama", "dpo", "lora", Lines::kRegrouped, 1, 3},
                    Setting{"cls", "llama_classifier", "cls", "lora", Lines::kRegrouped, 2, 3, kMulti}),
    [](const auto& test) { return test.param.name; });

// With eight devices, the same rows share lines in another way.
class SharedLinesOnDevices : public testing::TestWithParam<Setting> {};

TEST_P(SharedLinesOnDevices, EightTrainAsOne) {
  Recipe recipe = recipe_of(GetParam());
  recipe.per_device_train_batch_size = 8;
  const TrainOptions options{.laid = true, .rows = rows_of(GetParam())};
  const TrainResult one = train(recipe, options);
  recipe.per_device_train_batch_size = 2;
  recipe.mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}};
  const TrainResult eight = train(recipe, options);
  expect_equal_lists(eight.losses, one.losses, 1e-5, "loss");
  expect_equal_lists(eight.norms, one.norms, 1e-4, "norm");
  recipe.mesh = {{"fsdp", 4}, {"sp", 2}};
  const TrainResult split = train(recipe, options);
  expect_equal_lists(split.losses, one.losses, 1e-5, "loss");
  expect_equal_lists(split.norms, one.norms, 1e-4, "norm");
}

// A pipeline computes the loss of a step's micro-batches as one batch.
TEST_P(SharedLinesOnDevices, StagesOfAPipelineTrainAsOne) {
  Recipe recipe = recipe_of(GetParam());
  recipe.per_device_train_batch_size = 8;
  const TrainOptions options{.laid = true, .rows = rows_of(GetParam())};
  const TrainResult one = train(recipe, options);
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  recipe.mesh = {{"pp", 2}, {"fsdp", 2}};
  const TrainResult stages = train(recipe, options);
  expect_equal_lists(stages.losses, one.losses, 1e-5, "loss");
  expect_equal_lists(stages.norms, one.norms, 1e-4, "norm");
}

INSTANTIATE_TEST_SUITE_P(Stages, SharedLinesOnDevices,
                         testing::Values(Setting{"sft", "llama", "sft", "lora"},
                                         Setting{"sft_weighted", "llama", "sft", "lora", {}, 8, 1, "", true},
                                         Setting{"dpo", "llama", "dpo", "lora"}, Setting{"kto", "llama", "kto", "lora"},
                                         Setting{"rm", "llama", "rm", "full"},
                                         Setting{"cls", "llama_classifier", "cls", "lora", {}, 8, 1, kSingle},
                                         Setting{"cls_first", "bert", "cls", "full", {}, 8, 1, kMulti}),
                         [](const auto& test) { return test.param.name; });

// Devices of experts share the lines, too.
TEST(SharedLines, AreSplitOverDevicesOfExperts) {
  Recipe recipe = recipe_of({"experts", "mixtral", "sft", "lora"});
  recipe.per_device_train_batch_size = 8;
  const TrainOptions options{.laid = true};
  const TrainResult one = train(recipe, options);
  recipe.mesh = {{"ep", 8}};
  const TrainResult eight = train(recipe, options);
  for (const auto& [lines, length] : eight.shapes) EXPECT_EQ(lines % 8, 0) << lines << " x " << length;
  expect_equal_lists(eight.losses, one.losses, 1e-5, "loss");
  expect_equal_lists(eight.norms, one.norms, 1e-4, "norm");
}

// `plan` counts the memory of the step with the largest micro-batches. A step with more micro-batches needs at most one
// more copy of the gradients.
TEST(SharedLines, NeedNoMoreMemoryThanThePlanCounts) {
  Recipe recipe = reference_recipe("llama");
  recipe.cutoff_len = 40;
  recipe.per_device_train_batch_size = 4;
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  StepPrograms programs(devices, run);
  const BatchShape fullest = fullest_shape(run.batch);
  BatchShape shared = fullest;
  shared.micro_batches = 4;
  shared.counted = true;
  const MemoryTable planned = programs.memory(fullest), needed = programs.memory(shared);
  EXPECT_LE(needed.peak - needed.batch, planned.peak - planned.batch + planned.gradients);
}

// An evaluation lays its rows into lines in the same way as training.
TEST(SharedLines, GiveEachRowItsLoss) {
  Recipe recipe = reference_recipe("llama");
  recipe.cutoff_len = 40;
  recipe.per_device_eval_batch_size = 6;
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto run = make_run(recipe, repository.config(), "config.json", 1);
  TrainState state = load_state(devices, run, repository, false);
  ASSERT_EQ(run.eval_batch.lines, Lines::kRegrouped);
  const std::vector<Example> rows = reference_rows(0, 15);
  Evaluator shared(devices, run, rows);
  const std::vector<double> laid = shared.losses(state);
  const Evaluation all = shared.run(state);
  run.eval_batch.lines = Lines::kOwn;
  Evaluator apart(devices, run, rows);
  expect_equal_lists(laid, apart.losses(state), 2e-6, "row");
  const Evaluation wanted = apart.run(state);
  EXPECT_NEAR(all.loss, wanted.loss, 1e-6 * wanted.loss);
  EXPECT_EQ(all.tokens, wanted.tokens);
  EXPECT_EQ(all.accuracy, wanted.accuracy);
  EXPECT_EQ(laid.size(), 15u);
}

}  // namespace
}  // namespace fettle
