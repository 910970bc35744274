// Tests that the vendors' compilers accept the step with the GPUs' attention kernel, on one device and on eight, and
// what the estimate of the step says about the kernel's rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "gpu_plugin.h"
#include "plan/compiled/timeline.h"
#include "plan/machine.h"
#include "plan/step_plan.h"
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
  MemoryStats memory;
  std::optional<MemoryStats> by_compiler;
};

// A recipe for a LoRA step of a Llama with two layers, whose config.json is in a folder.
struct SmallLlama {
  const nlohmann::json config = {{"model_type", "llama"},     {"hidden_size", 1024},
                                 {"intermediate_size", 512},  {"num_hidden_layers", 2},
                                 {"vocab_size", 256},         {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},  {"tie_word_embeddings", false},
                                 {"torch_dtype", "bfloat16"}, {"max_position_embeddings", 1024}};
  const TempFolder folder;

  Recipe recipe(const std::string& target, const std::string& kernels, const std::string& compute = "bf16=true") const {
    std::ofstream(folder / "config.json") << config.dump();
    return read_recipe(
        "", {"model_name_or_path=" + folder.path().string(), compute, "target=" + target, "kernels=" + kernels,
             "gradient_checkpointing=full", "cutoff_len=640", "per_device_train_batch_size=1"});
  }
};

// With `count`, also compiles the program without the estimate's additions, for Compiled::by_compiler.
Compiled compiled_for(const std::string& target, const std::string& kernels, bool count = false) {
  const SmallLlama model;
  const Recipe recipe = model.recipe(target, kernels);
  const Machine machine = Machine::of(Request(recipe, Command::kPlan));
  const auto run = make_run(recipe, model.config, "config.json", machine.run_target());
  const Program program = build_train_step(run, 640);
  const CompiledStep step = machine.compile(program, false);
  Compiled out{program.kernels(),
               estimate(read_hlo(step.optimized), run.sharding.mesh(), *machine.target(), machine.linked_devices(), {}),
               step.memory,
               {}};
  if (count) {
    const Topology topology = Topology::create(Plugin::load(machine.target()->plugin), machine.target()->config,
                                               topology_shape(*machine.target(), 1, machine.count()));
    out.by_compiler =
        topology.compile(program.text(), {.num_partitions = static_cast<int>(program.mesh().size())}).memory_stats();
  }
  return out;
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
  const Compiled on = compiled_for("h100:8", "cudnn_attention", true);
  ASSERT_EQ(on.kernels.size(), 1u);
  EXPECT_EQ(on.kernels[0].kernel, "cudnn_attention/1");
  EXPECT_EQ(on.kernels[0].calls, 2 * 3) << "in each layer forward, forward again, and one for the gradients";
  const int64_t workspace = 640 * 8 * (128 * 4 + 4 + 2 * 128 * 2);
  EXPECT_EQ(on.kernels[0].cost.workspace, workspace);
  EXPECT_EQ(on.memory.temp, on.by_compiler->temp + workspace) << "without a device, the compiler does not know it";
  EXPECT_EQ(on.memory.peak, on.by_compiler->peak + workspace);
  EXPECT_THAT(on.timeline.unknown_kernels, IsEmpty());
  EXPECT_GE(on.timeline.flops, static_cast<double>(on.kernels[0].cost.flops) / 8) << "the bound counts it";
}

// A plan names only the kernels that would change the step.
TEST(PlanGpuKernels, OnRequest) {
  require_gpu_plugin("cuda");
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const SmallLlama model;
  const auto named = [&](const std::string& compute) {
    const Request request(model.recipe("a100-80:1", "auto", compute), Command::kPlan);
    return plan_step(request, {}, Machine::of(request)).kernels_on_request;
  };
  EXPECT_THAT(named("bf16=true"), ElementsAre("cudnn_attention", "cuda_attention"));
  EXPECT_THAT(named("bf16=false"), IsEmpty()) << "both need 16-bit floats";
}

TEST(PlanGpuKernels, Rocm) {
  require_gpu_plugin("rocm");
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  const Compiled on = compiled_for("mi300x:8", "rocm_attention");
  ASSERT_EQ(on.kernels.size(), 1u);
  EXPECT_EQ(on.kernels[0].calls, 2 * 4);
  EXPECT_THAT(on.timeline.unknown_kernels, IsEmpty());
  EXPECT_GE(on.timeline.flops, static_cast<double>(on.kernels[0].cost.flops) / 8) << "the bound counts it";
}

}  // namespace
}  // namespace fettle
