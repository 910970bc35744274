// Tests what a device sends to other stages of a pipeline: activations, and no weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/report.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

constexpr int64_t kWidth = 128, kLength = 64, kMicroBatches = 3, kStages = 2, kRows = 2;

// Compiles a LoRA step of a small Llama for two stages of two CPU devices each.
StepPlan plan() {
  const nlohmann::json config = {{"model_type", "llama"},    {"hidden_size", kWidth},
                                 {"intermediate_size", 256}, {"num_hidden_layers", 4},
                                 {"vocab_size", 64},         {"num_attention_heads", 8},
                                 {"num_key_value_heads", 2}, {"tie_word_embeddings", false},
                                 {"torch_dtype", "float32"}, {"max_position_embeddings", 8192}};
  const TempFolder folder;
  std::ofstream(folder / "config.json") << config.dump();
  const Request request(
      read_recipe("", {"model_name_or_path=" + folder.path().string(), "plugin=cpu", "device_count=4",
                       "mesh=pp=2,fsdp=2", "kernels=off", "gradient_checkpointing=full",
                       "cutoff_len=" + std::to_string(kLength), "per_device_train_batch_size=" + std::to_string(kRows),
                       "gradient_accumulation_steps=" + std::to_string(kMicroBatches)}),
      Command::kPlan);
  return plan_step(request, {}, Machine::of(request));
}

TEST(PlanPipeline, StagesSendActivations) {
  const StepPlan step = plan();
  EXPECT_EQ(step.bubble_share(), 0.25);  // 1 of 4 ticks is idle
  EXPECT_THAT(format_plan(step),
              HasSubstr("pipeline: 2 stages, 3 micro-batches; a stage has no micro-batch for 25.0 % of the time"));
  const double state = 4.0 * kRows * kLength * kWidth, ticks = kMicroBatches + kStages - 1;
  double moved = 0, others = 0;
  for (const Traffic& row : step.traffic)
    if (row.axes.find("pp") != std::string::npos)
      (row.collective == "collective-permute" && row.axes == "pp" ? moved : others) += row.link_bytes;
  // Each tick moves one result, forward and backward.
  EXPECT_DOUBLE_EQ(moved, 2 * ticks * state);
  // The last stage's results go to all stages, and their gradients come back.
  EXPECT_GT(others, state);
  EXPECT_LT(others, 3 * ticks * state);
}

}  // namespace
}  // namespace fettle
