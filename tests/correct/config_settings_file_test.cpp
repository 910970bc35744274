// Tests what files of DeepSpeed, FSDP and accelerate set in a recipe.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

TEST_F(RecipeShape, SettingsFilesAreReadForWhatTheyAsk) {
  const std::string zero = write("zero.json", R"({
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": 0.5,
    "bf16": {"enabled": true}, "fp16": {"enabled": "auto"}, "tensor_parallel": {"autotp_size": 2},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  const Recipe deepspeed = read("stage: sft\ndeepspeed: " + zero + "\n");
  EXPECT_EQ(deepspeed.gradient_accumulation_steps, 4);
  EXPECT_EQ(deepspeed.max_grad_norm, 0.5);
  EXPECT_TRUE(deepspeed.bf16);
  EXPECT_FALSE(deepspeed.fp16);
  EXPECT_TRUE(deepspeed.offload_optimizer);
  EXPECT_FALSE(deepspeed.offload_param);
  EXPECT_EQ(deepspeed.mesh, (std::map<std::string, int64_t>{{"tp", 2}}));
  EXPECT_EQ(read("max_grad_norm: 2\ndeepspeed: " + zero + "\n").max_grad_norm, 2) << "the recipe's own key counts";
  const std::string accelerate =
      write("accelerate.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n"
            "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_version: 2\n");
  const Recipe fsdp = read("accelerate_config: " + accelerate + "\n");
  EXPECT_TRUE(fsdp.bf16);
  EXPECT_TRUE(fsdp.offload_param && fsdp.offload_optimizer);
  try {
    read_recipe(accelerate, {});
    FAIL() << "a configuration of accelerate is not a recipe";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("set accelerate_config to that file"), std::string::npos) << error.what();
  }
}

// ms-swift has names such as zero3_offload. Files may begin with the same word.
TEST_F(RecipeShape, DeepSpeedsFilesMayBeginLikeSwiftsNames) {
  const std::string offloads =
      R"({"gradient_clipping": 0.5, "zero_optimization": {"offload_optimizer": {"device": "cpu"}}})";
  for (const char* name : {"zero3.json", "zero3_bf16_cpuoffload_all.json", "zero2_offload", "zero1"}) {
    write(name, offloads);
    const Recipe recipe = read(std::string("deepspeed: ") + name + "\n");
    EXPECT_TRUE(recipe.offload_optimizer) << name;
    EXPECT_EQ(recipe.max_grad_norm, 0.5) << name;
  }
  for (const char* name : {"zero0", "zero3"}) {
    EXPECT_FALSE(read(std::string("deepspeed: ") + name + "\n").offload_optimizer) << name;
    EXPECT_EQ(said_.find("cannot read"), std::string::npos) << said_;
  }
  const Recipe both = read("deepspeed: zero3_offload\n");
  EXPECT_TRUE(both.offload_optimizer && both.offload_param);
  read("deepspeed: zero3_ofload\n");
  EXPECT_NE(said_.find("zero3_ofload. If that file turns offload on"), std::string::npos) << said_;
}

// accelerate's sizes become axes of the mesh. In both tools, dp_replicate x dp_shard groups have rows of their own.
TEST_F(RecipeShape, AcceleratesParallelismIsTheMesh) {
  using Mesh = std::map<std::string, int64_t>;
  const auto config = [&](const std::string& sizes) {
    return "accelerate_config: " + write("parallel.yaml", "parallelism_config:\n" + sizes) + "\n";
  };
  const std::string p = "  parallelism_config_";
  const std::string ones = p + "dp_replicate_size: 1\n" + p + "dp_shard_size: 1\n" + p + "tp_size: 1\n";
  EXPECT_EQ(read(config(ones + p + "cp_size: 2\n" + p + "cp_comm_strategy: allgather\n")).mesh, (Mesh{{"sp", 2}}));
  EXPECT_NE(said_.find("accelerate_config sets mesh.sp to 2"), std::string::npos) << said_;
  EXPECT_EQ(read(config(p + "sp_size: 4\n")).mesh, (Mesh{{"sp", 4}}));
  const std::string all =
      p + "dp_replicate_size: 2\n" + p + "dp_shard_size: 3\n" + p + "tp_size: 4\n" + p + "cp_size: 5\n";
  EXPECT_EQ(read(config(all)).mesh, (Mesh{{"dp", 2}, {"fsdp", 3}, {"tp", 4}, {"sp", 5}}));
  EXPECT_EQ(read("mesh: {fsdp: 2}\n" + config(all)).mesh, (Mesh{{"fsdp", 2}})) << "the recipe's own key counts";
  EXPECT_TRUE(read(config(ones)).mesh.empty());
}

// TRL has configurations of accelerate with these names.
TEST_F(RecipeShape, AcceleratesConfigurationMayBeOneOfTrls) {
  for (const char* name : {"zero2", "zero3", "fsdp2", "multi_gpu"}) {
    EXPECT_FALSE(read(std::string("accelerate_config: ") + name + "\n").offload_optimizer) << name;
    EXPECT_EQ(said_.find("cannot read"), std::string::npos) << said_;
  }
  write("zero2", "deepspeed_config: {offload_optimizer_device: cpu}\n");
  EXPECT_TRUE(read("accelerate_config: zero2\n").offload_optimizer) << "the file counts first";
}

// Transformers uses DeepSpeed's scheduler instead of lr_scheduler_type.
TEST_F(RecipeShape, DeepSpeedsSchedulerSetsTheSchedule) {
  const auto deepspeed = [](const std::string& scheduler) { return "deepspeed: {scheduler: " + scheduler + "}\n"; };
  for (const auto& [type, schedule] :
       {std::pair{"WarmupLR", "constant_with_warmup"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}}) {
    const Recipe recipe = read(deepspeed(std::string("{type: ") + type +
                                         ", params: {warmup_num_steps: auto, warmup_max_lr: auto, total_num_steps: "
                                         "auto, warmup_min_lr: auto, warmup_type: linear}}"));
    EXPECT_EQ(recipe.lr_scheduler_type, schedule);
    EXPECT_EQ(recipe.warmup_steps, 0);
    EXPECT_EQ(recipe.learning_rate, Recipe{}.learning_rate);
    EXPECT_EQ(said_.find("warning"), std::string::npos) << said_;
    EXPECT_NE(said_.find(std::string("deepspeed sets lr_scheduler_type to ") + schedule), std::string::npos) << said_;
  }
  const std::string numbers = deepspeed(
      "{type: WarmupDecayLR, params: {warmup_num_steps: 20, warmup_max_lr: 3e-5, total_num_steps: 900, warmup_min_lr: "
      "1e-6}}");
  const Recipe given = read(numbers);
  EXPECT_EQ(given.warmup_steps, 20);
  EXPECT_EQ(given.learning_rate, 3e-5);
  for (const char* said : {"total_num_steps: 900 has no effect here: the schedule ends with the run",
                           "warmup_min_lr has no effect here: a warmup starts at 0",
                           "DeepSpeed's is logarithmic unless warmup_type is linear"})
    EXPECT_NE(said_.find(said), std::string::npos) << said << '\n' << said_;
  EXPECT_EQ(read("warmup_ratio: 0.1\nlearning_rate: 1e-4\n" + numbers).warmup_steps, 0)
      << "the recipe's own key counts";
  const Recipe above = read(deepspeed("{type: WarmupCosineLR, params: {cos_min_ratio: 0.1}}"));
  EXPECT_EQ(above.lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(above.min_lr_rate, 0.1);
  const Recipe own = read("lr_scheduler_type: cosine\n" + deepspeed("{type: WarmupLR}"));
  EXPECT_EQ(own.lr_scheduler_type, "cosine");
  EXPECT_NE(said_.find("deepspeed has a scheduler (WarmupLR, here constant_with_warmup), which DeepSpeed would use; "
                       "Fettle uses lr_scheduler_type: cosine"),
            std::string::npos)
      << said_;
  EXPECT_NE(refusal(deepspeed("{type: OneCycle}")).find("recipe.yaml:1: lr_scheduler_type: found 'OneCycle', wanted"),
            std::string::npos);
}

}  // namespace
}  // namespace fettle
