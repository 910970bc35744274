// Tests that the vendors' compilers accept the step with the GPUs' attention kernel, on one device and on eight, and
// what the estimate of the step says about the kernel's rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu_plugin.h"
#include "plan/compiled/timeline.h"
#include "plan/machine.h"
#include "resolve_run.h"
#include "step/step.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Compiled {
  std::vector<KernelUse> kernels;
  Timeline timeline;
};

// Compiles a LoRA step of a Llama with two layers.
Compiled compiled_for(const std::string& target, const std::string& kernels) {
  const nlohmann::json config = {{"model_type", "llama"},     {"hidden_size", 1024},
                                 {"intermediate_size", 512},  {"num_hidden_layers", 2},
                                 {"vocab_size", 256},         {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},  {"tie_word_embeddings", false},
                                 {"torch_dtype", "bfloat16"}, {"max_position_embeddings", 1024}};
  const TempFolder folder;
  std::ofstream(folder / "config.json") << config.dump();
  const Recipe recipe = read_recipe(
      "", {"model_name_or_path=" + folder.path().string(), "bf16=true", "target=" + target, "kernels=" + kernels,
           "gradient_checkpointing=full", "cutoff_len=640", "per_device_train_batch_size=1"});
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  const auto run = make_run(recipe, config, "config.json", machine.run_target());
  const Program program = build_train_step(run, 640);
  const HloModule module = read_hlo(machine.compile(program, false).optimized);
  return {program.kernels(), estimate(module, run.sharding.mesh(), *machine.target(), machine.linked_devices(), {})};
}

TEST(PlanGpuKernels, Cuda) {
  require_gpu_plugin("cuda");
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const Compiled off = compiled_for("h100:1", "off"), on = compiled_for("h100:1", "auto");
  EXPECT_THAT(off.kernels, IsEmpty());
  ASSERT_EQ(on.kernels.size(), 1u);
  EXPECT_EQ(on.kernels[0].kernel, "cuda_attention/1");
  EXPECT_EQ(on.kernels[0].calls, 2 * 4) << "in each layer forward, forward again, and two for the gradients";
  EXPECT_THAT(on.timeline.unknown_kernels, IsEmpty());
  EXPECT_LT(on.timeline.memory_bytes, off.timeline.memory_bytes);
  EXPECT_LT(on.timeline.seconds, off.timeline.seconds);
}

TEST(PlanGpuKernels, Cudnn) {
  require_gpu_plugin("cuda");
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const Compiled on = compiled_for("h100:8", "cudnn_attention");
  ASSERT_EQ(on.kernels.size(), 1u);
  EXPECT_EQ(on.kernels[0].kernel, "cudnn_attention/1");
  EXPECT_EQ(on.kernels[0].calls, 2 * 3) << "in each layer forward, forward again, and one for the gradients";
  EXPECT_EQ(on.kernels[0].cost.workspace, 640 * 8 * (128 * 4 + 4 + 2 * 128 * 2));
  EXPECT_THAT(on.timeline.unknown_kernels, IsEmpty());
  EXPECT_GE(on.timeline.flops, static_cast<double>(on.kernels[0].cost.flops) / 8) << "the bound counts it";
}

TEST(PlanGpuKernels, Rocm) {
  require_gpu_plugin("rocm");
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const Compiled on = compiled_for("mi300x:8", "rocm_attention");
  ASSERT_EQ(on.kernels.size(), 1u);
  EXPECT_EQ(on.kernels[0].calls, 2 * 4);
  EXPECT_THAT(on.timeline.unknown_kernels, ElementsAre("rocm_attention/1")) << "its rate is not known";
  EXPECT_GE(on.timeline.flops, static_cast<double>(on.kernels[0].cost.flops) / 8) << "the bound counts it";
}

}  // namespace
}  // namespace fettle
