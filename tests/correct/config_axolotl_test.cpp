// Tests recipes of Axolotl: keys on the command line, which count as if they were in the file, and rarer keys.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

const std::string kRun = "base_model: m\nmicro_batch_size: 4\nlearning_rate: 2e-4\n";

TEST_F(RecipeShape, AxolotlsIntervalsFollowTheEpochsOfTheCommandLine) {
  const std::string start = kRun + "val_set_size: 0.05\nnum_epochs: 1\nsaves_per_epoch: 2\nevals_per_epoch: 4\n";
  for (const char* word : {"num_epochs=3", "num_train_epochs=3", "epochs=3"}) {
    const Recipe recipe = read(start, {word});
    EXPECT_NEAR(recipe.save_steps, 1. / 6, 1e-9) << word;
    EXPECT_NEAR(recipe.eval_steps, 1. / 12, 1e-9) << word;
  }
  EXPECT_EQ(read(start, {"num_epochs=null"}).save_steps, 0.5);
}

TEST_F(RecipeShape, AxolotlsIntervalsMayBeOnTheCommandLine) {
  const Recipe both = read(kRun + "val_set_size: 0.05\n", {"saves_per_epoch=2", "evals_per_epoch=4"});
  EXPECT_EQ(both.save_strategy, "steps");
  EXPECT_EQ(both.save_steps, 0.5);
  EXPECT_EQ(both.eval_steps, 0.25);
  EXPECT_EQ(read(kRun + "saves_per_epoch: 2\n", {"saves_per_epoch=1"}).save_strategy, "epoch");
  EXPECT_EQ(read(kRun + "save_steps: 100\n", {"saves_per_epoch=2"}).save_steps, 0.5);
  EXPECT_EQ(read(kRun + "save_steps: 100\n", {"saves_per_epoch=0"}).save_steps, 100);
  EXPECT_EQ(read(kRun, {"saves_per_epoch=2", "save_steps=7"}).save_steps, 7);
  const Recipe steps = read(kRun + "saves_per_epoch: 1\n", {"save_every=100"});
  EXPECT_EQ(steps.save_strategy, "steps");
  EXPECT_EQ(steps.save_steps, 100);
}

TEST_F(RecipeShape, AxolotlsScaledRateFollowsTheRateOfTheCommandLine) {
  const std::string start = kRun + "embedding_lr_scale: 0.5\n";
  EXPECT_EQ(read(start).embedding_lr, 1e-4);
  for (const char* word : {"learning_rate=1e-5", "lr=1e-5"}) EXPECT_EQ(read(start, {word}).embedding_lr, 5e-6) << word;
  EXPECT_EQ(read(kRun, {"embedding_lr_scale=2"}).embedding_lr, 4e-4);
  EXPECT_EQ(read(start, {"embedding_lr=3e-5"}).embedding_lr, 3e-5);
}

TEST_F(RecipeShape, AxolotlsStepsKeepTheirRows) {
  const std::string start = kRun + "batch_size: 8\n";
  EXPECT_EQ(read(start).gradient_accumulation_steps, 2);
  EXPECT_EQ(read(start, {"micro_batch_size=1"}).gradient_accumulation_steps, 8);
  EXPECT_EQ(read(start, {"per_device_train_batch_size=3"}).gradient_accumulation_steps, 2) << "8 // 3 in Axolotl";
  EXPECT_EQ(read(start, {"gradient_accumulation_steps=5"}).gradient_accumulation_steps, 5);
}

// In Axolotl, batch_size is the rows of a step; Fettle's own key of this name is the rows of a micro-batch.
TEST_F(RecipeShape, AxolotlsBatchSizeMayBeOnTheCommandLine) {
  const auto batch = [&](const std::string& text, const std::vector<std::string>& words) {
    const Recipe recipe = read(text, words);
    return std::pair<int64_t, int64_t>(recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps);
  };
  const std::string start = kRun + "batch_size: 8\n", sum = "base_model: m\nsequence_len: 64\nbatch_size: 8\n";
  EXPECT_EQ(batch(start, {"micro_batch_size=2", "batch_size=16"}), std::pair(2L, 8L));
  EXPECT_EQ(batch(start, {"batch_size=32"}), std::pair(4L, 8L));
  EXPECT_EQ(batch(sum, {"micro_batch_size=2"}), std::pair(2L, 4L));
  EXPECT_EQ(batch(kRun + "gradient_accumulation_steps: 2\n", {"batch_size=16"}), std::pair(4L, 4L));
  EXPECT_EQ(batch(start, {"batch_size=null"}), std::pair(4L, 1L));
  EXPECT_NE(refusal(start, {"batch_size=many"}).find("'many'"), std::string::npos);
}

TEST_F(RecipeShape, AxolotlsLeastRateFollowsTheScheduleOfTheCommandLine) {
  const std::string start = kRun + "cosine_min_lr_ratio: 0.1\n";
  for (const char* word : {"lr_scheduler=linear", "lr_scheduler_type=linear"}) {
    EXPECT_EQ(read(start + "lr_scheduler: cosine\n", {word}).lr_scheduler_type, "linear") << word;
    EXPECT_NE(said_.find("recipe.yaml:4: cosine_min_lr_ratio has no effect"), std::string::npos) << said_;
  }
  for (const char* word : {"lr_scheduler=cosine", "lr_scheduler_type=cosine", "lr_scheduler_type=cosine_with_min_lr"}) {
    const Recipe recipe = read(start + "lr_scheduler: linear\n", {word});
    EXPECT_EQ(recipe.lr_scheduler_type, "cosine_with_min_lr") << word;
    EXPECT_EQ(recipe.min_lr_rate, 0.1) << word;
  }
  const Recipe ratio = read(kRun + "lr_scheduler: cosine\n", {"cosine_min_lr_ratio=0.2"});
  EXPECT_EQ(ratio.lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(ratio.min_lr_rate, 0.2);
  EXPECT_EQ(read(kRun + "lr_scheduler: linear\n", {"cosine_min_lr_ratio=0.2"}).lr_scheduler_type, "linear");
  EXPECT_NE(said_.find("the command line: cosine_min_lr_ratio has no effect"), std::string::npos) << said_;
}

TEST_F(RecipeShape, AxolotlsLengthOfEvaluationFollowsTheCommandLine) {
  const std::string start = kRun + "sequence_len: 512\neval_sequence_len: 512\n";
  EXPECT_EQ(read(start).cutoff_len, 512);
  EXPECT_NE(refusal(start, {"sequence_len=1024"}).find("recipe.yaml:5: eval_sequence_len"), std::string::npos);
  EXPECT_EQ(refusal(start, {"sequence_len=1024", "eval_sequence_len=1024"}), "");
}

TEST_F(RecipeShape, AxolotlsDefaultsFollowTheCommandLine) {
  EXPECT_EQ(read(kRun, {"rl=simpo"}).pref_ftx, 1);
  EXPECT_EQ(read(kRun + "rl: simpo\n", {"rl=kto"}).pref_ftx, 0);
  EXPECT_FALSE(read(kRun, {"fp16=true"}).bf16);
  const Recipe warmup = read(kRun, {"warmup_steps=500"});
  EXPECT_EQ(warmup.max_warmup_steps, 0);
  EXPECT_EQ(warmup.warmup_ratio, 0);
  EXPECT_EQ(read(kRun, {"wandb_project=p"}).report_to, std::vector<std::string>{"wandb"});
}

TEST_F(RecipeShape, AxolotlsFallbackTemplatesAreExplained) {
  EXPECT_EQ(read(kRun + "chat_template: tokenizer_default_fallback_chatml\n").template_name, "");
  EXPECT_NE(said_.find("recipe.yaml:4: chat_template: tokenizer_default_fallback_chatml: Fettle uses the template in "
                       "the model folder; if it has none, set template: chatml"),
            std::string::npos)
      << said_;
}

TEST_F(RecipeShape, AxolotlsRarerKeysChangeNothing) {
  read(kRun +
       "merge_lora: true\nmerge_method: legacy\ntokenizer_save_jinja_files: false\nbase_model_config: m\n"
       "max_prompt_len: 64\nworld_size: 1\nmultipack_real_batches: true\npretrain_multipack_buffer_size: 10\n"
       "unsloth_rope: true\nunsloth_cross_entropy_loss: true\nlr_div_factor: 2\nadam_beta3: 0.9\n"
       "adam_epsilon2: 1e-8\ntype_of_model: AutoModelForCausalLM\nqlora_sharded_model_loading: true\n");
  for (const char* said :
       {"qlora_sharded_model_loading has no effect here: weights are always streamed",
        "merge_lora has no effect here: `fettle export` merges", "max_prompt_len has no effect here: cutoff_len limits",
        "adam_beta3 has no effect here: only the optimizer CAME uses it",
        "merge_method, world_size, multipack_real_batches, pretrain_multipack_buffer_size, unsloth_rope"})
    EXPECT_NE(said_.find(said), std::string::npos) << said << '\n' << said_;
  read(kRun +
       "qlora_sharded_model_loading: false\nmerge_lora: false\ntokenizer_save_jinja_files: true\n"
       "shrink_embeddings: false\nfloat32: false\npeft_ensure_weight_tying: false\npeft_autocast_adapter_dtype: true\n"
       "pretraining_sample_concatenation: false\nnoisy_embedding_alpha: 0\n");
  EXPECT_EQ(said_.find("no effect"), std::string::npos) << said_;
  for (const auto& [keys, said] : {std::pair{"float32: true\n", "set bf16: false to compute in float32"},
                                   {"shrink_embeddings: true\n", "shrink_embeddings is not available"},
                                   {"peft_autocast_adapter_dtype: false\n", "set lora_dtype: bfloat16"},
                                   {"pretraining_sample_concatenation: true\n", "set sample_packing: true"},
                                   {"noisy_embedding_alpha: 5\n", "set neftune_noise_alpha"},
                                   {"model_kwargs: {torch_dtype: auto}\n", "bf16 and fp16 set the dtype"}})
    EXPECT_NE(refusal(kRun + keys).find(said), std::string::npos) << keys << refusal(kRun + keys);
}

// In Axolotl, base_model_config also names the tokenizer and its chat template.
TEST_F(RecipeShape, AxolotlsOtherModelForConfigAndTokenizerIsRefused) {
  for (const std::string key : {"base_model_config", "tokenizer_config"}) {
    EXPECT_EQ(refusal(kRun + key + ": m\n"), "") << key;
    EXPECT_EQ(refusal(kRun, {key + "=m"}), "") << key;
    EXPECT_EQ(refusal(kRun + key + ": other/model\n", {"base_model=other/model"}), "") << key;
    EXPECT_NE(refusal(kRun + key + ": other/model\n").find("recipe.yaml:4: " + key), std::string::npos) << key;
    EXPECT_NE(refusal(kRun + key + ": m\n", {"base_model=n"}).find("tokenizer's files"), std::string::npos) << key;
  }
}

// Axolotl ignores cosine_min_lr_ratio unless the schedule is `cosine`.
TEST_F(RecipeShape, AxolotlsLeastRateOfAnotherKeyCounts) {
  const std::string start = kRun + "cosine_min_lr_ratio: 0.3\nlr_scheduler: ", other = "cosine_with_min_lr\n";
  const std::string ignored = "recipe.yaml:4: cosine_min_lr_ratio has no effect";
  const Recipe absolute = read(start + other + "lr_scheduler_kwargs: {min_lr: 1.0e-6}\n");
  EXPECT_EQ(absolute.min_lr, 1e-6);
  EXPECT_FALSE(absolute.min_lr_rate);
  EXPECT_NE(said_.find(ignored), std::string::npos) << said_;
  EXPECT_EQ(read(start + other + "lr_scheduler_kwargs: {min_lr_rate: 0.1}\n").min_lr_rate, 0.1);
  EXPECT_EQ(read(start + other + "min_lr_rate: 0.1\n").min_lr_rate, 0.1);
  EXPECT_EQ(read(start + other, {"min_lr=1e-6"}).min_lr, 1e-6);
  EXPECT_NE(said_.find(ignored), std::string::npos) << said_;
  const std::string linear = start + "linear\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n";
  EXPECT_EQ(read(linear, {"lr_scheduler=cosine_with_min_lr"}).min_lr_rate, 0.1);
  EXPECT_EQ(read(start + other + "lr_scheduler_kwargs: {min_lr: null}\n").min_lr_rate, 0.3) << "no other key sets it";
}

TEST_F(RecipeShape, AxolotlsPatienceFollowsTheIntervalsOfTheCommandLine) {
  const std::string start = kRun + "val_set_size: 0.1\nearly_stopping_patience: 3\nsave_steps: 100\neval_steps: 100\n";
  EXPECT_TRUE(read(start).load_best_model_at_end);
  for (const char* word : {"saves_per_epoch=1", "saves_per_epoch=2", "evals_per_epoch=3"}) {
    EXPECT_FALSE(read(start, {word}).load_best_model_at_end) << word;
    EXPECT_NE(said_.find("_per_epoch replaces the steps in the file"), std::string::npos) << said_;
  }
}

TEST_F(RecipeShape, AxolotlsIntervalsMustBeNumbers) {
  for (const std::string key : {"saves_per_epoch", "evals_per_epoch"}) {
    for (const char* odd : {"two", "-1", "1/2"}) {
      EXPECT_EQ(refusal(kRun + key + ": " + odd + "\n"), (folder_ / "recipe.yaml").string() + ":4: " + key +
                                                             ": found '" + odd + "', wanted a number, 0 or more");
      EXPECT_EQ(refusal(kRun, {key + "=" + odd}),
                "the command line: " + key + ": found '" + odd + "', wanted a number, 0 or more");
    }
    for (const char* none : {"0", "null"}) EXPECT_EQ(refusal(kRun + key + ": 2\n", {key + "=" + none}), "") << none;
  }
}

TEST_F(RecipeShape, AxolotlsOrderFollowsTheCommandLine) {
  const std::string set = "datasets:\n- path: r.jsonl\n  type: alpaca\n",
                    two = set + "- path: s.jsonl\n  type: alpaca\n";
  EXPECT_TRUE(read(kRun + set, {"curriculum_sampling=true"}).disable_shuffling);
  EXPECT_FALSE(read(kRun + set + "curriculum_sampling: true\n", {"curriculum_sampling=false"}).disable_shuffling);
  EXPECT_TRUE(read(kRun + two + "curriculum_sampling: true\n", {"shuffle_merged_datasets=false"}).disable_shuffling);
  EXPECT_EQ(said_.find("no effect"), std::string::npos) << said_;
  EXPECT_FALSE(read(kRun + two, {"curriculum_sampling=true"}).disable_shuffling);
  EXPECT_NE(said_.find("the command line: curriculum_sampling has no effect"), std::string::npos) << said_;
  EXPECT_NE(refusal(kRun, {"curriculum_sampling=maybe"}).find("wanted true or false"), std::string::npos);
}

TEST_F(RecipeShape, AxolotlsTemplatesOnTheCommandLineMeanTheSame) {
  const auto named = [&](const std::string& text, const std::string& word) { return read(text, {word}).template_name; };
  EXPECT_EQ(named(kRun, "chat_template=chatml"), "chatml");
  EXPECT_EQ(named(kRun + "chat_template: llama3\n", "chat_template=phi_35"), "phi3");
  EXPECT_EQ(named(kRun + "template: llama3\n", "chat_template=gemma3"), "") << "the template of the model folder";
  EXPECT_NE(said_.find("the command line: chat_template: gemma3 names a family"), std::string::npos) << said_;
  for (const char* own : {"qwen_25", "tokenizer_default", "tokenizer_default_fallback_chatml"})
    EXPECT_EQ(named(kRun + "chat_template: llama3\n", std::string("chat_template=") + own), "") << own;
  EXPECT_NE(refusal(kRun, {"chat_template=alpaca"}).find("the command line: chat_template: alpaca"), std::string::npos);
  EXPECT_EQ(named(kRun, "template=gemma3"), "gemma3") << "Fettle's own key";
  EXPECT_EQ(read(kRun, {"template=phi", "chat_template=gemma3"}).template_name, "phi");
  const std::string sets = kRun +
                           "datasets:\n- {path: a, type: chat_template, chat_template: llama3}\n"
                           "- {path: b, type: chat_template, chat_template: gemma}\n";
  EXPECT_EQ(named(sets, "chat_template=chatml"), "chatml") << "for all data sets";
}

TEST_F(RecipeShape, AxolotlsFallbackTemplatesAreNamedAsInFettle) {
  for (const auto& [name, advice] :
       {std::pair{"phi_35", "if it has none, set template: phi3\n"},
        {"llama3", "if it has none, set template: llama3\n"},
        {"qwen_25", "if it has none, save qwen_25 as chat_template.jinja in that folder\n"},
        {"metharme", "if it has none, save metharme as chat_template.jinja in that folder\n"},
        {"alpaca", "if it has none, save alpaca as chat_template.jinja in that folder\n"}}) {
    EXPECT_EQ(read(kRun + "chat_template: tokenizer_default_fallback_" + name + "\n").template_name, "");
    EXPECT_NE(said_.find(advice), std::string::npos) << said_;
  }
}

TEST_F(RecipeShape, AxolotlsFormerTypeShareGptNamesItsReplacement) {
  const std::string set = "base_model: m\nmicro_batch_size: 4\ndatasets:\n- path: r.jsonl\n  type: sharegpt";
  for (const char* style : {"", ".load_role"})
    EXPECT_NE(refusal(set + style + "\n")
                  .find("recipe.yaml:5: Axolotl has replaced the data set type 'sharegpt" + std::string(style) +
                        "'; write `type: chat_template`, which reads rows"),
              std::string::npos)
        << refusal(set + style + "\n");
  EXPECT_NE(refusal(set + "\n  conversation: chatml\n").find("and set chat_template to chatml"), std::string::npos);
}

}  // namespace
}  // namespace fettle
