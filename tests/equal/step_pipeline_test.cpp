// Tests that training with a pipeline of stages equals training on one device.
#include <gtest/gtest.h>

#include "mesh_recipes.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

constexpr int64_t kRows = 4;  // rows of a micro-batch, over all devices

Recipe recipe_of(const Mesh& mesh, const std::string& type, const std::string& model = "llama") {
  return mesh_recipe(mesh, type, model, kRows, 4);
}

struct PipelineCase {
  std::string model, type;
  Mesh mesh;
  std::string checkpointing = "full";
  bool packing = false;
};

class PipelineTest : public testing::TestWithParam<PipelineCase> {};

TEST_P(PipelineTest, EqualsOneDevice) {
  const PipelineCase& test = GetParam();
  const TrainOptions options{.steps = 3, .rate = test.type == "full" ? 5e-4 : 5e-3, .packing = test.packing};
  Recipe one = recipe_of({}, test.type, test.model), several = recipe_of(test.mesh, test.type, test.model);
  several.gradient_checkpointing = test.checkpointing;
  expect_equal(train(several, options), train(one, options), name_of(test.mesh));
}

// olmo3 has four layers, and every fourth has no window.
INSTANTIATE_TEST_SUITE_P(Meshes, PipelineTest,
                         testing::Values(PipelineCase{"llama", "lora", {{"pp", 2}}},
                                         PipelineCase{"llama", "full", {{"pp", 2}}, "none"},
                                         PipelineCase{"llama", "full", {{"pp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         PipelineCase{"llama", "lora", {{"pp", 2}, {"fsdp", 2}, {"tp", 2}}, "dots"},
                                         PipelineCase{"llama", "lora", {{"pp", 2}, {"sp", 2}}, "full", true},
                                         PipelineCase{"olmo3", "full", {{"pp", 4}, {"fsdp", 2}}, "50%", true},
                                         PipelineCase{"olmo3", "lora", {{"pp", 4}, {"dp", 2}}, "none"},
                                         PipelineCase{"gpt2", "full", {{"pp", 2}, {"tp", 2}}}),
                         [](const auto& info) {
                           const PipelineCase& test = info.param;
                           return test.model + "_" + test.type + "_" + name_of(test.mesh);
                         });

// The number of micro-batches (3) is not a multiple of the number of stages.
TEST(Pipeline, QuantisedBaseWithThreeMicroBatchesEqualsOneDevice) {
  Recipe one = recipe_of({}, "lora"), several = recipe_of({{"pp", 2}, {"fsdp", 2}}, "lora");
  for (Recipe* recipe : {&one, &several}) {
    recipe->quantization_bit = 4;
    recipe->gradient_accumulation_steps = 3;
  }
  expect_equal(train(several, {.rate = 5e-3}), train(one, {.rate = 5e-3}), "nf4");
}

// Several rows share a line, and the last step of an epoch has fewer micro-batches.
TEST(Pipeline, RowsThatShareLinesEqualOneDevice) {
  Recipe one = recipe_of({}, "full"), several = recipe_of({{"pp", 2}}, "full");
  const TrainOptions options{.steps = 6, .rate = 5e-4, .laid = true};
  expect_equal(train(several, options), train(one, options), "laid");
}

// An evaluation during training passes each batch through the stages as one micro-batch.
TEST(Pipeline, EvaluationEqualsOneDevice) {
  auto losses = [](const Recipe& recipe, int64_t count) {
    Devices& devices = cpu_devices(count);
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    const auto run = make_run(recipe, repository.config(), "config.json", training_target(devices));
    TrainState state = load_state(devices, run, repository, false);
    const std::vector<Example> rows = reference_rows(0, 15);
    return Evaluator(devices, run, rows).losses(state);
  };
  expect_equal_lists(losses(recipe_of({{"pp", 2}, {"fsdp", 2}}, "lora"), 4), losses(recipe_of({}, "lora"), 1), 1e-5,
                     "loss");
}

}  // namespace
}  // namespace fettle
