// Tests plans for two hosts with eight GPUs each: the mesh that `mesh: auto` tries first, and what the compiler is told
// about the hosts.
#include <gtest/gtest.h>

#include "gpu_plugin.h"
#include "paths.h"
#include "plan/mesh_choice.h"
#include "resolve_run.h"
#include "step/step.h"

namespace fettle {
namespace {

class TwoHosts : public testing::Test {
 protected:
  void SetUp() override { require_gpu_plugin("cuda"); }

  // Returns the request to plan a model on two hosts with eight A100 each.
  static Request request(const std::string& model, std::vector<std::string> keys) {
    keys.insert(keys.end(), {"model_name_or_path=" + (source_folder() / model).string(), "target=a100-80:2x8",
                             "bf16=true", "gradient_checkpointing=full"});
    return Request(read_recipe("", keys), Command::kPlan);
  }

  static std::map<std::string, int64_t> first_mesh(const std::string& finetuning_type) {
    const Request asked = request("examples/models/llama2-70b",
                                  {"finetuning_type=" + finetuning_type, "mesh={auto: 1}", "cutoff_len=2048"});
    return mesh_candidates(asked, Machine::of(asked)).at(0).variant.mesh.value();
  }
};

// If a model fits into one host, LoRA sends only the adapter's gradients to the other host.
TEST_F(TwoHosts, LoraTakesDpOverHosts) {
  std::map<std::string, int64_t> lora = first_mesh("lora");
  EXPECT_EQ(lora["dp"], 2);
  EXPECT_EQ(lora["fsdp"] * lora["tp"] * lora["sp"], 8);
  EXPECT_EQ(first_mesh("full")["dp"], 1) << "weights and moments of 828 GB do not fit into one host";
}

TEST_F(TwoHosts, TheCompilerKnowsTheHosts) {
  const Request asked = request("tests/reference/models/llama", {"mesh={fsdp: 16}", "cutoff_len=64"});
  const Machine machine = Machine::of(asked);
  const fettle::Run run = asked.resolve(machine.run_target(), Purpose::kTraining, {});
  const Program step = build_train_step(run, 64);
  const auto optimized = [&](const char* slices_hosts_devices) {
    return Topology::create(Plugin::load("cuda"), machine.target()->config, slices_hosts_devices)
        .compile(step.text(), {.num_partitions = 16})
        .optimized_program();
  };
  const std::string hosts = optimized("2x1x8");
  EXPECT_TRUE(machine.compile(step, false).optimized == hosts);
  EXPECT_FALSE(optimized("1x2x8") == hosts) << "hosts that share one fast network need another program";
}

}  // namespace
}  // namespace fettle
