// Tests attention in whole models: attention in blocks of queries equals attention over all queries at once, and each
// layer has its own window.
#include <gtest/gtest.h>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "resolve_run.h"
#include "step/forward.h"
#include "step/state/batch_arrays.h"
#include "training.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

// Each layer has its own window. 0 means no window, and a window that is wider than the row has no effect.
TEST(Windows, ByLayer) {
  const Recipe recipe = reference_recipe("llama");
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto run = make_run(recipe, repository.config(), "config.json", 1);
  Program program;
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  const std::map<std::string, std::vector<int64_t>> windows{
      {"none", {}}, {"wide", {0, 64}}, {"second", {0, 8}}, {"both", {8, 8}}, {"first", {8, 0}}};
  for (const auto& [name, by_layer] : windows) {
    run.model.config.window = by_layer;
    Forward f = make_forward(run, weights, {.adapted = false});
    f.tokens = iota({DType::kI32, {1, 40}}, 1) * 5.0;
    f.positions = iota({DType::kI32, {1, 40}}, 1);
    f.segments = full(1, {DType::kI32, {1, 40}});
    program.output(name, run.model.family->forward(f));
  }
  const Executable executable = devices.compile(program);
  TrainState state = load_state(devices, run, repository, false);
  std::map<std::string, Value> got;
  for (const auto& [name, buffer] : run_program(executable, state.bindings())) got[name] = to_value(buffer.download());
  auto largest = [&](const char* a, const char* b) {
    double most = 0;
    for (size_t e = 0; e < got.at(a).elements.size(); ++e)
      most = std::max(most, std::abs(got.at(a).elements[e] - got.at(b).elements[e]));
    return most;
  };
  EXPECT_LT(largest("wide", "none"), 1e-5);
  for (const char* a : {"second", "both", "first"}) EXPECT_GT(largest(a, "none"), 1e-3) << a;
  EXPECT_GT(largest("second", "both"), 1e-3);
  EXPECT_GT(largest("second", "first"), 1e-3);
}

class Model40 : public testing::TestWithParam<const char*> {};

// Compares the loss and the gradients of all weights for a packed batch.
TEST_P(Model40, BlocksOfEightEqualAttentionAtOnce) {
  Recipe recipe = reference_recipe(GetParam());
  recipe.finetuning_type = "full";
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  Program program;
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  const Shape ids{DType::kI32, {2, 40}};
  const Tensor tokens = program.input("batch/tokens", ids), targets = program.input("batch/targets", ids);
  const Tensor positions = program.input("batch/positions", ids), segments = program.input("batch/segments", ids);
  Tensors wrt;
  for (const Param& param : run.trained) wrt.push_back(weights.at(param.hf_name));
  for (const int64_t block : {8, 512}) {
    Forward f = make_forward(run, weights, {.adapted = false});
    f.attention_block = block;
    f.tokens = tokens, f.positions = positions, f.segments = segments;
    const Tensor hidden = run.model.family->forward(f);
    const TokenLoss loss =
        token_loss(f, hidden, head_of(run.model, weights), targets, {.differentiable = true, .head_trained = true});
    const Tensors grads = grad(loss.sum, wrt);
    program.output(std::to_string(block) + "/loss", loss.sum);
    for (size_t i = 0; i < wrt.size(); ++i)
      program.output(std::to_string(block) + "/" + run.trained[i].hf_name, grads[i]);
  }
  const Executable executable = devices.compile(program);
  TrainState state = load_state(devices, run, repository, false);
  const std::vector<Example> rows = reference_rows();
  const Batches batches(rows, {.sequences = 2, .max_length = 40, .packing = true, .shuffle = false, .lengths = {40}});
  std::map<std::string, DeviceBuffer> inputs = upload_micro_batch(devices, run, batches.at(5), 0);
  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> out = run_program(executable, bindings);
  auto read = [&](const std::string& name) { return to_value(out.at(name).download()).elements; };
  EXPECT_NEAR(read("8/loss")[0], read("512/loss")[0], 1e-6 * read("512/loss")[0]);
  for (const Param& param : run.trained) {
    const std::vector<double> blocks = read("8/" + param.hf_name), once = read("512/" + param.hf_name);
    double scale = 0;
    for (double x : once) scale = std::max(scale, std::abs(x));
    EXPECT_GT(scale, 0) << param.hf_name;
    for (size_t e = 0; e < once.size(); ++e) ASSERT_NEAR(blocks[e], once[e], 1e-5 * scale) << param.hf_name << ' ' << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Model40,
                         testing::Values("llama", "mistral", "gpt2", "gemma2", "phi3", "baichuan13b"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fettle
