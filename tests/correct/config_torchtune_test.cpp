// Tests that torchtune's recipes mean what they mean in torchtune.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

const std::string kTorchtune =
    "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\ntokenizer:\n  max_seq_len: 64\n";

TEST_F(RecipeShape, TorchtunesModelsNameTheMethod) {
  const auto model = [](const std::string& name, const std::string& keys) {
    return "model:\n  _component_: torchtune.models.llama3_1." + name + "\n" + keys +
           "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: folder\n"
           "batch_size: 2\n";
  };
  const Recipe full = read(model("llama3_1_8b", ""));
  EXPECT_EQ(full.finetuning_type, "full");
  EXPECT_EQ(full.model_name_or_path, "folder");
  EXPECT_EQ(full.lr_scheduler_type, "constant");
  EXPECT_EQ(full.max_grad_norm, 0);
  EXPECT_NE(said_.find("tokenizer.max_seq_len is not given"), std::string::npos) << said_;
  const Recipe adam =
      read(model("llama3_1_8b", "") + "clip_grad_norm:\noptimizer:\n  _component_: torch.optim.AdamW\n");
  EXPECT_EQ(adam.weight_decay, 0.01);
  EXPECT_EQ(adam.max_grad_norm, 0);
  const Recipe lora = read(model("lora_llama3_1_8b",
                                 "  lora_attn_modules: [q_proj, v_proj, output_proj]\n  apply_lora_to_mlp: true\n"
                                 "  apply_lora_to_output: false\n  lora_rank: 4\n"));
  EXPECT_EQ(lora.finetuning_type, "lora");
  EXPECT_EQ(lora.lora_rank, 4);
  EXPECT_EQ(lora.lora_alpha, 16);
  EXPECT_EQ(lora.lora_target,
            (std::vector<std::string>{"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(read(model("qlora_llama3_1_8b", "  lora_attn_modules: [q_proj]\n")).quantization_bit, 4);
  EXPECT_NE(refusal(model("qlora_llama3_1_8b", "  lora_attn_modules: [q_proj]\n  apply_lora_to_output: true\n"))
                .find("no LoRA for the head"),
            std::string::npos);
  EXPECT_NE(refusal(model("lora_llama3_1_8b", "  lora_attn_modules: [k_norm]\n")).find("found 'k_norm'"),
            std::string::npos);
  EXPECT_NE(refusal(model("lora_llama3_1_8b", "  lora_attn_modules: q_proj\n")).find("wanted a list"),
            std::string::npos);
  EXPECT_NE(refusal(model("llama3_1_8b", "  max_batch: 3\n")).find("model.max_batch"), std::string::npos);
}

// Phi-3 and Phi-4 have one layer for q, k and v, and one for gate and up. torchtune splits both.
TEST_F(RecipeShape, TorchtunesPhiHasFusedLayers) {
  const auto targets = [&](const std::string& component, const std::string& layers) {
    return read("model:\n  _component_: torchtune.models." + component + "\n  lora_attn_modules: " + layers +
                "\n  apply_lora_to_mlp: true\n")
        .lora_target;
  };
  using Names = std::vector<std::string>;
  for (const char* component : {"phi3.lora_phi3_mini", "phi4.lora_phi4_14b", "phi4.qlora_phi4_14b"})
    EXPECT_EQ(targets(component, "[q_proj, v_proj, output_proj]"),
              (Names{"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}));
  EXPECT_NE(said_.find("recipe.yaml:3: lora_attn_modules: the model has one layer qkv_proj for q_proj, k_proj, v_proj, "
                       "so all of them are adapted"),
            std::string::npos)
      << said_;
  EXPECT_EQ(targets("phi3.lora_phi3_mini", "[q_proj, k_proj, v_proj]"),
            (Names{"qkv_proj", "gate_up_proj", "down_proj"}));
  EXPECT_EQ(said_.find("so all of them"), std::string::npos) << said_;
}

TEST_F(RecipeShape, TorchtunesLossesNameTheStage) {
  const std::string dpo = "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n";
  const Recipe recipe = read(kTorchtune + dpo + "  beta: 0.05\n  label_smoothing: 0.1\nlora_dropout: 0.1\n");
  EXPECT_EQ(recipe.stage, "dpo");
  EXPECT_EQ(recipe.pref_beta, 0.05);
  EXPECT_EQ(recipe.dpo_label_smoothing, 0.1);
  EXPECT_EQ(recipe.lora_dropout, 0.1) << "torchtune keeps dropout on";
  EXPECT_EQ(read(kTorchtune + dpo).pref_beta, 0.1);
  EXPECT_EQ(read(kTorchtune + "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n").stage, "sft");
  for (const char* other : {"torchtune.rlhf.loss.PPOLoss", "torchtune.modules.loss.ForwardKLLoss"})
    EXPECT_NE(refusal(kTorchtune + "loss:\n  _component_: " + other + "\n").find(std::string("the loss ") + other),
              std::string::npos);
}

TEST_F(RecipeShape, TorchtuneValidatesOnlyIfItIsAsked) {
  const std::string rows =
      "batch_size: 2\ndataset_val:\n  _component_: d\n  split: train[95%:]\nbatch_size_val: ${batch_size}\n";
  EXPECT_EQ(read(kTorchtune + "run_val_every_n_steps: null\n" + rows).eval_strategy, "no");
  EXPECT_NE(refusal(kTorchtune + "run_val_every_n_steps: 50\n" + rows).find("set eval_dataset, eval_strategy: steps"),
            std::string::npos);
}

using Texts = std::vector<std::string>;

// The rows may be in the recipe: a name on the hub or files, with the names of their columns.
TEST_F(RecipeShape, TorchtunesDataSetsAreEntries) {
  const auto sets = [&](const std::string& keys) { return read(kTorchtune + "dataset:\n" + keys).dataset; };
  const std::string chat = "  _component_: torchtune.datasets.chat_dataset\n  source: json\n";
  EXPECT_EQ(sets(chat + "  data_files: a.json\n  conversation_column: talk\n  conversation_style: openai\n"
                        "  split: train\n  packed: false\n"),
            Texts{R"({"file_name":"a.json","formatting":"openai","columns":{"messages":"talk"}})"});
  EXPECT_EQ(sets("  _component_: torchtune.datasets.instruct_dataset\n  source: maker/rows\n  name: en\n"
                 "  split: train[:10%]\n  column_map: {input: question, output: answer}\n"),
            Texts{R"({"hf_hub_url":"maker/rows","subset":"en","split":"train[:10%]",)"
                  R"("columns":{"prompt":"question","response":"answer"},"formatting":"alpaca"})"});
  EXPECT_EQ(sets("  _component_: torchtune.datasets.preference_dataset\n  source: json\n  data_files: [a, b]\n"
                 "  column_map: {chosen: good, rejected: bad}\n"),
            Texts{R"({"file_name":["a","b"],"columns":{"chosen":"good","rejected":"bad"},"ranking":true})"});
  const Recipe prompted = read(kTorchtune + "dataset:\n" + chat + "  data_files: a\n  new_system_prompt: Be kind.\n");
  EXPECT_EQ(prompted.default_system, "Be kind.");
  EXPECT_EQ(prompted.dataset, Texts{R"({"file_name":"a","drop_system":true})"});
  const Recipe texts = read(kTorchtune +
                            "dataset:\n  _component_: torchtune.datasets.text_completion_dataset\n  source: text\n"
                            "  data_files: a.txt\n  column: text\n  add_eos: true\n");
  EXPECT_EQ(texts.stage, "pt");
  EXPECT_FALSE(texts.packing);
  EXPECT_EQ(texts.dataset, Texts{R"({"file_name":"a.txt","columns":{"text":"text"},"formatting":"text"})"});
  const std::string list = "  - _component_: torchtune.datasets.chat_dataset\n    source: maker/";
  EXPECT_EQ(sets(list + "a\n" + list + "b\n"), (Texts{R"({"hf_hub_url":"maker/a"})", R"({"hf_hub_url":"maker/b"})"}));
  EXPECT_TRUE(sets("  _component_: torchtune.datasets.samsum_dataset\n").empty());
  EXPECT_NE(said_.find("recipe.yaml:6: dataset: Fettle does not know the rows of samsum_dataset; set dataset"),
            std::string::npos)
      << said_;
}

TEST_F(RecipeShape, TorchtunesDataSetsThatCannotBeReadAreRefused) {
  const std::string start = kTorchtune + "dataset:\n  _component_: torchtune.datasets.chat_dataset\n";
  const std::pair<const char*, const char*> cases[] = {
      {"  source: json\n", "recipe.yaml:7: dataset: source: json needs data_files"},
      {"  source: a/b\n  filter_fn: f\n", "recipe.yaml:8: dataset.filter_fn is not available"},
      {"  source: a/b\n  conversation_style: alpaca\n", "found 'alpaca', wanted sharegpt or openai"},
      {"  source: a/b\n  column_map: {input: a}\n", "dataset.column_map of chat_dataset is not available"},
      {"  source: json\n  data_files: {train: a}\n", "dataset.data_files: found a map"}};
  for (const auto& [keys, said] : cases) EXPECT_NE(refusal(start + keys).find(said), std::string::npos) << keys;
}

// The keys of the recipe's own data set say nothing about other rows, except how they are trained.
TEST_F(RecipeShape, TheCommandReplacesTorchtunesDataSet) {
  const std::string own = kTorchtune +
                          "dataset:\n  _component_: torchtune.datasets.chat_dataset\n  split: train[:95%]\n"
                          "  filter_fn: f\n  packed: true\n  train_on_input: true\n";
  for (const char* name : {"dataset=r.jsonl", "dataset_name=r.jsonl"}) {
    const Recipe recipe = read(own, {name});
    EXPECT_EQ(recipe.dataset, Texts{"r.jsonl"}) << name;
    EXPECT_TRUE(recipe.packing && recipe.train_on_prompt) << name;
  }
  EXPECT_FALSE(read(own, {"dataset=r.jsonl", "dataset.packed=false"}).packing);
}

// As in torchtune, such an override says nothing about the other keys.
TEST_F(RecipeShape, TheCommandReplacesOneKeyOfTorchtunesDataSet) {
  const std::string own = kTorchtune +
                          "dataset:\n  _component_: torchtune.datasets.chat_dataset\n  source: maker/rows\n"
                          "  split: train[:95%]\n  conversation_style: openai\n  new_system_prompt: Be kind.\n";
  const Recipe other = read(own, {"dataset.source=maker/other"});
  EXPECT_EQ(other.default_system, "Be kind.");
  EXPECT_EQ(other.dataset,
            Texts{R"({"hf_hub_url":"maker/other","split":"train[:95%]","drop_system":true,"formatting":"openai"})"});
  const Recipe files = read(own, {"dataset.source=json", "dataset.data_files=[a, b]", "dataset.split=null",
                                  "dataset.new_system_prompt=null", "dataset.packed=true"});
  EXPECT_EQ(files.dataset, Texts{R"({"file_name":["a","b"],"formatting":"openai"})"});
  EXPECT_EQ(files.default_system, "");
  EXPECT_TRUE(files.packing);
  EXPECT_THROW(read(own, {"dataset.filter_fn=f"}), UserError);
  EXPECT_EQ(read(own, {"dataset=r.jsonl"}).dataset, Texts{"r.jsonl"});
}

// torchtune/datasets/_alpaca.py: train_on_input is true by default, and only there.
TEST_F(RecipeShape, TorchtunesAlpacaSetsTrainThePrompts) {
  const std::string alpaca = kTorchtune + "dataset:\n  _component_: torchtune.datasets.alpaca_";
  const Recipe cleaned = read(alpaca + "cleaned_dataset\n  split: train[:95%]\n");
  EXPECT_TRUE(cleaned.train_on_prompt);
  EXPECT_EQ(cleaned.dataset, Texts{R"({"hf_hub_url":"yahma/alpaca-cleaned","split":"train[:95%]"})"});
  EXPECT_NE(said_.find("recipe.yaml:6: alpaca_cleaned_dataset puts Alpaca's text around each prompt"),
            std::string::npos)
      << said_;
  EXPECT_EQ(read(alpaca + "dataset\n").dataset, Texts{R"({"hf_hub_url":"tatsu-lab/alpaca"})"});
  EXPECT_TRUE(read(alpaca + "dataset\n", {"dataset=r.jsonl"}).train_on_prompt);
  EXPECT_FALSE(read(alpaca + "dataset\n  train_on_input: false\n").train_on_prompt);
  EXPECT_FALSE(
      read(kTorchtune + "dataset:\n  _component_: torchtune.datasets.chat_dataset\n  source: a/b\n").train_on_prompt);
}

// PyTorch calls AMD's GPUs `cuda`, too.
TEST_F(RecipeShape, TorchtunesDeviceCudaIsAnyGpu) {
  EXPECT_EQ(read(kTorchtune + "device: cuda\n").plugin, "");
  EXPECT_EQ(read(kTorchtune + "device: cuda:1\n").plugin, "");
  EXPECT_EQ(read(kTorchtune + "device: cpu\n", {"device=cuda"}).plugin, "");
  EXPECT_EQ(read(kTorchtune + "device: cuda\n", {"plugin=cuda"}).plugin, "cuda");
  EXPECT_EQ(read(kTorchtune + "device: cpu\n").plugin, "cpu");
}

TEST_F(RecipeShape, TorchtunesReferencesToOtherKeysAreResolved) {
  const std::string start = kTorchtune + "exp_name: first\nbase: /tmp\noutput_dir: ${base}/out/${exp_name}\n";
  EXPECT_EQ(read(start).output_dir, "/tmp/out/first");
  EXPECT_EQ(read(start, {"exp_name=second"}).output_dir, "/tmp/out/second");
  EXPECT_EQ(read(kTorchtune + "sizes:\n  rows: 3\nbatch_size: ${sizes.rows}\nsizes_of: ${sizes.rows}\n"
                              "run_name: ${sizes_of}\nprofiler:\n  a: ${run_name}\n",
                 {})
                .per_device_train_batch_size,
            3);
  EXPECT_NE(refusal(start + "run_name: ${missing}\n").find("recipe.yaml:8: ${missing}: the recipe has no key"),
            std::string::npos);
  EXPECT_NE(refusal(start + "run_name: ${env:HOME}\n").find("recipe.yaml:8: ${env:HOME} is a function"),
            std::string::npos);
  EXPECT_NE(refusal(start + "run_name: ${run_name}\n").find("refers to itself"), std::string::npos);
  EXPECT_NE(refusal(start + "run_name: ${base\n").find("has no } after ${"), std::string::npos);
}

// A reference to a key does not switch off what Fettle says about the key.
TEST_F(RecipeShape, TorchtunesReferencesKeepTheMeaningOfTheirKeys) {
  for (const char* keys : {"max_steps_per_epoch: 10\nrun_name: run-${max_steps_per_epoch}\n",
                           "run_val_every_n_steps: 10\nlog_every_n_steps: ${run_val_every_n_steps}\n"}) {
    const std::string key = std::string(keys).substr(0, std::string_view(keys).find(':'));
    EXPECT_NE(refusal(kTorchtune + keys).find(":5: " + key + " is not available"), std::string::npos) << key;
  }
  read(kTorchtune + "optimizer_in_bwd: true\nrun_name: ${optimizer_in_bwd}\n");
  EXPECT_NE(said_.find("optimizer_in_bwd has no effect here: the step is one program"), std::string::npos) << said_;
}

TEST_F(RecipeShape, TorchtunesReferenceModelMayBeAnother) {
  const std::string both = kTorchtune + "checkpointer:\n  checkpoint_dir: a\nref_checkpointer:\n  model_type: LLAMA3\n";
  EXPECT_EQ(read(both + "  checkpoint_dir: b\n").ref_model, "b");
  EXPECT_EQ(read(both + "  checkpoint_dir: a\n").ref_model, "") << "the model at the start of the run";
  EXPECT_EQ(said_.find("ref_checkpointer"), std::string::npos) << said_;
  EXPECT_EQ(read(both, {"ref_checkpointer.checkpoint_dir=c"}).ref_model, "c");
  for (const char* key : {"checkpointer.checkpoint_dir", "model_name_or_path"}) {
    const std::vector<std::string> other = {std::string(key) + "=b"};
    EXPECT_EQ(read(both + "  checkpoint_dir: a\n", other).ref_model, "a") << "the reference of the file stays";
    EXPECT_EQ(read(both + "  checkpoint_dir: b\n", other).ref_model, "") << "the override names the same model";
    const Recipe follows = read(both + "  checkpoint_dir: ${checkpointer.checkpoint_dir}\n", other);
    EXPECT_EQ(follows.model_name_or_path, "b");
    EXPECT_EQ(follows.ref_model, "") << "the reference follows the model";
  }
}

// torchtune keeps all weights in the recipe's dtype.
TEST_F(RecipeShape, TorchtunesBf16IsMoreThanTheComputation) {
  const std::string full = "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\ndtype: bf16\n";
  EXPECT_FALSE(read(full).pure_bf16);
  EXPECT_NE(said_.find("recipe.yaml:3: dtype: torchtune keeps the trained weights in bfloat16"), std::string::npos);
  EXPECT_TRUE(read(full, {"pure_bf16=true"}).pure_bf16);
  EXPECT_EQ(said_.find("dtype: torchtune"), std::string::npos) << said_;
  read(kTorchtune + "dtype: bf16\n");
  EXPECT_EQ(said_.find("dtype: torchtune"), std::string::npos) << said_;
}

TEST_F(RecipeShape, TorchtunesRarerKeysAreRead) {
  for (const char* name : {"PagedAdamW", "AdamW"}) {
    const Recipe adam = read(kTorchtune + "optimizer:\n  _component_: bitsandbytes.optim." + name + "\n");
    EXPECT_EQ(adam.optim, "adamw_torch");
    EXPECT_EQ(adam.weight_decay, 0.01);
  }
  const Recipe tp = read(kTorchtune +
                         "low_cpu_ram: false\noptimizer_in_bwd: false\ntensor_parallel_dim: 2\ntensor_parallel_plan:\n "
                         " _component_: plan\n"
                         "data_parallel_shard_dim: -1\ndata_parallel_replicate_dim: 1\n");
  EXPECT_EQ(tp.mesh, (std::map<std::string, int64_t>{{"tp", 2}}));
  EXPECT_EQ(said_.find("low_cpu_ram"), std::string::npos) << said_;
  EXPECT_EQ(said_.find("optimizer_in_bwd"), std::string::npos) << said_;
  read(kTorchtune + "optimizer_in_bwd: true\ncustom_sharded_layers: [output]\n");
  EXPECT_NE(said_.find("optimizer_in_bwd has no effect here: the step is one program"), std::string::npos) << said_;
  EXPECT_NE(said_.find("custom_sharded_layers has no effect here"), std::string::npos) << said_;
  EXPECT_NE(refusal(kTorchtune + "max_steps_per_epoch: 10\n").find("set max_steps to this number x the epochs"),
            std::string::npos);
  read(kTorchtune + "max_steps_per_epoch: null\n");
  for (const char* on : {"true", "True"})
    EXPECT_EQ(read(kTorchtune + "enable_activation_checkpointing: " + on + "\n").gradient_checkpointing, "full") << on;
  for (const char* off : {"false", "False"})
    EXPECT_EQ(read(kTorchtune + "enable_activation_checkpointing: " + off + "\n").gradient_checkpointing, "none")
        << off;
  read(kTorchtune + "enable_activation_offloading: False\n");
  EXPECT_EQ(said_.find("enable_activation_offloading"), std::string::npos) << said_;
  read(kTorchtune + "enable_activation_offloading: True\n");
  EXPECT_NE(said_.find("enable_activation_offloading has no effect here: activations are"), std::string::npos) << said_;
  read("model:\n  _component_: torchtune.models.phi4.phi4_14b\ntokenizer:\n  merges_path: merges.txt\n");
  EXPECT_NE(said_.find("tokenizer.merges_path has no effect here: the tokenizer is read"), std::string::npos) << said_;
}

}  // namespace
}  // namespace fettle
