// Tests that a plan finds changes that `train` names, too. The card is an MI300X of which the recipe takes less than
// the step needs, and more than the step with the change needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_plugin.h"
#include "paths.h"
#include "plan/remedies.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::Contains;

class FindRemedies : public testing::Test {
 protected:
  void SetUp() override { require_gpu_plugin("rocm"); }

  // A step with little beside its weights and state. No change of its rows has a trial.
  static Recipe recipe() {
    Recipe out;
    out.model_name_or_path = (source_folder() / "tests/reference/models/llama").string();
    out.target = "mi300x";
    out.per_device_train_batch_size = 1;
    out.cutoff_len = 16;
    out.gradient_checkpointing = "full";
    return out;
  }

  static StepPlan plan(const Recipe& recipe, const Variant& variant = {}) {
    const Request request(recipe, Command::kPlan);
    return plan_step(request, variant, Machine::of(request));
  }

  // Returns the changes with which the step fits if its limit is between its peak and the peak with `variant`.
  static std::vector<std::string> changes(const Recipe& recipe, const Variant& variant) {
    return changes_beside(recipe, plan(recipe, variant).memory);
  }

  // Does the same with the table of the changed step.
  static std::vector<std::string> changes_beside(Recipe recipe, const MemoryTable& with) {
    StepPlan asked = plan(recipe);
    EXPECT_LT(with.peak, asked.memory.peak);
    const int64_t limit = (with.peak + asked.memory.peak) / 2;
    recipe.gpu_memory_utilization = static_cast<double>(limit) / static_cast<double>(with.share.total);
    const Request request(recipe, Command::kPlan);
    const Machine machine = Machine::of(request);
    asked.memory.share = machine.memory();
    EXPECT_FALSE(asked.memory.fits());
    std::vector<std::string> out;
    for (const Remedy& remedy : find_remedies(asked, request, machine)) {
      EXPECT_TRUE(remedy.memory.fits()) << remedy.change;
      out.push_back(remedy.change);
    }
    return out;
  }
};

// The larger share of the card needs no other step.
TEST_F(FindRemedies, ALargerShareAndBf16) {
  Recipe lora = recipe();
  lora.lora_rank = 4;
  lora.lora_target = {"q_proj"};  // fewer products, so that the steps compile faster
  const std::vector<std::string> found = changes(lora, {.bf16 = true});
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0], "gpu_memory_utilization: 0.01");
  EXPECT_EQ(found[1], "bf16: true");
}

TEST_F(FindRemedies, Float32WeightsOnTheDisk) {
  TempFolder folder;
  Recipe full = recipe();
  full.finetuning_type = "full";
  full.bf16 = true;
  full.offload_dir = folder.path().string();
  EXPECT_THAT(changes(full, {.offload_dir_weights = true}), Contains("offload_dir_weights: true"));
}

// On sixteen devices of two hosts, each device stores half as much as on the eight devices of one host.
TEST_F(FindRemedies, MoreDevicesSayWhatTheRecipeMustSay) {
  Recipe full = recipe();
  full.finetuning_type = "full";
  full.bf16 = true;
  full.optim = "sgd";
  full.offload_param = true;
  full.target = "mi300x:1x8";
  full.device_count = 8;
  full.gradient_accumulation_steps = 2;
  full.places.set("device_count", "recipe.yaml:1");
  Recipe more = full;
  more.target = "mi300x:2x8";
  more.device_count = 16;
  more.gradient_accumulation_steps = 1;
  EXPECT_THAT(changes_beside(full, plan(more).memory),
              Contains("16 x AMD Instinct MI300X (2 hosts of 8) with device_count: 16, gradient_accumulation_steps: 1 "
                       "(the same number of rows per step)"));
}

}  // namespace
}  // namespace fettle
