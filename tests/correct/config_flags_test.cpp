// Tests that Fettle reads the flags in command lines of other tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/flags.h"
#include "config/recipe.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Words = std::vector<std::string>;

const Words kOwn = {"--json", "--target"};

// Reads a command line without a recipe file.
Recipe read_flags(const Words& arguments, std::string* said = nullptr) {
  const SplitFlags split = split_flags(arguments, kOwn);
  EXPECT_THAT(split.others, IsEmpty());
  testing::internal::CaptureStderr();
  Recipe recipe = read_recipe({}, split.words);
  const std::string messages = testing::internal::GetCapturedStderr();
  if (said != nullptr) *said = messages;
  return recipe;
}

TEST(Flags, BecomeWords) {
  EXPECT_THAT(split_flags({"--learning_rate", "1e-4", "--lora-rank=16", "--bf16"}, kOwn).words,
              ElementsAre("learning_rate=1e-4", "lora_rank=16", "bf16=true"));
  EXPECT_THAT(split_flags({"--max_steps", "-1", "--packing", "False", "--no_bf16", "--mesh.fsdp", "2"}, kOwn).words,
              ElementsAre("max_steps=-1", "packing=False", "bf16=false", "mesh.fsdp=2"));
  EXPECT_THAT(split_flags({"--dataset", "a#500", "b,c", "--system", "You are kind."}, kOwn).words,
              ElementsAre(R"(dataset=["a#500","b,c"])", "system=You are kind."));
  EXPECT_THAT(
      split_flags({"--gradient_checkpointing", "--trust_remote_code", "--fsdp", "full_shard auto_wrap"}, kOwn).words,
      ElementsAre("gradient_checkpointing=true", "trust_remote_code=true", "fsdp=full_shard auto_wrap"));
}

// metric_logger is a map of keys without effect; no table has its own name.
TEST(Flags, MayGiveAMapOfKeysWithoutEffect) {
  std::string said;
  read_flags({"--metric_logger", R"({"log_dir": "logs"})"}, &said);
  EXPECT_THAT(said, testing::HasSubstr("these keys have no effect here: metric_logger.log_dir"));
}

TEST(Flags, LeaveTheOtherArgumentsInTheirOrder) {
  const SplitFlags split = split_flags(
      {"tune.yaml", "--json", "--bf16", "seed=3", "--target", "h100", "--dataset", "a", "max_steps=2"}, kOwn);
  EXPECT_THAT(split.others, ElementsAre("tune.yaml", "--json", "seed=3", "--target", "h100", "max_steps=2"));
  EXPECT_THAT(split.words, ElementsAre("bf16=true", "dataset=a"));
  EXPECT_THAT(split_flags({"--bf16", "tune.yaml"}, kOwn).others, ElementsAre("tune.yaml"));
  EXPECT_THAT(split_flags({"--seed", "3", "--config", "tune.yaml"}, kOwn).others, ElementsAre("tune.yaml"));
  EXPECT_THAT(split_flags({"--report_to", "tensorboard", "-q"}, kOwn).others, ElementsAre("-q"));
  EXPECT_THAT(split_flags({"--", "--bf16"}, kOwn).others, ElementsAre("--", "--bf16"));
}

// Reads the command line in TRL's documentation of `trl sft` with PEFT.
TEST(Flags, OfTrl) {
  std::string said;
  const Recipe recipe = read_flags({"--model_name_or_path",
                                    "Qwen/Qwen2-0.5B",
                                    "--dataset_name",
                                    "trl-lib/Capybara",
                                    "--learning_rate",
                                    "2.0e-4",
                                    "--num_train_epochs",
                                    "1",
                                    "--packing",
                                    "--per_device_train_batch_size",
                                    "2",
                                    "--gradient_accumulation_steps",
                                    "8",
                                    "--eos_token",
                                    "<|im_end|>",
                                    "--eval_strategy",
                                    "steps",
                                    "--eval_steps",
                                    "100",
                                    "--use_peft",
                                    "--lora_r",
                                    "32",
                                    "--lora_alpha",
                                    "16",
                                    "--output_dir",
                                    "Qwen2-0.5B-SFT",
                                    "--push_to_hub"},
                                   &said);
  EXPECT_EQ(recipe.model_name_or_path, "Qwen/Qwen2-0.5B");
  EXPECT_THAT(recipe.dataset, ElementsAre("trl-lib/Capybara"));
  EXPECT_EQ(recipe.learning_rate, 2e-4);
  EXPECT_EQ(recipe.num_train_epochs, 1);
  EXPECT_TRUE(recipe.packing);
  EXPECT_EQ(recipe.per_device_train_batch_size, 2);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 8);
  EXPECT_EQ(recipe.eos_token, "<|im_end|>");
  EXPECT_EQ(recipe.finetuning_type, "lora");
  EXPECT_EQ(recipe.lora_rank, 32);
  EXPECT_EQ(recipe.lora_alpha, 16);
  EXPECT_EQ(recipe.lora_dropout, 0.05);  // TRL's default
  EXPECT_EQ(recipe.output_dir, "Qwen2-0.5B-SFT");
  EXPECT_THAT(recipe.eval_dataset, ElementsAre(R"({"hf_hub_url":"trl-lib/Capybara","split":"test"})"));
  EXPECT_THAT(said, testing::HasSubstr("the command line: read as a recipe of TRL"));
  EXPECT_THAT(
      said, testing::HasSubstr("push_to_hub has no effect here: Fettle sends nothing by itself; `fettle upload FOLDER "
                               "ORG/NAME` sends the result after the run"));
  read_flags({"--push_to_hub", "false"}, &said);
  EXPECT_EQ(said, "");
}

// In TRL, a sum of losses is several words after the flag.
TEST(Flags, OfTrlsSumOfLosses) {
  std::string said;
  const Recipe sum = read_flags({"--model_name_or_path", "m", "--dataset_name", "maker/rows", "--stage", "dpo",
                                 "--loss_type", "hinge", "sft", "--loss_weights", "1.0", "0.2"},
                                &said);
  EXPECT_EQ(sum.pref_loss, "hinge");
  EXPECT_EQ(sum.pref_ftx, 0.2);
}

// Reads the command line in the README of ms-swift.
TEST(Flags, OfMsSwift) {
  std::string said;
  const Recipe recipe = read_flags({"--model",
                                    "Qwen/Qwen3-4B-Instruct-2507",
                                    "--train_type",
                                    "lora",
                                    "--dataset",
                                    "AI-ModelScope/alpaca-gpt4-data-zh#500",
                                    "AI-ModelScope/alpaca-gpt4-data-en#500",
                                    "swift/self-cognition#500",
                                    "--torch_dtype",
                                    "bfloat16",
                                    "--num_train_epochs",
                                    "1",
                                    "--per_device_train_batch_size",
                                    "1",
                                    "--per_device_eval_batch_size",
                                    "1",
                                    "--learning_rate",
                                    "1e-4",
                                    "--lora_rank",
                                    "8",
                                    "--lora_alpha",
                                    "32",
                                    "--target_modules",
                                    "all-linear",
                                    "--gradient_accumulation_steps",
                                    "16",
                                    "--eval_steps",
                                    "50",
                                    "--save_steps",
                                    "50",
                                    "--save_total_limit",
                                    "2",
                                    "--logging_steps",
                                    "5",
                                    "--max_length",
                                    "2048",
                                    "--output_dir",
                                    "output",
                                    "--system",
                                    "You are a helpful assistant.",
                                    "--warmup_ratio",
                                    "0.05",
                                    "--dataloader_num_workers",
                                    "4",
                                    "--model_author",
                                    "swift",
                                    "--model_name",
                                    "swift-robot"},
                                   &said);
  EXPECT_EQ(recipe.model_name_or_path, "Qwen/Qwen3-4B-Instruct-2507");
  EXPECT_EQ(recipe.dataset.size(), 3u);
  EXPECT_EQ(recipe.finetuning_type, "lora");
  EXPECT_THAT(recipe.lora_target, ElementsAre("all"));
  EXPECT_EQ(recipe.lora_rank, 8);
  EXPECT_EQ(recipe.cutoff_len, 2048);
  EXPECT_EQ(recipe.overlength, "drop");  // ms-swift's default
  EXPECT_TRUE(recipe.bf16);
  EXPECT_EQ(recipe.default_system, "You are a helpful assistant.");
  EXPECT_EQ(recipe.warmup_ratio, 0.05);
  EXPECT_THAT(said, testing::HasSubstr("the command line: read as a recipe of ms-swift"));
}

// --no_KEY is also false for keys that take true, false and other words.
TEST(Flags, NegateAChoice) {
  EXPECT_THAT(split_flags({"--no_disable_dropout", "--no-enable-thinking"}, kOwn).words,
              ElementsAre("disable_dropout=false", "enable_thinking=false"));
  EXPECT_THROW(split_flags({"--no_optim"}, kOwn), UserError);
}

// `unsloth train` writes names with `-`.
TEST(Flags, OfUnsloth) {
  const Recipe recipe =
      read_flags({"--model", "unsloth/Qwen3-0.6B", "--local-dataset", "rows.jsonl", "--training-type", "lora",
                  "--max-seq-length", "1024", "--no-load-in-4bit", "--lora-r", "16", "--output-dir", "out"});
  EXPECT_EQ(recipe.model_name_or_path, "unsloth/Qwen3-0.6B");
  EXPECT_EQ(recipe.cutoff_len, 1024);
  EXPECT_EQ(recipe.lora_rank, 16);
  EXPECT_EQ(recipe.quantization_bit, std::nullopt);
  EXPECT_EQ(recipe.optim, "adamw_8bit");  // Unsloth's default
}

}  // namespace
}  // namespace fettle
