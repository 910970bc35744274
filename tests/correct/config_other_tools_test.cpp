// Tests that recipes of TRL, Axolotl and LLaMA-Factory mean what they mean in these tools, where it takes
// more than a row of a table.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

const std::string kAxolotlRun = "base_model: m\nmicro_batch_size: 1\nlearning_rate: 1e-4\n";
const std::string kTrl = "model_name_or_path: m\ndataset_name: maker/rows\n";

// The stage and the method may be given on the command line; the defaults follow them.
TEST_F(RecipeShape, DefaultsOfTrlFollowOverrides) {
  EXPECT_EQ(read(kTrl, {"stage=dpo"}).learning_rate, 1e-6);
  EXPECT_EQ(read(kTrl, {"stage=rm"}).learning_rate, 1e-4);
  EXPECT_EQ(read(kTrl, {"stage=dpo", "learning_rate=3e-6"}).learning_rate, 3e-6);
  EXPECT_EQ(read(kTrl + "learning_rate: 2e-6\n", {"stage=dpo"}).learning_rate, 2e-6);
  const Recipe lora = read(kTrl, {"use_peft=true"});
  EXPECT_EQ(lora.finetuning_type, "lora");
  EXPECT_EQ(lora.lora_rank, 16);
  EXPECT_EQ(lora.lora_dropout, 0.05);
  // The keys of the file show the tool. An override that is typical of TRL does not.
  EXPECT_EQ(read("model_name_or_path: m\ndataset: r\ntemplate: llama3\n", {"use_peft=true"}).learning_rate, 5e-5);
}

// The trainers of preferences turn dropout off by default. LLaMA-Factory's does not do so for reward models.
TEST_F(RecipeShape, DropoutIsOffWhereTheToolTurnsItOff) {
  const auto dropout = [&](const std::string& text) {
    const Recipe recipe = read(text + "lora_dropout: 0.1\n");
    return recipe.dropout_is_off ? 0 : recipe.lora_dropout;
  };
  const std::string swift = "model: m\ntuner_type: lora\nrlhf_type: ", axolotl = kAxolotlRun + "adapter: lora\n";
  const std::string own = "model_name_or_path: m\ndataset: r\nstage: ", trl = kTrl + "use_peft: true\n";
  for (const std::string& off : {own + "dpo\n", own + "kto\n", own + "orpo\n", swift + "dpo\n", swift + "simpo\n",
                                 swift + "kto\n", swift + "rm\n", axolotl + "rl: dpo\n", axolotl + "rl: orpo\n",
                                 axolotl + "reward_model: true\n", trl + "stage: dpo\n", trl + "stage: rm\n"}) {
    EXPECT_EQ(dropout(off), 0) << off;
    EXPECT_NE(said_.find("lora_dropout has no effect: "), std::string::npos) << said_;
    EXPECT_TRUE(read(to_yaml(read(off))).dropout_is_off) << off << " a copy does not name the tool";
    EXPECT_EQ(dropout(off + "disable_dropout: False\n"), 0.1) << off;
  }
  for (const std::string& on : {own + "sft\n", own + "rm\n", std::string("model: m\ntuner_type: lora\n"), axolotl, trl})
    EXPECT_EQ(dropout(on), 0.1) << on;
  EXPECT_EQ(dropout(own + "sft\ndisable_dropout: true\n"), 0);
  EXPECT_EQ(read(trl).lora_dropout, 0.05) << "TRL's default";
  EXPECT_FALSE(read(trl + "adapter_name_or_path: a\n").places.has("lora_dropout")) << "the adapter's own counts";
}

// ORPO is a stage of its own in TRL's recipes, with the defaults of preferences.
TEST_F(RecipeShape, TrlsOrpoHasTheDefaultsOfPreferences) {
  const Recipe orpo = read(kTrl + "use_peft: true\nstage: orpo\n");
  EXPECT_EQ(orpo.stage, "dpo");
  EXPECT_EQ(orpo.pref_loss, "orpo");
  EXPECT_EQ(orpo.learning_rate, 1e-6);
  EXPECT_TRUE(orpo.dropout_is_off);
}

// TRL 1.7 and later add the loss that balances experts by default, but not for reward models, ORPO and CPO.
TEST_F(RecipeShape, TrlBalancesExpertsByDefault) {
  for (const char* with : {"", "stage: dpo\n", "stage: kto\n"})
    EXPECT_EQ(read(kTrl + with).moe_aux_loss_default, 0.001) << with;
  for (const char* without : {"stage: rm\n", "stage: orpo\n", "stage: dpo\nloss_type: simpo\n"})
    EXPECT_FALSE(read(kTrl + without).moe_aux_loss_default) << without;
  EXPECT_EQ(read(kAxolotlRun + "rl: kto\n").moe_aux_loss_default, 0.001);
  EXPECT_FALSE(read(kAxolotlRun + "rl: simpo\n").moe_aux_loss_default);
  EXPECT_FALSE(read(kAxolotlRun).moe_aux_loss_default);
  const std::string weighted = kAxolotlRun + "model_config: {router_aux_loss_coef: 0.02}\n";
  EXPECT_EQ(read(weighted).moe_aux_loss_coef, 0.02);
  EXPECT_FALSE(read(weighted + "rl: dpo\n").moe_aux_loss_coef);
  EXPECT_NE(said_.find("model_config.router_aux_loss_coef has no effect here"), std::string::npos) << said_;
  EXPECT_FALSE(read("model_name_or_path: m\ndataset: r\n").moe_aux_loss_default);
}

TEST_F(RecipeShape, TrlsDtypeIsOnlyThatOfLoading) {
  for (const char* dtype : {"auto", "float32", "bfloat16", "float16"}) {
    const Recipe recipe = read(kTrl + "dtype: " + dtype + "\n");
    EXPECT_TRUE(recipe.bf16) << dtype;
    EXPECT_FALSE(recipe.fp16) << dtype;
  }
  EXPECT_TRUE(read(kTrl + "dtype: float32\nbf16: true\n").bf16);
  EXPECT_FALSE(read(kTrl + "torch_dtype: bfloat16\nbf16: false\n").bf16);
  EXPECT_TRUE(read(kTrl + "fp16: false\n").bf16);
  const Recipe half = read(kTrl + "fp16: true\n");
  EXPECT_TRUE(half.fp16 && !half.bf16);
}

TEST_F(RecipeShape, TrlsMixturesOfDataSets) {
  const Recipe recipe = read(
      "model_name_or_path: m\nuse_peft: true\ntest_split_size: 0.1\ndatasets:\n- path: maker/a\n  name: en\n"
      "  columns: [messages]\n- path: maker/b\n  split: train_sft\n");
  EXPECT_EQ(recipe.dataset, (std::vector<std::string>{R"({"hf_hub_url":"maker/a","subset":"en"})",
                                                      R"({"hf_hub_url":"maker/b","split":"train_sft"})"}));
  EXPECT_EQ(recipe.val_size, 0.1);
  EXPECT_EQ(recipe.cutoff_len, 1024);
  EXPECT_EQ(recipe.overlength, "cut");
  EXPECT_EQ(recipe.lora_rank, 16);
  EXPECT_NE(said_.find("a recipe of TRL"), std::string::npos) << said_;
  const Recipe one = read(kTrl + "dataset_config: all\ndataset_text_field: body\n");
  EXPECT_EQ(one.dataset,
            std::vector<std::string>{R"({"hf_hub_url":"maker/rows","subset":"all","columns":{"prompt":"body"}})"});
  EXPECT_NE(refusal("model_name_or_path: m\ndatasets:\n- path: a\n  fraction: 0.5\n").find(":4: fraction of"),
            std::string::npos);
  const std::string named = kTrl + "eval_strategy: steps\ndataset_config: en\n";
  EXPECT_EQ(read(named).eval_dataset,
            std::vector<std::string>{R"({"hf_hub_url":"maker/rows","subset":"en","split":"test"})"});
  EXPECT_TRUE(read(named + "test_split_size: 0.1\n").eval_dataset.empty());
  for (const char* other : {"evaluation_strategy: steps\n", "do_eval: true\ndataset_test_split: test\n"})
    EXPECT_EQ(read(kTrl + other + "dataset_config: en\n").eval_dataset, read(named).eval_dataset) << other;
  for (const char* none : {"eval_strategy: no\n", "eval_strategy: false\n", "evaluation_strategy: no\n",
                           "do_eval: true\n", "eval_strategy: no\nevaluation_strategy: no\n"})
    EXPECT_TRUE(read(kTrl + none).eval_dataset.empty()) << none;
  EXPECT_TRUE(read("model_name_or_path: m\ndataset_name: r\ndatasets:\n- path: a\n").eval_dataset.empty());
  EXPECT_EQ(read("model_name_or_path: m\ndatasets:\n- path: a\n", {"dataset_name=other"}).dataset,
            std::vector<std::string>{"other"});
}

// A recipe of TRL shows itself by keys that LLaMA-Factory refuses, also when its data set was removed.
TEST_F(RecipeShape, TrlsRecipesAreRecognisedWithoutTheirDataSet) {
  const std::string own = "model_name_or_path: m\n";
  for (const char* key : {"attn_implementation: sdpa\n", "torch_dtype: null\n", "dataset_num_proc: 2\n"}) {
    const Recipe recipe = read(own + key, {"dataset_name=maker/rows"});
    EXPECT_EQ(recipe.finetuning_type, "full") << key;
    EXPECT_EQ(recipe.learning_rate, 2e-5) << key;
    EXPECT_NE(said_.find("read as a recipe of TRL"), std::string::npos) << said_;
    for (const char* other : {"template: llama3\n", "finetuning_type: lora\n", "cutoff_len: 64\n", "stage: sft\n",
                              "lora_rank: 4\n", "lora_target: all\n", "quantization_bit: 4\n"})
      EXPECT_EQ(read(own + key + other, {"dataset_name=maker/rows"}).finetuning_type, "lora") << key << other;
  }
}

// Keys of Transformers do not turn a short recipe of Fettle into one of TRL.
TEST_F(RecipeShape, ShortRecipesKeepLora) {
  const std::string start = "model_name_or_path: m\ndataset: r.jsonl\n";
  const std::string reminder = "finetuning_type is not set, so the run trains a LoRA adapter of rank 8";
  for (const char* key : {"attn_implementation: flash_attention_2\n", "torch_dtype: auto\n", "dataset_num_proc: 2\n"}) {
    const Recipe recipe = read(start + key);
    EXPECT_EQ(recipe.finetuning_type, "lora") << key;
    EXPECT_EQ(recipe.learning_rate, 5e-5) << key;
    EXPECT_NE(said_.find(reminder), std::string::npos) << said_;
    for (const char* method : {"lora_rank: 4\n", "lora_r: 4\n", "stage: sft\n", "finetuning_type: lora\n"}) {
      EXPECT_EQ(read(start + key + method).finetuning_type, "lora") << key << method;
      EXPECT_EQ(said_.find(reminder), std::string::npos) << said_;
    }
    const Recipe by_words = read("model_name_or_path: m\n" + std::string(key), {"dataset=r.jsonl"});
    EXPECT_EQ(by_words.finetuning_type, "lora") << key;
    EXPECT_EQ(by_words.learning_rate, 5e-5) << key;
    EXPECT_NE(said_.find(reminder), std::string::npos) << said_;
    for (const char* method : {"lora_rank=4", "stage=sft"})
      EXPECT_EQ(read("model_name_or_path: m\n" + std::string(key), {method}).finetuning_type, "lora") << key << method;
  }
  read(start);
  EXPECT_EQ(said_.find(reminder), std::string::npos) << said_;
  const std::vector<std::string> words = {"model_name_or_path=m", "dataset=r.jsonl",
                                          "attn_implementation=flash_attention_2"};
  EXPECT_EQ(read_recipe("", words).finetuning_type, "lora");
  EXPECT_EQ(read_recipe("", {words[0], words[1], words[2], "lora_rank=4"}).lora_rank, 4);
  EXPECT_EQ(read(start + "gamma_beta_ratio: 0.5\n").finetuning_type, "full") << "a key that only TRL has";
}

TEST_F(RecipeShape, TrlsSplitsAreChosen) {
  const std::string splits = kTrl + "dataset_train_split: train_sft\ndataset_test_split: test_sft\n";
  const Recipe recipe = read(splits + "eval_strategy: steps\n");
  EXPECT_EQ(recipe.dataset, std::vector<std::string>{R"({"hf_hub_url":"maker/rows","split":"train_sft"})"});
  EXPECT_EQ(recipe.eval_dataset, std::vector<std::string>{R"({"hf_hub_url":"maker/rows","split":"test_sft"})"});
  EXPECT_TRUE(read(splits).eval_dataset.empty());
  EXPECT_EQ(read(kTrl, {"dataset_train_split=a"}).dataset,
            std::vector<std::string>{R"({"hf_hub_url":"maker/rows","split":"a"})"});
  EXPECT_EQ(read(kTrl + "dataset_train_split: train\n").dataset, std::vector<std::string>{"maker/rows"});
}

// Each row of TRL's packing strategy `wrapped` may begin in the middle of a text.
TEST_F(RecipeShape, TrlsWrappedPackingIsRefused) {
  EXPECT_TRUE(read(kTrl + "packing: true\npacking_strategy: bfd\n").packing);
  EXPECT_NE(refusal(kTrl + "packing: true\npacking_strategy: wrapped\n").find("set packing_strategy: bfd"),
            std::string::npos);
}

TEST_F(RecipeShape, TrlsLossesBelongToStages) {
  EXPECT_EQ(read(kTrl + "loss_type: dft\n").sft_loss, "dft");
  EXPECT_EQ(read(kTrl + "loss_type: nll\n").sft_loss, "cross_entropy");
  EXPECT_EQ(read(kTrl + "loss_type: [hinge]\n", {"stage=dpo"}).pref_loss, "hinge");
  EXPECT_EQ(read(kTrl + "loss_type: kto\n", {"stage=kto"}).stage, "kto");
  EXPECT_NE(refusal(kTrl + "stage: dpo\nloss_type: aot\n").find("recipe.yaml:4: pref_loss: aot"), std::string::npos);
  EXPECT_EQ(read(kTrl + "stage: dpo\npref_loss: ipo\n", {"loss_type=hinge"}).pref_loss, "hinge");
  EXPECT_NE(refusal(kTrl + "stage: kto\nloss_type: apo_zero_unpaired\n").find("apo_zero_unpaired"), std::string::npos);
}

// One sum of losses has a counterpart: a loss of pairs, and the chosen reply's loss with a weight.
TEST_F(RecipeShape, TrlsSumsOfLosses) {
  const std::string start = kTrl + "stage: dpo\n";
  const Recipe sum = read(start + "loss_type: [hinge, sft]\nloss_weights: [1.0, 0.2]\n");
  EXPECT_EQ(sum.pref_loss, "hinge");
  EXPECT_EQ(sum.pref_ftx, 0.2);
  EXPECT_EQ(read(start + "loss_type: [sft, sigmoid]\n").pref_ftx, 1);
  for (const char* other :
       {"[sigmoid, bco_pair, sft]\nloss_weights: [0.8, 0.2, 1.0]\n", "[sigmoid, hinge]\n",
        "[sigmoid, sft]\nloss_weights: [0.5, 1]\n", "[sigmoid, sft]\nloss_weights: [1]\n", "[sft, sft]\n"}) {
    const std::string said = refusal(start + "loss_type: " + other);
    EXPECT_NE(said.find("recipe.yaml:4: "), std::string::npos) << other << said;
  }
  EXPECT_NE(refusal(start + "loss_type: [sigmoid, hinge]\n").find("pref_ftx"), std::string::npos);
}

TEST_F(RecipeShape, DifferencesFromTrlsPreferencesAreNamed) {
  EXPECT_EQ(read(kTrl + "stage: dpo\nlabel_smoothing: 0.1\n").dpo_label_smoothing, 0.1);
  EXPECT_NE(said_.find("label_smoothing: 0.1 is applied"), std::string::npos) << said_;
  read(kTrl + "stage: dpo\nlabel_smoothing: 0\n");
  EXPECT_EQ(said_.find("label_smoothing"), std::string::npos) << said_;
  read(kTrl + "stage: dpo\nlabel_smoothing: 0.1\nloss_type: [hinge]\n");
  EXPECT_EQ(said_.find("label_smoothing"), std::string::npos) << said_;
  read(kTrl + "stage: dpo\nprecompute_ref_log_probs: true\n");
  EXPECT_NE(said_.find("precompute_ref_log_probs has no effect here: the reference is computed in each step"),
            std::string::npos)
      << said_;
}

// TRL's defaults may be written out.
TEST_F(RecipeShape, TrlsNeutralValues) {
  const Recipe recipe = read(kTrl +
                             "padding_free: true\ntruncation_mode: keep_start\nshuffle_dataset: false\n"
                             "disable_dropout: true\nuse_weighting: false\nf_alpha_divergence_coef: 0.5\n"
                             "discopop_tau: 0.05\nref_model_mixup_alpha: 0.6\nref_model_sync_steps: 512\n"
                             "label_names: [labels]\ntrain_sampling_strategy: random\nload_in_4bit: true\n"
                             "use_peft: true\n");
  EXPECT_FALSE(recipe.packing);
  EXPECT_FALSE(recipe.double_quantization);
  EXPECT_TRUE(recipe.plain_text_rows);
  EXPECT_TRUE(recipe.id2label.empty());
  EXPECT_TRUE(read(kTrl + "train_sampling_strategy: sequential\n").disable_shuffling);
  EXPECT_NE(refusal(kTrl + "label_names: [ham, spam]\n").find("id2label"), std::string::npos);
  EXPECT_NE(refusal(kTrl + "truncation_mode: keep_end\n").find("truncation_mode"), std::string::npos);
}

TEST_F(RecipeShape, ArgumentsOfSchedules) {
  const std::string start = "learning_rate: 1e-4\n";
  EXPECT_EQ(read(start + "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-6}\n").min_lr, 1e-6);
  EXPECT_EQ(read(start + "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 1e-7, power: 2}\n").min_lr,
            1e-7);
  EXPECT_EQ(read(start + "lr_scheduler_type: warmup_stable_decay\n"
                         "lr_scheduler_kwargs: {num_decay_steps: 5, min_lr_ratio: 0.1}\n")
                .min_lr_rate,
            0.1);
  EXPECT_EQ(read(start + "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: '{\"min_lr_rate\": 0.2}'\n")
                .min_lr_rate,
            0.2);
  EXPECT_NE(refusal(start + "lr_scheduler_type: cosine_with_min_lr\nmin_lr: 1e-6\nmin_lr_rate: 0.1\n")
                .find("both set the last learning rate"),
            std::string::npos);
  EXPECT_NE(refusal(start + "lr_scheduler_type: cosine_with_min_lr\nmin_lr: 1e-3\n").find("must be less"),
            std::string::npos);
  EXPECT_NE(refusal(start + "lr_scheduler_type: cosine_with_min_lr\n").find("needs min_lr"), std::string::npos);
  EXPECT_NE(refusal(start + "lr_scheduler_kwargs: '{\"last_epoch\": 1}'\n").find("recipe.yaml:2: "), std::string::npos);
  EXPECT_EQ(read(start + "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 0.0}\n").min_lr, 0);
  read(start + "lr_scheduler_kwargs: ''\n");
}

// Recipes may write out the defaults of Transformers.
TEST_F(RecipeShape, DefaultsOfSchedules) {
  for (const char* type : {"cosine", "cosine_with_min_lr\nmin_lr_rate: 0", "warmup_stable_decay"})
    EXPECT_EQ(refusal(std::string("lr_scheduler_type: ") + type + "\nlr_scheduler_kwargs: {num_cycles: 0.5}\n"), "");
  const Recipe decay = read(
      "lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs:\n  decay_type: cosine\n  warmup_type: linear\n"
      "  min_lr_ratio: 0.0\n  num_stable_steps: 30\n");
  EXPECT_EQ(decay.min_lr_rate, 0);
  EXPECT_EQ(decay.lr_num_stable_steps, 30);
  EXPECT_FALSE(decay.lr_num_decay_steps);
  EXPECT_EQ(read("lr_scheduler_type: cosine_with_restarts\nlr_num_cycles: 2.5\n").lr_num_cycles, 2.5);
}

TEST_F(RecipeShape, ValuesOfTransformers) {
  EXPECT_EQ(read("logging_steps: 0.1\n").logging_steps, 0.1);
  EXPECT_NE(refusal("logging_steps: 0\n").find("logging_steps: found 0"), std::string::npos);
  EXPECT_EQ(read("save_total_limit: -1\n").save_total_limit, -1);
  EXPECT_EQ(read("optim: adamw_apex_fused\n").optim, "adamw_torch");
  EXPECT_EQ(read("finetuning_type: full\noptim: apollo_adamw_layerwise\n").optim, "apollo_adamw");
  const Recipe muon = read("finetuning_type: full\noptim: adamw_torch\nuse_muon: true\n");
  EXPECT_TRUE(muon.use_muon);
}

// Keys that TRL had before its version 1.
TEST_F(RecipeShape, OlderKeysOfTrl) {
  read(kTrl +
           "max_prompt_length: 512\nmax_completion_length: 256\nlabel_pad_token_id: -100\npadding_value: 0\n"
           "precompute_ref_batch_size: 8\ngenerate_during_eval: false\nreference_free: false\n"
           "force_use_ref_model: false\nis_encoder_decoder: false\nmodel_init_kwargs: {}\n",
       {"stage=dpo"});
  EXPECT_NE(said_.find("max_prompt_length has no effect here: cutoff_len limits the whole row"), std::string::npos);
  for (const char* line : {"generate_during_eval: true", "reference_free: true", "force_use_ref_model: true",
                           "is_encoder_decoder: true", "model_init_kwargs: {torch_dtype: bfloat16}"})
    EXPECT_NE(refusal(kTrl + line + "\n").find("is not available in this version"), std::string::npos) << line;
}

TEST_F(RecipeShape, KeysOfPeftAndUnsloth) {
  const Recipe recipe =
      read("model_name_or_path: m\nr: 16\nrandom_state: 7\nbias: none\nloftq_config:\nmodel_name: bot\n");
  EXPECT_EQ(recipe.lora_rank, 16);
  EXPECT_EQ(recipe.seed, 7);
  EXPECT_NE(refusal("model_name_or_path: m\nbias: all\n").find("bias is not available"), std::string::npos);
  EXPECT_NE(refusal("stage: sft\nmodel_name: m\n")
                .find("recipe.yaml:2: model_name replaces {{NAME}} in rows, "
                      "but model_name_or_path is missing; did you mean"),
            std::string::npos)
      << refusal("stage: sft\nmodel_name: m\n");
}

TEST_F(RecipeShape, NamesOfLabelsAsAMap) {
  const std::string start = "model_name_or_path: m\nstage: cls\n";
  EXPECT_EQ(read(start + "id2label: {1: plain, 0: sky}\n").id2label, (std::vector<std::string>{"sky", "plain"}));
  EXPECT_NE(refusal(start + "id2label: {1: plain, 2: sky}\n")
                .find("found a map with the key '2', wanted a list, or a map with the keys 0 to 1"),
            std::string::npos);
}

TEST_F(RecipeShape, KeysThatOverruleOthersInLlamaFactory) {
  const std::string start = "model_name_or_path: m\ndataset: r\ntemplate: llama3\n";
  EXPECT_TRUE(read(start + "packing: false\nneat_packing: true\n").packing);
  const Recipe limits = read(start + "cutoff_len: 512\nmax_length: 32\n");
  EXPECT_EQ(limits.cutoff_len, 512);
  EXPECT_NE(said_.find("max_length has no effect here"), std::string::npos) << said_;
  EXPECT_EQ(read(start + "predict_with_generate: true\n").eval_task, std::vector<std::string>{"generation"});
  EXPECT_EQ(read(start + "predict_with_generate: true\neval_task: loss\n").eval_task, std::vector<std::string>{"loss"});
}

// Without eval_strategy, LLaMA-Factory evaluates after the last step if do_eval is true.
TEST_F(RecipeShape, DoEvalEvaluatesAtTheEnd) {
  const std::string start = "model_name_or_path: m\ndataset: r\ndo_eval: true\n";
  EXPECT_EQ(read(start + "val_size: 0.1\n").eval_strategy, "end");
  EXPECT_EQ(read(start + "val_size: 0.1\neval_strategy: epoch\n").eval_strategy, "epoch");
  EXPECT_EQ(read(start).eval_strategy, "no") << "there are no rows to evaluate on";
  EXPECT_EQ(read(start, {"val_size=0.1"}).eval_strategy, "end");
  EXPECT_EQ(read(start + "val_size: 0.1\n", {"val_size=0"}).eval_strategy, "no");
  EXPECT_EQ(read(start + "val_size: 0.1\n", {"do_eval=false"}).eval_strategy, "no");
}

// A key without a value counts as not given.
TEST_F(RecipeShape, EmptyKeysAreNotSet) {
  const Recipe recipe = read("model_name_or_path: m\nstage: pt\npacking:\nlearning_rate:\n");
  EXPECT_FALSE(recipe.places.has("packing"));
  EXPECT_EQ(recipe.learning_rate, 5e-5);
  const Recipe reset = read("model_name_or_path: m\nstage: pt\npacking: false\n", {"packing=null"});
  EXPECT_FALSE(reset.places.has("packing"));
  EXPECT_EQ(read(kTrl + "learning_rate:\n").learning_rate, 2e-5);
}

TEST_F(RecipeShape, AxolotlsSpecialTokensAreAdded) {
  const std::string start = "base_model: m\nmicro_batch_size: 1\ndatasets:\n- path: r.jsonl\n";
  const Recipe recipe = read(start +
                             "special_tokens:\n  pad_token: <p>\n  additional_special_tokens: [<a>, <b>]\n"
                             "is_llama_derived_model: true\ns2_attention:\n");
  EXPECT_EQ(recipe.add_special_tokens, (std::vector<std::string>{"<a>", "<b>"}));
  EXPECT_NE(refusal(start + "s2_attention: true\n").find("s2_attention"), std::string::npos);
  read(start + "wandb_project: p\nwandb_entity: team\nwandb_run_id: 7\n");
  EXPECT_NE(said_.find("wandb sync --entity"), std::string::npos) << said_;
}

TEST_F(RecipeShape, AxolotlsDataFilesMayBeAList) {
  const auto set = [&](const std::string& path, const std::string& files) {
    return read(kAxolotlRun + "datasets:\n- path: " + path + "\n  type: completion\n  data_files: " + files + "\n")
        .dataset[0];
  };
  EXPECT_EQ(set("maker/rows", "[b.json, a.json]"),
            R"({"hf_hub_url":"maker/rows","file":["b.json","a.json"],"formatting":"text"})");
  EXPECT_EQ(set("maker/rows", "[b.json]"), R"({"hf_hub_url":"maker/rows","file":"b.json","formatting":"text"})");
  EXPECT_EQ(set("json", "[b.json, a.json]"), R"({"file_name":["b.json","a.json"],"formatting":"text"})");
  EXPECT_THROW(set("json", "[[b.json]]"), UserError);
  EXPECT_THROW(set("json", "[]"), UserError);
}

TEST_F(RecipeShape, ShortNamesOfOtherToolsAreOnTheHub) {
  const std::string entry = R"({"hf_hub_url":"imdb"})";
  EXPECT_EQ(read(kAxolotlRun + "datasets:\n- path: imdb\n  type: chat_template\n").dataset[0], entry);
  EXPECT_EQ(read(kAxolotlRun + "datasets:\n- path: imdb.jsonl\n  type: chat_template\n").dataset[0], "imdb.jsonl");
  EXPECT_EQ(read("model_name_or_path: m\nuse_peft: true\ndataset_name: imdb\n").dataset[0], entry);
  EXPECT_EQ(read("model_name_or_path: m\nuse_peft: true\n", {"dataset_name=imdb"}).dataset[0], entry);
  EXPECT_EQ(read("model_name_or_path: m\ndataset: imdb\n").dataset[0], "imdb") << "a recipe of Fettle's own";
}

// Axolotl takes torchao's class itself, which has smaller blocks than the optimizer of Transformers.
TEST_F(RecipeShape, AxolotlsFourBitOptimizerHasTorchaosBlocks) {
  EXPECT_EQ(read(kAxolotlRun + "optimizer: ao_adamw_4bit\n").optim_args.at("block_size"), "128");
  EXPECT_TRUE(read(kAxolotlRun + "optimizer: adamw_torch_4bit\n").optim_args.empty());
}

// With early_stopping_patience, Axolotl's result is the best model, except with `rl`.
TEST_F(RecipeShape, AxolotlsPatienceKeepsTheBestModel) {
  const std::string stops = kAxolotlRun + "val_set_size: 0.1\nearly_stopping_patience: 3\n";
  const std::string steps = "save_steps: 20\neval_steps: 10\n";
  EXPECT_TRUE(read(stops + steps).load_best_model_at_end);
  EXPECT_TRUE(read(stops + steps + "reward_model: true\n").load_best_model_at_end);
  EXPECT_TRUE(read(stops + steps, {"save_steps=30"}).load_best_model_at_end);
  EXPECT_FALSE(read(stops + steps + "rl: dpo\n").load_best_model_at_end);
  EXPECT_TRUE(read(stops + steps + "save_strategy:\n").load_best_model_at_end);
  EXPECT_TRUE(read(stops + "save_steps: 0.3\neval_steps: 0.1\n").load_best_model_at_end);
  for (const char* others : {"save_steps: 15\neval_steps: 10\n", "save_steps: 10\neval_steps: 20\n",
                             "save_steps: 100\neval_steps: 0.1\n", "save_steps: 1\neval_steps: 0.5\n"}) {
    EXPECT_FALSE(read(stops + others).load_best_model_at_end);
    EXPECT_NE(said_.find("but Fettle's is the last one, because save_steps is no multiple of eval_steps"),
              std::string::npos)
        << said_;
  }
  EXPECT_FALSE(read(kAxolotlRun + "val_set_size: 0.1\n" + steps).load_best_model_at_end);
  EXPECT_TRUE(read(stops + steps + "save_only_model: true\n").load_best_model_at_end);
}

TEST_F(RecipeShape, AxolotlsDtypesThatAreOffLeaveBf16On) {
  const std::string start = kAxolotlRun + "datasets:\n- path: r.jsonl\n";
  for (const char* off : {"fp16: false\n", "float16: false\n", "bfloat16: false\n", "fp16:\n"})
    EXPECT_TRUE(read(start + off).bf16) << off;
  for (const char* other : {"fp16: true\n", "float16: true\n", "bf16: false\n"})
    EXPECT_FALSE(read(start + other).bf16) << other;
}

TEST_F(RecipeShape, AxolotlKeepsFourCheckpoints) {
  EXPECT_EQ(read(kAxolotlRun).save_total_limit, 4);
  EXPECT_EQ(read(kAxolotlRun + "save_total_limit: 2\n").save_total_limit, 2);
  EXPECT_EQ(read(kAxolotlRun + "save_total_limit: 0\n").save_total_limit, 4);
}

TEST_F(RecipeShape, AxolotlsRarerKeysAreTranslatedOrExplained) {
  const std::string start = kAxolotlRun + "datasets:\n- path: r.jsonl\n";
  const Recipe recipe = read(start +
                             "rl: dpo\ndpo_loss_type: [hinge]\ndpo_loss_weights: [1.0]\ndpo_padding_free: true\n"
                             "dpo_use_weighting: false\nembedding_lr_scale: 0.5\nsequence_len: 64\n"
                             "eval_sequence_len: 64\nmax_memory: {0: 20GiB}\ngenerate_samples: false\n"
                             "bench_dataset: x\nshuffle_before_merging_datasets: false\n");
  EXPECT_EQ(recipe.pref_loss, "hinge");
  EXPECT_DOUBLE_EQ(recipe.embedding_lr.value_or(0), 5e-5);
  EXPECT_NE(said_.find("max_memory has no effect here"), std::string::npos) << said_;
  const std::pair<const char*, const char*> refused[] = {
      {"eval_sequence_len: 64\n", "cutoff_len"},
      {"rl: dpo\ndpo_loss_type: [hinge, sigmoid]\n", "pref_loss"},
      {"added_tokens_overrides: {7: <a>}\n", "tokenizer's files"},
      {"fix_untrained_tokens: [7]\n", "init_special_tokens"},
      {"lr_groups: [{name: a, modules: [b], lr: 1e-5}]\n", "embedding_lr"},
      {"use_pose: true\n", "rope_scaling"},
      {"dataset_shard_num: 4\n", "max_samples"},
      {"lora_rank_pattern: {q_proj: 4}\n", "lora_rank"},
      {"lora_alpha_pattern: {q_proj: 4}\n", "lora_alpha"},
      {"peft_trainable_token_indices: [1]\n", "remove the key"},
      {"peft_layer_replication: [[0, 4]]\n", "remove the key"}};
  for (const auto& [line, remedy] : refused) {
    const std::string said = refusal(start + line);
    EXPECT_NE(said.find("is not available in this version; "), std::string::npos) << line << said;
    EXPECT_NE(said.find(remedy), std::string::npos) << said;
  }
  EXPECT_NE(refusal("model_name_or_path: m\ndataset: r\nadapter_folder: a\n").find("adapter_name_or_path"),
            std::string::npos);
}

TEST_F(RecipeShape, VariablesOfTheTemplate) {
  const std::string start = "model_name_or_path: m\ndataset: r\n";
  EXPECT_EQ(read(start + "chat_template_kwargs: {enable_thinking: false}\n").enable_thinking, "false");
  EXPECT_EQ(read(start, {R"(chat_template_kwargs={"enable_thinking": true})"}).enable_thinking, "true");
  EXPECT_TRUE(read(start + "chat_template_kwargs:\n  preserve_thinking: true\n").preserve_thinking);
  EXPECT_NE(refusal(start + "chat_template_kwargs: {style: short}\n").find("a column chat_template_kwargs of the rows"),
            std::string::npos);
}

// Keys about logs cannot change the result.
TEST_F(RecipeShape, KeysThatCannotChangeTheResultAreAccepted) {
  const std::string start = "model_name_or_path: m\ndataset: r\n";
  read(start + "logging_first_step: true\nlogging_strategy: epoch\nwandb_tags: [a]\n");
  EXPECT_NE(said_.find("logging_strategy has no effect here"), std::string::npos) << said_;
  read(start + "logging_first_step: false\nlogging_strategy: steps\n");
  EXPECT_EQ(said_.find("logging"), std::string::npos) << said_;
  EXPECT_EQ(read(start + "seed: 7\ndata_seed: 7\n").seed, 7);
  EXPECT_EQ(read(start + "data_seed: 42\n").seed, 42) << "the default";
  EXPECT_EQ(read(start + "data_seed: 7\n", {"seed=7"}).seed, 7);
  EXPECT_EQ(read(start, {"data_seed=42"}).seed, 42);
  EXPECT_NE(refusal(start + "seed: 7\ndata_seed: 42\n").find("data_seed is not available"), std::string::npos);
}

TEST_F(RecipeShape, LlamaBoardsOwnSettingsAreNoRecipe) {
  EXPECT_NE(refusal("top.booster: auto\ntrain.learning_rate: 5e-5\n").find("training_args.yaml"), std::string::npos);
}

const std::string kSwift = "model: m\ntuner_type: lora\ndataset: r.jsonl\n";

// ms-swift evaluates when it saves checkpoints, if there are rows to evaluate on.
TEST_F(RecipeShape, SwiftEvaluatesWhenItSaves) {
  const Recipe split = read(kSwift + "split_dataset_ratio: 0.1\nsave_steps: 50\n");
  EXPECT_EQ(split.eval_strategy, "steps");
  EXPECT_EQ(split.eval_steps, 50);
  EXPECT_EQ(read(kSwift + "val_dataset: v.jsonl\n").eval_steps, 500);
  EXPECT_EQ(read(kSwift + "val_dataset: v.jsonl\nsave_strategy: epoch\n").eval_strategy, "epoch");
  EXPECT_EQ(read(kSwift + "val_dataset: v.jsonl\neval_strategy: epoch\n").eval_strategy, "epoch");
  EXPECT_EQ(read(kSwift + "split_dataset_ratio: 0.1\neval_steps: 7\n").eval_steps, 7);
  EXPECT_EQ(read(kSwift).eval_strategy, "no");
  for (const char* none :
       {"eval_strategy: no\n", "save_strategy: 'no'\n", "eval_strategy: no\nevaluation_strategy: no\n"}) {
    const Recipe all = read(kSwift + "split_dataset_ratio: 0.1\n" + none);
    EXPECT_EQ(all.eval_strategy, "no");
    EXPECT_EQ(all.val_size, 0) << "all rows are trained";
  }
}

TEST_F(RecipeShape, SwiftsOtherKeys) {
  const std::string tokens = write("tokens.txt", "<a> <b>\n<c>\n");
  EXPECT_EQ(read(kSwift + "new_special_tokens: ['<x>', " + tokens + "]\n").add_special_tokens,
            (std::vector<std::string>{"<x>", "<a>", "<b>", "<c>"}));
  EXPECT_EQ(read(kSwift, {"new_special_tokens=" + tokens}).add_special_tokens.size(), 3u);
  EXPECT_NE(refusal(kSwift + "new_special_tokens: [missing.txt]\n").find("recipe.yaml:4: new_special_tokens: cannot"),
            std::string::npos);
  EXPECT_NE(refusal(kSwift + "template: default\n").find("recipe.yaml:4: template: the template `default`"),
            std::string::npos);
  EXPECT_EQ(read(kSwift + "quant_bits: 4\n").quantization_bit, 4);
  const Recipe self = read(kSwift + "model_name: [a, b]\nmodel_author: c\n");
  EXPECT_EQ(self.self_name, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(self.self_author, std::vector<std::string>{"c"});
}

// A text with a comma is one name. On the command line, the text is taken literally.
TEST_F(RecipeShape, SwiftsNamesKeepTheirCommas) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(read(kSwift + "model_author: Acme, Inc.\n").self_author, Texts{"Acme, Inc."});
  EXPECT_EQ(read(kSwift, {"self_name=Bot, the first"}).self_name, Texts{"Bot, the first"});
  EXPECT_EQ(read(kSwift, {"self_name=Bot: v2"}).self_name, Texts{"Bot: v2"});
  EXPECT_EQ(read(kSwift, {"model_author=Team #1"}).self_author, Texts{"Team #1"});
  EXPECT_TRUE(read(kSwift + "model_name: a\n", {"model_name=null"}).self_name.empty());
  EXPECT_EQ(read(kSwift, {R"(model_name=["a, b", "c"])"}).self_name, (Texts{"a, b", "c"}));
  EXPECT_TRUE(read(kSwift + "model_name: ''\n").self_name.empty());
  EXPECT_NE(refusal(kSwift + "model_name: [a, b, c]\n").find("found a list of 3, wanted a text, or a list of at most"),
            std::string::npos);
}

// Without rows to evaluate on, ms-swift's defaults for evaluations do not count.
TEST_F(RecipeShape, SwiftEvaluatesNothingWithoutRows) {
  EXPECT_EQ(read(kSwift + "val_dataset: []\n").eval_strategy, "no");
  EXPECT_EQ(read(kSwift + "eval_dataset: v.jsonl\n", {"eval_dataset=null"}).eval_strategy, "no");
  EXPECT_EQ(read(kSwift + "split_dataset_ratio: 0.1\n", {"val_size=0"}).eval_strategy, "no");
  EXPECT_EQ(read(kSwift + "eval_strategy: steps\nval_dataset: []\n").eval_strategy, "no");
  EXPECT_NE(said_.find("eval_strategy has no effect: there are no rows"), std::string::npos) << said_;
  EXPECT_EQ(read(kSwift, {"eval_strategy=steps"}).eval_strategy, "no");
  EXPECT_EQ(read(kSwift + "eval_strategy: steps\n", {"val_set_size=0.1"}).eval_strategy, "steps");
}

// As in ms-swift, val_dataset counts and split_dataset_ratio does not.
TEST_F(RecipeShape, SwiftHoldsNoRowsOutBesideItsValDataset) {
  const std::string split = kSwift + "split_dataset_ratio: 0.1\n";
  for (const Recipe& both : {read(split + "val_dataset: v.jsonl\n"), read(split, {"val_dataset=v.jsonl"})}) {
    EXPECT_EQ(both.eval_dataset, std::vector<std::string>{"v.jsonl"});
    EXPECT_EQ(both.val_size, 0);
    EXPECT_EQ(both.eval_strategy, "steps");
    EXPECT_NE(said_.find("split_dataset_ratio has no effect"), std::string::npos) << said_;
  }
  EXPECT_EQ(read(split + "val_dataset: []\n").val_size, 0.1);
}

// As in Transformers, no checkpoint is saved every 0 steps. Other strategies do not read save_steps.
TEST_F(RecipeShape, NoCheckpointEveryZeroSteps) {
  const std::string own = "model_name_or_path: m\ndataset: r\n";
  EXPECT_EQ(read(own + "save_steps: 0\n").save_strategy, "no");
  const Recipe later = read(own + "save_steps: 0\n", {"save_steps=100"});
  EXPECT_EQ(later.save_strategy, "steps");
  EXPECT_EQ(later.save_steps, 100);
  EXPECT_EQ(read(own + "save_steps: 100\n", {"save_steps=0"}).save_strategy, "no");
  EXPECT_EQ(read(own + "save_strategy: epoch\nsave_steps: 0\n").save_strategy, "epoch");
  EXPECT_EQ(read(own + "save_strategy: epoch\n", {"save_steps=0"}).save_strategy, "epoch");
  EXPECT_EQ(read(kAxolotlRun + "save_steps: 0\n").save_strategy, "epoch");
  EXPECT_EQ(read(kAxolotlRun + "save_steps: 0\n", {"save_steps=100"}).save_strategy, "steps");
  EXPECT_EQ(read(kAxolotlRun, {"save_every=100"}).save_strategy, "steps");
  const Recipe twice = read(kAxolotlRun + "save_steps: 0\nsaves_per_epoch: 2\n");
  EXPECT_EQ(twice.save_strategy, "steps");
  EXPECT_EQ(twice.save_steps, 0.5);
}

// Keys on the command line decide how often a recipe of Axolotl evaluates, as if they were in the file.
TEST_F(RecipeShape, AxolotlsEvaluationsFollowTheCommandLine) {
  const std::string split = kAxolotlRun + "val_set_size: 0.05\n";
  EXPECT_EQ(read(split).eval_strategy, "epoch");
  for (const char* given : {"", "evals_per_epoch: 1\n", "evals_per_epoch: 4\n", "eval_steps: 0\n"}) {
    const Recipe often = read(split + given, {"eval_steps=50"});
    EXPECT_EQ(often.eval_strategy, "steps") << given;
    EXPECT_EQ(often.eval_steps, 50) << given;
  }
  EXPECT_EQ(read(split, {"eval_steps=50", "eval_strategy=epoch"}).eval_strategy, "epoch");
  EXPECT_EQ(read(split + "eval_steps: 50\n", {"eval_steps=null"}).eval_strategy, "epoch");
  EXPECT_EQ(read(kAxolotlRun + "eval_steps: 50\n", {"val_set_size=0.05"}).eval_strategy, "steps");
  EXPECT_EQ(read(kAxolotlRun, {"eval_dataset=v.jsonl"}).eval_strategy, "epoch");
  EXPECT_EQ(read(split + "evals_per_epoch: 4\n", {"val_set_size=0"}).eval_strategy, "no");
}

// The keys of Unsloth's lora_text.yaml.
TEST_F(RecipeShape, UnslothsFilesAreReadWhole) {
  const Recipe recipe = read(
      "model: m\ndata:\n  dataset: maker/rows\n  format_type: auto\ntraining:\n  training_type: lora\n"
      "  max_steps: 0\n  save_steps: 0\n  gradient_checkpointing: \"unsloth\"\nlora:\n  lora_r: 8\n"
      "  vision_all_linear: false\n  use_loftq: false\n  finetune_vision_layers: true\nlogging:\n"
      "  enable_wandb: false\n  wandb_token: secret\n  hf_token: hidden\n  tensorboard_dir: runs\n");
  EXPECT_EQ(recipe.save_strategy, "no");
  EXPECT_EQ(recipe.hub_token, "hidden");
  EXPECT_EQ(recipe.logging_dir, "runs");
  EXPECT_EQ(said_.find("secret"), std::string::npos) << said_;
}

}  // namespace
}  // namespace fettle
