#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "config/recipe.h"

namespace fettle {
namespace {

using testing::HasSubstr;

class BadRecipe : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("fettle_bad_recipe_" + std::to_string(getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml");
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // Returns the message of the UserError that reading throws, with the file's path replaced by FILE; "" when reading
  // throws nothing.
  std::string message(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    std::ofstream(path_, std::ios::binary) << yaml;
    return message_of(path_, overrides);
  }

  std::string message_of(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
    try {
      read_recipe(file, overrides);
    } catch (const UserError& error) {
      std::string text = error.what();
      for (size_t at; (at = text.find(path_.string())) != std::string::npos;) {
        text.replace(at, path_.string().size(), "FILE");
      }
      return text;
    }
    return "";
  }

  std::filesystem::path path_;
};

TEST_F(BadRecipe, UnknownKeyNamesTheNearest) {
  EXPECT_EQ(message("stage: sft\n\nlora_rnak: 8\n"), "FILE:3: unknown key 'lora_rnak'; did you mean 'lora_rank'?");
  EXPECT_EQ(message("", {"output_dri=x"}),
            "override 'output_dri=x': unknown key 'output_dri'; did you mean 'output_dir'?");
  EXPECT_EQ(message("qqqqqqqq: 8\n"), "FILE:1: unknown key 'qqqqqqqq'; the command's --help-keys lists all keys");
  EXPECT_EQ(message("optimizer:\n  lr: 1e-4\n  wieght_decay: 1\n"),
            "FILE:3: optimizer.wieght_decay is not available in this version; remove the key");
}

// The name of this file begins like the place of an override.
TEST_F(BadRecipe, AFileIsNoOverride) {
  path_ = "override '" + std::to_string(getpid()) + ".yaml";
  EXPECT_EQ(message("optimizer:\n  lr: 1e-4\n  wieght_decay: 1\n"),
            "FILE:3: optimizer.wieght_decay is not available in this version; remove the key");
  EXPECT_EQ(message("val_size: 10\n", {"eval_dataset=held.jsonl"}), "");
  EXPECT_EQ(message("val_size: 10\neval_dataset: held.jsonl\n"),
            "FILE:1: val_size and eval_dataset both set the rows to evaluate on; remove one of them");
}

TEST_F(BadRecipe, SharesOfDataSets) {
  const std::string two = "dataset: a,b\nmix_strategy: interleave_over\n";
  EXPECT_EQ(message(two + "interleave_probs: 0.5\n"),
            "FILE:3: interleave_probs has 1 numbers for 2 data sets; give one number for each data set");
  EXPECT_EQ(message(two + "interleave_probs: 0.5, half\n"),
            "FILE:3: interleave_probs: found 'half', wanted numbers above 0");
  EXPECT_EQ(message(two + "interleave_probs: [1, 0]\n"), "FILE:3: interleave_probs: found '0', wanted numbers above 0");
  EXPECT_EQ(message("dataset: a,b\ninterleave_probs: 1,2\n"),
            "FILE:2: interleave_probs belongs to mix_strategy: interleave_under, interleave_over or "
            "interleave_once, found concat; remove the key, or change mix_strategy");
}

TEST_F(BadRecipe, IllTypedValues) {
  EXPECT_EQ(message("lora_rank: eight\n"), "FILE:1: lora_rank: found 'eight', wanted a whole number >= 1");
  EXPECT_EQ(message("lora_rank: 8.5\n"), "FILE:1: lora_rank: found 8.5, wanted a whole number >= 1");
  EXPECT_EQ(message("lora_rank: [8]\n"), "FILE:1: lora_rank: found a list, wanted a whole number >= 1");
  EXPECT_EQ(message("bf16: maybe\n"), "FILE:1: bf16: found 'maybe', wanted true or false");
  EXPECT_EQ(message("output_dir: {a: b}\n"), "FILE:1: output_dir: found a map, wanted text");
  EXPECT_EQ(message("learning_rate: 1e-4x\n"), "FILE:1: learning_rate: found '1e-4x', wanted a number > 0");
  EXPECT_EQ(message("learning_rate: nan\n"), "FILE:1: learning_rate: found 'nan', wanted a number > 0");
  EXPECT_EQ(message("lora_target: [{q: v}]\n"),
            "FILE:1: lora_target: found a map, wanted a list, or words separated by commas");
  EXPECT_EQ(message("lora_rank: ''\n"), "FILE:1: lora_rank: found '', wanted a whole number >= 1");
}

TEST_F(BadRecipe, ValuesOutOfRange) {
  EXPECT_EQ(message("lora_rank: 0\n"), "FILE:1: lora_rank: found 0, wanted a whole number >= 1");
  EXPECT_EQ(message("per_device_train_batch_size: -1\n"),
            "FILE:1: per_device_train_batch_size: found -1, wanted a whole number >= 1");
  EXPECT_EQ(message("lora_dropout: 1\n"), "FILE:1: lora_dropout: found 1, wanted a number >= 0 and < 1");
  EXPECT_EQ(message("learning_rate: 0\n"), "FILE:1: learning_rate: found 0, wanted a number > 0");
  EXPECT_EQ(message("warmup_ratio: 1.5\n"), "FILE:1: warmup_ratio: found 1.5, wanted a number >= 0 and <= 1");
  EXPECT_EQ(message("val_size: 1.5\n"), "FILE:1: val_size: found 1.5, wanted a number >= 0; from 1 on, a whole number");
  EXPECT_EQ(message("seed: 1e300\n"), "FILE:1: seed: found 1e300, wanted a whole number >= 0");
}

TEST_F(BadRecipe, ValuesOutsideOfTheChoices) {
  EXPECT_EQ(message("lr_scheduler_type: cosin\n"),
            "FILE:1: lr_scheduler_type: found 'cosin', wanted one of linear, cosine, cosine_with_min_lr, "
            "cosine_with_restarts, constant, constant_with_warmup, polynomial, inverse_sqrt, warmup_stable_decay");
  EXPECT_EQ(message("mesh: {tpp: 2}\n"), "FILE:1: mesh: found 'tpp', wanted names among dp, fsdp, tp, sp, ep, pp");
  EXPECT_EQ(message("mesh: {tp: 0}\n"),
            "FILE:1: mesh: found 0, wanted auto, or a map of dp, fsdp, tp, sp, ep, pp to whole numbers >= 1");
  EXPECT_EQ(message("mesh: {tp: 2, mp: 2}\n"), "FILE:1: mesh: 'tp' is given twice");
  EXPECT_EQ(message("adapter: ia3\n"), "FILE:1: adapter: found 'ia3', wanted one of lora, qlora");
}

TEST_F(BadRecipe, FeaturesThatDoNotExistAreNamed) {
  EXPECT_EQ(message("stage: dpo\npref_loss: aot\n").find("FILE:2: pref_loss: aot is not available"), 0u);
  EXPECT_EQ(message("use_galore: true\n"),
            "FILE:1: use_galore is not available in this version; to train in less memory, set optim: "
            "paged_adamw_8bit, offload_optimizer: true, or finetuning_type: lora");
  EXPECT_EQ(message("galore_rank: 8\n"), "FILE:1: galore_rank is not available in this version; remove the key");
  EXPECT_EQ(message("lora_parameters: {scale: 20}\n"),
            "FILE:1: lora_parameters.scale is not available in this version; set lora_alpha to scale x lora_rank");
  EXPECT_THAT(message("optim: grokadamw\n"),
              testing::StartsWith(
                  "FILE:1: optim: grokadamw is not available in this version; use one of adamw_torch, adamw_8bit, "));
  for (const char* rule : {"galore_adamw_8bit", "galore_adafactor_layerwise", "ademamix_8bit", "rmsprop_bnb_8bit"})
    EXPECT_THAT(message(std::string("optim: ") + rule + "\n"),
                testing::StartsWith(std::string("FILE:1: optim: ") + rule + " is not available in this version"));
  EXPECT_EQ(message("report_to: [wandb, swanlab]\n"),
            "FILE:1: report_to: swanlab is not available in this version; use one of none, tensorboard, wandb, "
            "trackio, mlflow");
  EXPECT_EQ(message("quantization_bit: 3\n"), "FILE:1: quantization_bit: 3 is not available in this version");
  EXPECT_EQ(message("galore_rank: 5\n"), "FILE:1: galore_rank is not available in this version; remove the key");
  EXPECT_EQ(message("shift_attn: true\n"), "FILE:1: shift_attn is not available in this version; remove the key");
  EXPECT_EQ(message("datasets:\n  - path: a\n    shards: 4\n"),
            "FILE:3: the data set key 'shards' is not available; describe the columns in dataset_info.json");
}

TEST_F(BadRecipe, KeysGivenTwice) {
  EXPECT_EQ(message("lora_rank: 8\nstage: sft\nlora_r: 16\n"),
            "FILE:3: lora_rank is given twice with different values: as 'lora_r' here, and as 'lora_rank' at FILE:1; "
            "keep one of "
            "them");
  EXPECT_EQ(
      message("seed: 1\nseed: 2\n"),
      "FILE:2: seed is given twice with different values: as 'seed' here, and as 'seed' at FILE:1; keep one of them");
}

// The message names the key that the user wrote, not only the key that it sets.
TEST_F(BadRecipe, AnotherToolsKeyGivenBesideFettlesOwn) {
  EXPECT_EQ(message("sft_loss: eaft\nuse_dft_loss: true\n"),
            "FILE:2: sft_loss is given twice with different values: as 'use_dft_loss' here, and as 'sft_loss' at "
            "FILE:1; keep one of them");
  EXPECT_EQ(message("use_dft_loss: true\nsft_loss: eaft\n"),
            "FILE:2: sft_loss is given twice with different values: as 'sft_loss' here, and as 'use_dft_loss' at "
            "FILE:1; keep one of them");
}

TEST_F(BadRecipe, AnEmptyOverride) {
  EXPECT_EQ(message("learning_rate: 1e-3\n", {"learning_rate="}),
            "override 'learning_rate=': the value is empty; write learning_rate=null for the default");
  EXPECT_EQ(message("", {"bf16="}), "override 'bf16=': the value is empty; write bf16=null for the default");
  EXPECT_EQ(message("learning_rate:\n", {"learning_rate=null", "template="}), "");
}

TEST_F(BadRecipe, ValuesThatExcludeEachOther) {
  EXPECT_EQ(message("bf16: true\nfp16: false\n"), "");
  EXPECT_EQ(message("adapter_name_or_path: a\nfinetuning_type: full\n"),
            "FILE:1: adapter_name_or_path needs finetuning_type: lora, found full; to train the weights, first "
            "merge the adapter with `fettle export`");
  EXPECT_EQ(message("train_from_scratch: true\n"),
            "FILE:1: train_from_scratch trains every weight, so it needs finetuning_type: full, found lora");
  EXPECT_EQ(message("eval_strategy: steps\n"),
            "FILE:1: eval_strategy: steps has no rows to evaluate on; set val_size or eval_dataset");
  EXPECT_EQ(message("val_size: 10\neval_dataset: e\n"),
            "FILE:1: val_size and eval_dataset both set the rows to evaluate on; remove one of them");
  EXPECT_EQ(message("", {"val_size=10", "eval_dataset=e"}),
            "override 'val_size=10': val_size and eval_dataset both set the rows to evaluate on; remove one of them");
  EXPECT_EQ(message("lr_scheduler_type: cosine_with_min_lr\n"),
            "FILE:1: lr_scheduler_type: cosine_with_min_lr needs min_lr_rate");
  EXPECT_EQ(message("lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 1}\n"),
            "FILE:2: lr_num_cycles is 1, but lr_scheduler_type: cosine always has half a cycle; remove the key or set "
            "it to 0.5, or set lr_scheduler_type: cosine_with_restarts");
  EXPECT_EQ(message("lr_num_cycles: 0.5\n"),
            "FILE:1: lr_num_cycles belongs to lr_scheduler_type: cosine_with_restarts, found linear; remove the key, "
            "or change lr_scheduler_type");
  EXPECT_EQ(message("lr_num_stable_steps: 5\n"),
            "FILE:1: lr_num_stable_steps belongs to lr_scheduler_type: warmup_stable_decay, found linear; remove the "
            "key, or change lr_scheduler_type");
  EXPECT_EQ(message("lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {decay_type: linear}\n"),
            "FILE:2: lr_scheduler_kwargs.decay_type is not available in this version; remove the key");
  EXPECT_EQ(message("lr_power: 2\n"),
            "FILE:1: lr_power belongs to lr_scheduler_type: polynomial, found linear; remove the key, or change "
            "lr_scheduler_type");
  EXPECT_EQ(
      message("cosine_min_lr_ratio: 0.1\nlr_scheduler: cosine\n"),
      "FILE:1: min_lr_rate belongs to lr_scheduler_type: cosine_with_min_lr or polynomial or warmup_stable_decay, "
      "found cosine; remove the key, or change lr_scheduler_type");
  EXPECT_EQ(
      message("lr_scheduler_type: polynomial\nlearning_rate: 1e-7\n"),
      "FILE:2: learning_rate is 1e-07, but lr_scheduler_type: polynomial ends at 1e-07 without min_lr; set a larger "
      "learning_rate, or min_lr");
  EXPECT_EQ(message("lr_scheduler_type: polynomial\nlearning_rate: 1e-7\nmin_lr: 0\n"), "");
  EXPECT_EQ(message("lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {last_epoch: 1}\n"),
            "FILE:2: lr_scheduler_kwargs.last_epoch is not available in this version; remove the key");
  EXPECT_EQ(message("mesh: {fsdp: 4, tp: 2}\n", {"device_count=6"}),
            "FILE:1: the mesh has fsdp 4 x tp 2 = 8 devices, but device_count is 6");
  EXPECT_EQ(message("mesh: {fsdp: 4000000000, tp: 4000000000}\n"),
            "FILE:1: fsdp = 4000000000 is too large; a mesh has at most 2^30 devices");
  EXPECT_EQ(message("finetuning_type: full\nuse_dora: true\n"),
            "FILE:2: use_dora needs finetuning_type: lora, found full; remove the key, or change finetuning_type");
  EXPECT_EQ(message("freeze_trainable_layers: 3\n"),
            "FILE:1: freeze_trainable_layers needs finetuning_type: freeze, found lora; remove the key, or change "
            "finetuning_type");
  EXPECT_THAT(message("mask_history: true\ntrain_on_prompt: true\n"),
              testing::HasSubstr("FILE:1: mask_history trains only the last reply, but train_on_prompt trains"));
  EXPECT_EQ(message("fp16: true\npure_bf16: true\n"), "FILE:1 and FILE:2: only one of fp16 and pure_bf16 can be true");
  EXPECT_THAT(message("optim: muon\n"), HasSubstr("muon updates the layers' own matrices"));
  EXPECT_THAT(message("use_apollo: true\n"), HasSubstr("APOLLO projects the gradients"));
  EXPECT_THAT(message("optim: apollo_adamw\n"), HasSubstr("APOLLO projects the gradients"));
  EXPECT_EQ(message("finetuning_type: full\nuse_apollo: true\nuse_adam_mini: true\n"),
            "FILE:2: use_apollo and use_adam_mini are two optimizers; keep one of them");
  EXPECT_EQ(message("finetuning_type: full\nuse_muon: true\nuse_adam_mini: true\n"),
            "FILE:3: use_adam_mini and use_muon are two optimizers; keep one of them");
  EXPECT_EQ(message("finetuning_type: full\nuse_muon: true\noptim: sgd\n"),
            "FILE:2: use_muon and optim: sgd choose different optimizers; remove one of the two keys");
  EXPECT_THAT(message("use_muon: true\n"), HasSubstr("FILE:1: muon updates the layers' own matrices"));
  EXPECT_EQ(message("finetuning_type: full\noptim: lion_32bit\nuse_adam_mini: true\n"),
            "FILE:3: use_adam_mini and optim: lion_32bit choose different optimizers; remove one of the two keys");
  EXPECT_THAT(message("finetuning_type: full\nuse_apollo: true\noptim_args: rank=2\n"),
              HasSubstr("FILE:3: with use_apollo, the keys apollo_*"));
  EXPECT_THAT(message("fp16: true\nlora_dtype: bf16\n"), HasSubstr("set lora_dtype: float32"));
  EXPECT_THAT(message("pissa_init: true\nadapter_name_or_path: a\n"), HasSubstr("create_new_adapter: true"));
  EXPECT_THAT(message("pissa_init: true\nuse_dora: true\n"), HasSubstr("remove one of them"));
  EXPECT_THAT(message("pissa_init: true\npissa_iter: 0\n"), HasSubstr("1 or more iterations, or -1"));
  EXPECT_THAT(message("create_new_adapter: true\n"), HasSubstr("but that key is empty"));
  EXPECT_THAT(message("finetuning_type: full\nload_in_8bit: true\n"),
              HasSubstr("set finetuning_type: lora, or remove quant"));
  EXPECT_THAT(message("finetuning_type: freeze\nuse_dora: true\n"), HasSubstr("use_dora needs finetuning_type: lora"));
  EXPECT_THAT(message("init_lora_weights: pissa_niter_few\n"), HasSubstr("pissa_iter"));
  EXPECT_THAT(message("init_lora_weights: loftq\n"), HasSubstr("wanted one of"));
}

TEST_F(BadRecipe, PreferencesOutOfRange) {
  EXPECT_EQ(message("stage: dpo\n"), "");
  EXPECT_EQ(message("rl: ipo\nbeta: 0.2\n"), "");
  EXPECT_EQ(message("stage: dpo\ndpo_label_smoothing: 0.5\n").find("FILE:2: dpo_label_smoothing: found 0.5"), 0u);
}

TEST_F(BadRecipe, FilesThatAreNotRecipes) {
  EXPECT_EQ(message("a: [1\nb: 2\n").substr(0, 7), "FILE:2:");
  EXPECT_EQ(message("- a\n- b\n"), "FILE: found a list, wanted lines of `key: value`");
  EXPECT_EQ(message("just words\n"), "FILE: found 'just words', wanted lines of `key: value`");
  EXPECT_EQ(message("stage: pt\n---\nstage: sft\n"),
            "FILE:2: not valid yaml: a second document begins here; keep one document");
  EXPECT_EQ(message(",stage: pt\n"), "FILE:1: not valid yaml: a second document begins here; keep one document");
  EXPECT_EQ(
      message("stage: sft\nlr: 1\n  seed: 2\n"),
      "FILE:3: not valid yaml: illegal map value, at the key seed; check its indentation, and put a value that has "
      "`: ` in quotes");
  EXPECT_EQ(
      message("stage: sft\n seed: 2\n"),
      "FILE:2: not valid yaml: illegal map value, at the key seed; check its indentation, and put a value that has "
      "`: ` in quotes");
  for (const char* text :
       {"hub_token: SECRET: b\n", "a: 1\n \"hub_token\": SECRET\n", "- token: SECRET: b\n",
        "{\"a\": \"x\"\n \"hub_token\": \"SECRET\"}\n", "env: a: SECRET\n", "hub_token:\n  @SECRET\n"})
    EXPECT_THAT(message(text), testing::AllOf(HasSubstr("not valid yaml"), testing::Not(HasSubstr("SECRET")))) << text;
  EXPECT_EQ(message("[a]: b\n"), "FILE:1: found a list as a key, wanted a name");
  EXPECT_EQ(message_of("/no/such/recipe.yaml", {}),
            "/no/such/recipe.yaml: cannot read the recipe: No such file or directory");
  EXPECT_EQ(message_of(std::filesystem::temp_directory_path(), {}),
            std::filesystem::temp_directory_path().string() + ": found a folder, wanted a recipe (a yaml file)");
}

TEST_F(BadRecipe, FilesThatListDataSets) {
  std::filesystem::create_directories(path_);
  const std::string list = (path_ / "sets.yaml").string();
  const auto refusal = [&](const std::string& text) {
    std::ofstream(list, std::ios::binary) << text;
    return message_of("", {"dataset=" + list});
  };
  EXPECT_EQ(refusal("mine: {path: a, size: 5}\n"), "");
  EXPECT_EQ(refusal("mine: {path: a, size: many}\n"),
            "FILE/sets.yaml:1: size of the data set mine: found 'many', wanted a whole number");
  EXPECT_EQ(refusal("- mine\n- other\n"), "FILE/sets.yaml: found a list, wanted a map of data set names");
  EXPECT_EQ(refusal("mine: {path: a, weight: 1}\n"), "");
  EXPECT_NE(refusal("mine: {path: a, weight: 2}\n").find("'weight: 2'"), std::string::npos);
  EXPECT_EQ(refusal("mine: [1\nother: 2\n").substr(0, 17), "FILE/sets.yaml:2:");
}

TEST_F(BadRecipe, NumbersWithManyDigitsInADataSet) {
  EXPECT_EQ(message("dataset: [{path: a, num_samples: 99999999999999999999999}]\n").find("internal"),
            std::string::npos);
}

TEST_F(BadRecipe, DeepOrBinaryFilesAreRefused) {
  EXPECT_NE(message("a: " + std::string(100000, '[')), "");
  EXPECT_NE(message(std::string("\x00\x01\x02\xff\xfe", 5)), "");
  EXPECT_NE(message("a: &x {b: *x}\n"), "");
}

TEST_F(BadRecipe, MalformedOverrides) {
  EXPECT_EQ(message("", {"lora_rank"}), "override 'lora_rank': wanted key=value");
  EXPECT_EQ(message("", {"=8"}), "override '=8': wanted key=value");
  EXPECT_EQ(message("", {"lora_rank=x"}), "override 'lora_rank=x': lora_rank: found 'x', wanted a whole number >= 1");
  EXPECT_NE(message("", {"dataset=[a"}).find("override 'dataset=[a': not a valid value"), std::string::npos);
  EXPECT_EQ(message("", {"seed.x=8"}), "override 'seed.x=8': unknown key 'seed.x'; did you mean 'seed'?");
}

TEST(RequireKeys, NamesWhatIsMissing) {
  Recipe recipe = read_recipe("", {"dataset=a"});
  try {
    require_keys(recipe, {"model_name_or_path", "dataset", "output_dir"}, "train");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "command line: `fettle train` needs model_name_or_path, output_dir; add `model_name_or_path: ...` to "
                 "the recipe, "
                 "or model_name_or_path=... to the command");
  }
}

}  // namespace
}  // namespace fettle
