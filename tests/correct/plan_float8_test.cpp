// Tests that a step that is compiled with fp8 computes the products of linear layers in 8-bit floats.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu_plugin.h"
#include "plan/compiled/cost.h"
#include "plan/machine.h"
#include "resolve_run.h"
#include "step/step.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(PlanFloat8, TheStepForAnH100HasProductsIn8Bits) {
  require_gpu_plugin("cuda");
  const nlohmann::json config = {{"model_type", "llama"},        {"hidden_size", 256},       {"intermediate_size", 512},
                                 {"num_hidden_layers", 2},       {"vocab_size", 256},        {"num_attention_heads", 2},
                                 {"tie_word_embeddings", false}, {"torch_dtype", "bfloat16"}};
  const TempFolder folder;
  std::ofstream(folder / "config.json") << config.dump();
  const Recipe recipe = read_recipe(
      "", {"model_name_or_path=" + folder.path().string(), "finetuning_type=full", "bf16=true", "fp8=true",
           "target=h100:1", "gradient_checkpointing=none", "cutoff_len=128", "per_device_train_batch_size=8"});
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  const auto run = make_run(recipe, config, "config.json", machine.run_target());
  const HloModule module = read_hlo(machine.compile(build_train_step(run, 128), false).optimized);
  double flops = 0;
  for (const HloComputation& computation : module.computations)
    for (const HloInstruction& instruction : computation.instructions)
      if (instruction.opcode != "fusion") flops += cost_of(module, computation, instruction).flops_f8;
  // The model has one layer in a loop. Each weight has a forward product and two backward products: for the input and
  // for the weight.
  const double weights = 4 * 256.0 * 256 + 3 * 256.0 * 512;
  EXPECT_DOUBLE_EQ(flops, 3 * 2 * 8 * 128 * weights);
}

}  // namespace
}  // namespace fettle
