// Tests a step that does not fit: the exit code is 3, and the remedies apply to this recipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "memory_tables.h"
#include "step/memory/require_fit.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string does_not_fit(const Recipe& recipe, int64_t peak, int64_t limit,
                         const RunTarget& target = {.platform = "cuda"}) {
  const auto run = job_for(recipe, target);
  try {
    require_fit(run, table_of(run, {.peak = peak}, {.limit = limit}, "cpu (1 device)"));
  } catch (const DoesNotFit& error) {
    EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
    return error.what();
  }
  return "fits";
}

TEST(MakeJob, RefusesBalancingForADenseModel) {
  Recipe recipe;
  recipe.output_router_logits = "true";
  EXPECT_THAT(user_error([&] { job_for(recipe); }), AllOf(HasSubstr("output_router_logits"), HasSubstr("no experts")));
}

TEST(RequireFit, TheLimitItselfFits) {
  EXPECT_EQ(does_not_fit({}, 5'000'000'000, 5'000'000'000), "fits");
  EXPECT_EQ(does_not_fit({}, 5'000'000'000, 0), "fits") << "the device's memory is not known";
  EXPECT_NE(does_not_fit({}, 5'000'000'001, 5'000'000'000), "fits");
}

TEST(RequireFit, HostMemoryMayNotSuffice) {
  MemoryTable table;
  table.host_trained = 3'000'000'000;
  table.host_optimizer = 1'000'000'000;
  require_host_fit(table, 2, 8'000'000'000);
  require_host_fit(table, 2, 0);
  EXPECT_THROW(require_host_fit(table, 2, 7'999'999'999), DoesNotFit);
  // Every process of the host has its own devices and its own staging memory.
  table.disk_staging = 500'000'000;
  require_host_fit(table, 1, 36'000'000'000, 8);
  EXPECT_THAT(
      [&] { require_host_fit(table, 1, 35'999'999'999, 8); },
      testing::ThrowsMessage<DoesNotFit>(HasSubstr("offload needs 36.00 GB of host memory for the 8 processes")));
}

TEST(RequireFit, LargeActivations) {
  Recipe recipe;
  recipe.gradient_checkpointing = "none";
  recipe.per_device_train_batch_size = 16;
  recipe.cutoff_len = 4096;
  const std::string message = does_not_fit(recipe, 31'200'000'000, 25'400'000'000);
  EXPECT_THAT(message, AllOf(HasSubstr("needs 31.20 GB"), HasSubstr("has 25.40 GB"), HasSubstr("5.80 GB too little"),
                             HasSubstr("activations, temporaries"), HasSubstr("gradient_checkpointing: full"),
                             HasSubstr("per_device_train_batch_size below 16"), HasSubstr("cutoff_len below 4096"),
                             HasSubstr("bf16: true")));
  EXPECT_LT(message.find("gradient_checkpointing"), message.find("bf16: true"));
}

TEST(RequireFit, LargeWeights) {
  Recipe recipe;
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 1;
  recipe.bf16 = true;
  // The weights need 0.38 MB and the moments 0.76 MB of the 1.2 MB. Everything else needs little.
  const std::string message = does_not_fit(recipe, 1'200'000, 1'000'000);
  EXPECT_THAT(message, AllOf(HasSubstr("finetuning_type: lora"), Not(HasSubstr("per_device_train_batch_size")),
                             Not(HasSubstr("bf16: true")), Not(HasSubstr("gradient_checkpointing")),
                             Not(HasSubstr("quantization_bit")), HasSubstr("optim: adamw_8bit; offload_optimizer"),
                             HasSubstr("offload_optimizer: true (0.76 MB"), HasSubstr("offload_param: true")));
  // The temporaries and the batch are less than what is missing.
  EXPECT_THAT(message, Not(HasSubstr("cutoff_len")));
  const std::string less = does_not_fit(recipe, 1'200'000, 1'190'000);
  EXPECT_LT(less.find("finetuning_type"), less.find("cutoff_len"));
}

TEST(RequireFit, LargeFrozenWeights) {
  Recipe recipe;
  recipe.lora_rank = 1;
  // The weights need 0.38 MB, 0.25 MB of it in the layers.
  const std::string message = does_not_fit(recipe, 500'000, 400'000);
  EXPECT_THAT(message, AllOf(HasSubstr("quantization_bit: 4"), HasSubstr("offload_param: true (0.2"),
                             Not(HasSubstr("adamw_8bit")), Not(HasSubstr("offload_optimizer"))));
  EXPECT_LT(message.find("quantization_bit"), message.find("offload_param"));
  recipe.pissa_init = true;
  EXPECT_THAT(does_not_fit(recipe, 500'000, 400'000),
              AllOf(Not(HasSubstr("quantization_bit")), Not(HasSubstr("offload"))));
}

// Offload is named only where it is possible, and where it moves as much as is missing.
TEST(RequireFit, SomeStepsCannotBeReduced) {
  Recipe recipe;
  recipe.bf16 = true;
  recipe.quantization_bit = 4;
  EXPECT_THAT(does_not_fit(recipe, 300'000'000, 1'000, {}),
              testing::EndsWith("To reduce it: a smaller model, or a host with more memory"));
}

TEST(RequireFit, OffloadMustHelp) {
  Recipe recipe;
  recipe.finetuning_type = "full";
  recipe.mesh = {{"pp", 2}};
  EXPECT_THAT(does_not_fit(recipe, 1'200'000, 1'000'000, {.count = 2, .platform = "cuda"}), Not(HasSubstr("offload")));
  recipe.mesh.clear();
  EXPECT_THAT(does_not_fit(recipe, 1'200'000, 1'000'000, {.platform = "cpu"}), Not(HasSubstr("offload")));
  EXPECT_THAT(does_not_fit(recipe, 9'200'000, 1'000'000), Not(HasSubstr("offload")));
  EXPECT_THAT(does_not_fit(recipe, 1'900'000, 1'000'000),
              AllOf(Not(HasSubstr("; offload_optimizer: true (")),
                    HasSubstr("offload_param: true with offload_optimizer: true (1.0")));
}

// The optimizer state stays on the device during an evaluation.
TEST(RequireFit, AnEvaluationMayNotFit) {
  Recipe recipe;
  recipe.finetuning_type = "full";
  recipe.per_device_eval_batch_size = 64;
  const auto run = job_for(recipe);
  const MemoryTable table = table_of(run, {.peak = 1'200'000}, {.limit = 1'500'000}, "cpu (1 device)");
  EXPECT_EQ(evaluation_peak(run, table, {.peak = 700'000}), 700'000 + table.optimizer);
  require_evaluation_fit(run, table, 1'500'000);
  try {
    require_evaluation_fit(run, table, 1'600'000);
    ADD_FAILURE() << "fits";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(std::string(error.what()),
                AllOf(HasSubstr("an evaluation needs 1.60 MB on each device"), HasSubstr("0.10 MB too little"),
                      HasSubstr("a per_device_eval_batch_size below 64"), HasSubstr("eval_strategy: no")));
  }
  // Keys that compare evaluations need them.
  recipe.early_stopping_patience = 1;
  EXPECT_THAT(evaluation_changes(run), testing::Contains("eval_strategy: no"));
  EXPECT_THAT(evaluation_changes(job_for(recipe)), Not(testing::Contains("eval_strategy: no")));
}

// With mesh: auto, the rows of the messages count for the mesh that was chosen, so the messages name the mesh.
TEST(RequireFit, RowsGoWithTheMeshThatAutoChose) {
  Recipe recipe;
  recipe.mesh = {{"tp", 2}};
  const Variant chosen{.per_device_train_batch_size = 8, .mesh = {{{"fsdp", 1}, {"tp", 2}}}};
  const auto run = job_for(recipe, {.count = 2, .platform = "cuda"});
  MemoryTable table = table_of(run, {.peak = 2'000'000}, {.limit = 1'500'000}, "a card");
  EXPECT_THAT(
      [&] { require_fit(run, table, chosen); },
      testing::ThrowsMessage<DoesNotFit>(HasSubstr("mesh: {tp: 2} and a per_device_train_batch_size below 8 (")));
  EXPECT_THAT([&] { require_evaluation_fit(run, table, 2'000'000, chosen); },
              testing::ThrowsMessage<DoesNotFit>(
                  AllOf(HasSubstr("(mesh: {tp: 2} and per_device_eval_batch_size: 8)"),
                        HasSubstr("mesh: {tp: 2} and a per_device_eval_batch_size below 8 (with "
                                  "per_device_train_batch_size: 8 to keep the rows per step);"))));
}

// The card has 24 GB. The recipe's share is 22.8 GB, but 23 GB could be used.
TEST(RequireFit, ALargerShareIsARemedy) {
  const MemoryShare share{
      .total = 24'000'000'000, .utilization = 0.95, .allowance = 1'000'000'000, .limit = 22'800'000'000};
  const auto run = job_for({});
  for (const auto& [peak, helps] : {std::pair<int64_t, bool>{22'900'000'000, true}, {23'100'000'000, false}}) {
    try {
      require_fit(run, table_of(run, {.peak = peak}, share, "a card"));
      ADD_FAILURE() << peak;
    } catch (const DoesNotFit& error) {
      const std::string message = error.what();
      EXPECT_THAT(message, HasSubstr("has 22.80 GB for it (of 24.00 GB, gpu_memory_utilization: 0.95)"));
      EXPECT_EQ(message.find("a gpu_memory_utilization above 0.95") != std::string::npos, helps) << message;
    }
  }
}

}  // namespace
}  // namespace fettle
