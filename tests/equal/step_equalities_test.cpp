// Tests equalities of the step: accumulation equals one large batch, packed rows equal separate rows, and all
// rematerialisation policies agree.
#include <gtest/gtest.h>

#include <algorithm>

#include "resolve_run.h"
#include "step/state/batch_arrays.h"
#include "training.h"

namespace fettle {
namespace {

struct Tuning {
  std::string model, type;
};

class Step : public testing::TestWithParam<Tuning> {
 protected:
  Recipe recipe() const {
    Recipe recipe = reference_recipe(GetParam().model);
    recipe.finetuning_type = GetParam().type;
    return recipe;
  }
};

// The micro-batches have different numbers of tokens, so the mean of their means would be a different loss.
TEST_P(Step, AccumulationEqualsOneLargeBatch) {
  Recipe apart = recipe(), together = recipe();
  apart.gradient_accumulation_steps = 4;
  together.per_device_train_batch_size = 4;
  const TrainResult a = train(apart), b = train(together);
  expect_equal_lists(a.losses, b.losses, 1e-6, "loss");
  expect_equal_lists(a.norms, b.norms, 1e-5, "norm");
  expect_equal_gradients(a, b, 1e-4);
}

TEST_P(Step, RematPoliciesAgree) {
  Recipe recipe = this->recipe();
  recipe.per_device_train_batch_size = 2;
  recipe.lora_dropout = 0.1;
  recipe.gradient_checkpointing = "none";
  const TrainResult none = train(recipe);
  for (const char* policy : {"attention", "dots", "50%", "full"}) {
    recipe.gradient_checkpointing = policy;
    const TrainResult other = train(recipe);
    expect_equal_lists(other.losses, none.losses, 1e-6, policy);
    expect_equal_lists(other.norms, none.norms, 1e-5, policy);
    expect_equal_gradients(other, none, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Tunings, Step,
                         testing::Values(Tuning{"llama", "lora"}, Tuning{"llama", "full"}, Tuning{"mistral", "full"},
                                         Tuning{"gpt2", "lora"}),
                         [](const auto& info) { return info.param.model + "_" + info.param.type; });

struct RowLosses {
  std::vector<double> loss, tokens, correct;
};

// Evaluates `lines` lines of 40 positions once. Returns the losses of each row.
RowLosses evaluate(const std::string& model, const std::vector<Example>& examples, int64_t lines, bool packing) {
  Recipe recipe = reference_recipe(model);
  recipe.finetuning_type = "full";
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const Batches batches(examples,
                        {.sequences = lines, .max_length = 40, .packing = packing, .shuffle = false, .lengths = {40}});
  const Batch batch = batches.at(0);
  const Executable executable = devices.compile(build_eval_step(run, batch.shape));
  TrainState state = load_state(devices, run, repository, false);
  std::map<std::string, DeviceBuffer> inputs = upload_micro_batch(devices, run, batch, 0);
  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  const std::map<std::string, DeviceBuffer> out = run_program(executable, bindings);
  auto read = [&](const char* name) { return to_value(out.at(name).download()).elements; };
  return {read("loss"), read("tokens"), read("correct")};
}

class Rows : public testing::TestWithParam<const char*> {};

// Two documents in one line do not see each other, and each counts positions from its own start.
TEST_P(Rows, PackedRowsEqualRowsApart) {
  const std::vector<Example> rows = reference_rows();
  const std::vector<Example> pair{rows[6], rows[10]};  // 12 and 22 ids
  ASSERT_LE(pair[0].input_ids.size() + pair[1].input_ids.size(), 40u);
  const RowLosses packed = evaluate(GetParam(), pair, 1, true), apart = evaluate(GetParam(), pair, 2, false);
  ASSERT_EQ(packed.loss.size(), 2u);
  for (size_t row = 0; row < 2; ++row) EXPECT_NEAR(packed.loss[row], apart.loss[row], 1e-6 * packed.loss[row]);
  EXPECT_EQ(packed.tokens, apart.tokens);
  EXPECT_EQ(packed.correct, apart.correct);
  EXPECT_GT(apart.tokens[0], 0);
  // A row has the same losses in a batch and alone.
  const RowLosses first = evaluate(GetParam(), {pair[0]}, 1, false);
  EXPECT_NEAR(first.loss[0], apart.loss[0], 1e-6 * first.loss[0]);
}

// No gradient flows from one document to another document in the same line.
TEST_P(Rows, PackedRowsHaveTheGradientsOfRowsApart) {
  const std::vector<Example> rows = reference_rows();
  Recipe recipe = reference_recipe(GetParam());
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 2;
  TrainOptions options{.steps = 1, .rows = {rows[6], rows[10]}};
  const TrainResult apart = train(recipe, options);
  recipe.per_device_train_batch_size = 1;
  options.packing = true;
  const TrainResult packed = train(recipe, options);
  ASSERT_EQ(2 * packed.positions, apart.positions) << "one line has both rows";
  expect_equal_lists(packed.losses, apart.losses, 1e-6, "loss");
  expect_equal_lists(packed.norms, apart.norms, 1e-5, "norm");
  expect_equal_gradients(packed, apart, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, Rows,
                         testing::Values("llama", "mistral", "gpt2", "gpt_oss", "cohere2", "qwen3_5_text", "llama4",
                                         "lfm2", "granite4", "falcon_h1", "nemotron_h_moe", "phi", "qwen3_next",
                                         "qwen3_5_moe", "lfm2_moe", "deepseek_v2", "gemma2", "gemma4_e2b", "phi3",
                                         "baichuan13b", "exaone4"),
                         [](const auto& info) { return std::string(info.param); });

// The loss is the mean over the tokens of the whole step, not the mean of the micro-batches' means.
TEST(StepLoss, IsTheMeanOverAllTrainedTokens) {
  const std::vector<Example> rows = reference_rows(0, 2);
  const RowLosses apart = evaluate("llama", rows, 2, false);
  Recipe recipe = reference_recipe("llama");
  recipe.gradient_accumulation_steps = 2;
  const TrainResult step = train(recipe, {.steps = 1});
  EXPECT_NEAR(step.losses[0], (apart.loss[0] + apart.loss[1]) / (apart.tokens[0] + apart.tokens[1]),
              1e-6 * step.losses[0]);
}

}  // namespace
}  // namespace fettle
