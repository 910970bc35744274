#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "config/key_help.h"
#include "config/key_values.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "config/recipe.h"
#include "paths.h"

namespace fettle {
namespace {

class RecipeFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("fettle_recipe_" + std::to_string(getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Recipe read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    std::ofstream(path_) << yaml;
    testing::internal::CaptureStderr();
    Recipe recipe = read_recipe(path_, overrides);
    messages_ = testing::internal::GetCapturedStderr();
    return recipe;
  }

  std::filesystem::path path_;
  std::string messages_;
};

using StringList = std::vector<std::string>;
using Mesh = std::map<std::string, int64_t>;

constexpr const char* kLoraSft = R"(### model
model_name_or_path: Qwen/Qwen3-4B-Instruct
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: all

### dataset
dataset: identity,alpaca_en_demo
template: qwen3_nothink
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
dataloader_num_workers: 4

### output
output_dir: saves/qwen3-4b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null

### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
)";

constexpr const char* kPretrain = R"(model_name_or_path: models/base
stage: pt
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: c4_demo
cutoff_len: 512
overwrite_cache: true
output_dir: saves/pretrain
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
warmup_steps: 0.05
fsdp_config:
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
bf16: auto
)";

TEST_F(RecipeFile, ReadsLlamaFactoryLoraSft) {
  Recipe r = read(kLoraSft);
  EXPECT_EQ(r.model_name_or_path, "Qwen/Qwen3-4B-Instruct");
  EXPECT_EQ(r.stage, "sft");
  EXPECT_EQ(r.finetuning_type, "lora");
  EXPECT_EQ(r.lora_rank, 16);
  EXPECT_EQ(r.effective_lora_alpha(), 32);
  EXPECT_EQ(r.lora_target, StringList{"all"});
  EXPECT_EQ(r.dataset, (StringList{"identity", "alpaca_en_demo"}));
  EXPECT_EQ(r.template_name, "qwen3_nothink");
  EXPECT_EQ(r.max_samples, 1000);
  EXPECT_EQ(r.output_dir, "saves/qwen3-4b/lora/sft");
  EXPECT_EQ(r.save_steps, 500);
  EXPECT_TRUE(r.overwrite_output_dir);
  EXPECT_EQ(r.report_to, StringList{"none"});
  EXPECT_EQ(r.gradient_accumulation_steps, 8);
  EXPECT_DOUBLE_EQ(r.learning_rate, 1e-4);
  EXPECT_DOUBLE_EQ(r.num_train_epochs, 3);
  EXPECT_EQ(r.lr_scheduler_type, "cosine");
  EXPECT_DOUBLE_EQ(r.warmup_ratio, 0.1);
  EXPECT_TRUE(r.bf16);
  EXPECT_EQ(r.resume_from_checkpoint, "");
  EXPECT_DOUBLE_EQ(r.val_size, 0.1);
  EXPECT_EQ(r.per_device_eval_batch_size, 1);
  EXPECT_EQ(r.eval_strategy, "steps");
  EXPECT_FALSE(r.packing);
  EXPECT_NE(messages_.find("no effect here: trust_remote_code, do_train, preprocessing_num_workers, "
                           "dataloader_num_workers, ddp_timeout"),
            std::string::npos)
      << messages_;
}

TEST_F(RecipeFile, ReadsLlamaFactoryPretraining) {
  Recipe r = read(kPretrain);
  EXPECT_EQ(r.stage, "pt");
  EXPECT_FALSE(r.places.has("packing")) << "the stage turns it on";
  EXPECT_EQ(r.gradient_checkpointing, "full");
  EXPECT_DOUBLE_EQ(r.warmup_steps, 0.05);
  EXPECT_TRUE(r.bf16);
  EXPECT_NE(messages_.find("deepspeed has no effect here: weights and optimizer state are sharded"), std::string::npos)
      << messages_;
  EXPECT_FALSE(read("stage: pt\npacking: false\n").packing);
}

TEST_F(RecipeFile, DeepSpeedsNvmeBecomesOffloadDir) {
  const std::string full = "finetuning_type: full\n";
  const std::string state =
      R"(deepspeed: {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})"
      "\n";
  const Recipe nvme = read(full + state);
  EXPECT_EQ(nvme.offload_dir, "/nvme");
  EXPECT_FALSE(nvme.offload_optimizer || nvme.offload_param);
  const Recipe weights =
      read(R"(deepspeed: {"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/nvme"}}})"
           "\n");
  EXPECT_EQ(weights.offload_dir, "");
  EXPECT_TRUE(weights.offload_param && !weights.offload_dir_weights);
  // With 16-bit compute, the float32 weights follow. A run without such weights gets no key that it would refuse.
  const std::string all =
      R"(deepspeed: {"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/nvme"},)"
      R"( "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})"
      "\n";
  for (const auto& [dtype, moves] : {std::pair{"bf16", true}, {"fp16", true}, {"pure_bf16", false}, {"tf32", false}}) {
    const Recipe both = read(full + all + dtype + ": true\n");
    EXPECT_TRUE(both.offload_dir == "/nvme" && both.offload_param);
    EXPECT_EQ(both.offload_dir_weights, moves) << dtype;
  }
  EXPECT_FALSE(read(full + all + "bf16: true\noffload_dir_weights: false\n").offload_dir_weights);
  // Axolotl's defaults are full tuning in bf16.
  const Recipe axolotl = read("base_model: m\nmicro_batch_size: 2\n" + all);
  EXPECT_TRUE(axolotl.offload_dir == "/nvme" && axolotl.offload_dir_weights);
  const Recipe accelerate =
      read(full +
           "accelerate_config: {mixed_precision: bf16, deepspeed_config: {offload_optimizer_device: nvme, "
           "offload_optimizer_nvme_path: /nvme, offload_param_device: nvme}}\n");
  EXPECT_EQ(accelerate.offload_dir, "/nvme");
  EXPECT_TRUE(accelerate.offload_dir_weights);
  // Without a folder, host memory is used.
  const Recipe nowhere = read(full + R"(deepspeed: {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})"
                                     "\n");
  EXPECT_TRUE(nowhere.offload_optimizer && nowhere.offload_dir.empty());
  // offload_dir is neither for adapters nor for rules without state, so host memory is used too.
  for (const std::string& other : {std::string("finetuning_type: lora\n"), full + "optim: sgd\n"}) {
    const Recipe host = read(other + all + "bf16: true\n");
    EXPECT_TRUE(host.offload_optimizer && host.offload_param) << other;
    EXPECT_TRUE(host.offload_dir.empty() && !host.offload_dir_weights) << other;
    EXPECT_NE(messages_.find("asks for offload_dir, which does not work with "), std::string::npos) << messages_;
  }
  EXPECT_EQ(read(full + state + "optim: sgd\noptim_args: momentum=0.9\n").offload_dir, "/nvme");
  // The recipe's own folder stays.
  EXPECT_EQ(read(full + state + "offload_dir: /disk\n").offload_dir, "/disk");
}

TEST_F(RecipeFile, DeepSpeedAndFsdpFilesThatAskForOffloadGetIt) {
  const auto folder = path_.parent_path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  struct Case {
    std::string recipe;
    bool optimizer, param;
  };
  const std::string both =
      R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}}})";
  const std::string one =
      R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}})";
  for (const Case& c : std::vector<Case>{
           {"deepspeed: " + write("fettle_both.json", both), true, true},
           {"deepspeed: fettle_both.json", true, true},  // a relative path: it starts from the recipe's folder
           {"deepspeed: " + write("fettle_one.json", one), true, false},
           {"deepspeed: " + write("fettle_old.json", R"({"zero_optimization": {"cpu_offload": true}})"), true, false},
           {"deepspeed: " + write("fettle_none.json", R"({"zero_optimization": {"stage": 3}})"), false, false},
           {"deepspeed: " + both, true, true},
           {"deepspeed:", false, false},
           {"fsdp: full_shard auto_wrap offload", true, true},
           {"fsdp: [full_shard, offload]", true, true},
           {"fsdp: full_shard auto_wrap", false, false},
           {"fsdp_config: {fsdp_offload_params: true}", true, true},
           {"fsdp_config: " + write("fettle_fsdp.yaml", "fsdp_config:\n  fsdp_offload_params: true\n"), true, true},
           {"fsdp_config: {offload_params: false}", false, false},
           {"fsdp_cpu_offload: true", true, true},
           {"fsdp_offload_params: false", false, false},
           {"offload_param: false\ndeepspeed: " + both, true, false},
           {"deepspeed: " + both + "\noffload_optimizer: false", false, true},
       }) {
    const Recipe r = read(c.recipe + "\n");
    EXPECT_EQ(r.offload_optimizer, c.optimizer) << c.recipe;
    EXPECT_EQ(r.offload_param, c.param) << c.recipe;
    EXPECT_EQ(messages_.find(" to on") != std::string::npos, c.optimizer || c.param) << c.recipe << '\n' << messages_;
  }
  read("deepspeed: none_of_this_name.json\n");
  EXPECT_NE(messages_.find("none_of_this_name.json. If that file turns offload on, set offload_optimizer"),
            std::string::npos)
      << messages_;
}

TEST_F(RecipeFile, RemembersWhereKeysWereSet) {
  Recipe r = read("stage: sft\nlora_r: 4\n", {"bf16=true"});
  EXPECT_EQ(r.where("lora_rank"), path_.string() + ":2");
  EXPECT_EQ(r.where("bf16"), "override 'bf16=true'");
  EXPECT_EQ(r.where("seed"), path_.string());
}

TEST_F(RecipeFile, OverridesGoOverTheFileInOrder) {
  Recipe r = read("lora_rank: 4\nmesh: {fsdp: 8}\nprompt: x\n",
                  {"lora_rank=8", "lora_rank=32", "--learning_rate=3e-4", "mesh.tp=2", "prompt=What: is 'this'?",
                   "dataset=[a.jsonl, b.jsonl]", "template=null"});
  EXPECT_EQ(r.lora_rank, 32);
  EXPECT_DOUBLE_EQ(r.learning_rate, 3e-4);
  EXPECT_EQ(r.mesh, (Mesh{{"fsdp", 8}, {"tp", 2}}));
  EXPECT_EQ(r.prompt, "What: is 'this'?");
  EXPECT_EQ(r.dataset, (StringList{"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(r.template_name, "");
}

TEST_F(RecipeFile, ReadsEverySpellingOfBools) {
  for (std::string yes : {"true", "True", "TRUE", "yes", "Yes", "on", "ON", "y", "1", "\"true\""}) {
    EXPECT_TRUE(read("bf16: " + yes + "\n").bf16) << yes;
  }
  for (std::string no : {"false", "False", "no", "NO", "off", "n", "0"}) {
    EXPECT_FALSE(read("plot_loss: " + no + "\n").plot_loss) << no;
  }
}

TEST_F(RecipeFile, ReadsValuesThatAreSpelledAsBools) {
  EXPECT_EQ(read("gradient_checkpointing: yes\n").gradient_checkpointing, "full");
  EXPECT_EQ(read("gradient_checkpointing: False\n").gradient_checkpointing, "none");
  EXPECT_EQ(read("gradient_checkpointing: dots\n").gradient_checkpointing, "dots");
  EXPECT_EQ(read("gradient_checkpointing: 50%\n").gradient_checkpointing, "50%");
  EXPECT_EQ(read("disable_gradient_checkpointing: true\n").gradient_checkpointing, "none");
  EXPECT_EQ(read("eval_strategy: no\n").eval_strategy, "no");
  EXPECT_EQ(read("evaluation_strategy: false\n").eval_strategy, "no");
  EXPECT_EQ(read("resume_from_checkpoint: True\n").resume_from_checkpoint, "true");
  EXPECT_EQ(read("resume_from_checkpoint: false\n").resume_from_checkpoint, "");
  EXPECT_EQ(read("resume_from_checkpoint: out/checkpoint-5\n").resume_from_checkpoint, "out/checkpoint-5");
  EXPECT_EQ(read("compile_cache: off\n").compile_cache, "off");
  EXPECT_EQ(read("data_cache: off\n").data_cache, "off");
  EXPECT_EQ(read("prompt: yes\n").prompt, "yes");
}

TEST_F(RecipeFile, ReadsNumbers) {
  EXPECT_EQ(read("max_steps: 1_000\n").max_steps, 1000);
  EXPECT_EQ(read("max_steps: 1e3\n").max_steps, 1000);
  EXPECT_DOUBLE_EQ(read("learning_rate: 2e-5\n").learning_rate, 2e-5);
  EXPECT_DOUBLE_EQ(read("learning_rate: .001\n").learning_rate, 0.001);
  EXPECT_DOUBLE_EQ(read("val_size: 200\n").val_size, 200);
  EXPECT_DOUBLE_EQ(read("lora_alpha: 16\n").effective_lora_alpha(), 16);
}

TEST_F(RecipeFile, ReadsSharesOfDataSets) {
  const std::string two = "dataset: a,b\nmix_strategy: interleave_under\n";
  EXPECT_EQ(read(two + "interleave_probs: 0.7, 0.3\n").interleave_weights(), (std::vector<double>{0.7, 0.3}));
  EXPECT_EQ(read(two + "interleave_probs: [3, 1]\n").interleave_weights(), (std::vector<double>{3, 1}));
  EXPECT_TRUE(read(two).interleave_weights().empty());
  EXPECT_EQ(read("tokenized_path: rows\nstreaming: true\n").data_cache, "rows");
}

TEST_F(RecipeFile, ReadsMeshes) {
  EXPECT_EQ(read("mesh: {fsdp: 4, mp: 2}\n").mesh, (Mesh{{"fsdp", 4}, {"tp", 2}}));
  EXPECT_EQ(read("mesh: fsdp=4,tp=2\n").mesh, (Mesh{{"fsdp", 4}, {"tp", 2}}));
  EXPECT_TRUE(read("mesh: auto\ndevice_count: 8\n").mesh_is_auto());
  EXPECT_EQ(read("mesh: auto\n", {"mesh.tp=2"}).mesh, (Mesh{{"tp", 2}}));
  EXPECT_NE(to_yaml(read("mesh: auto\n")).find("mesh: auto\n"), std::string::npos);
  EXPECT_EQ(read("dp_shard_size: 4\ntensor_parallel_size: 2\n").mesh, (Mesh{{"fsdp", 4}, {"tp", 2}}));
  for (const char* one : {"dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size",
                          "ici_fsdp_parallelism", "ici_tensor_parallelism"})
    EXPECT_TRUE(read(std::string(one) + ": 1\n").mesh.empty()) << one << " of 1 leaves all devices on fsdp";
  EXPECT_EQ(read("sharding: {mlp: tp}\n").sharding.at("mlp"), "tp");
}

TEST_F(RecipeFile, ReadsAxolotl) {
  Recipe r = read(R"(base_model: m
adapter: lora
lora_r: 32
lora_alpha: 16
lora_target_modules: [q_proj, v_proj]
datasets:
  - path: data/a.jsonl
    type: chat_template
  - path: data/b.jsonl
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
num_epochs: 4
lr_scheduler: cosine
optimizer: adamw_torch_fused
train_on_inputs: false
val_set_size: 0.05
bf16: auto
load_in_8bit: false
flash_attention: true
special_tokens:
)");
  EXPECT_EQ(r.model_name_or_path, "m");
  EXPECT_EQ(r.lora_rank, 32);
  EXPECT_EQ(r.lora_target, (StringList{"q_proj", "v_proj"}));
  EXPECT_EQ(r.dataset, (StringList{"data/a.jsonl", "data/b.jsonl"}));
  EXPECT_EQ(r.cutoff_len, 4096);
  EXPECT_TRUE(r.packing);
  EXPECT_EQ(r.per_device_train_batch_size, 2);
  EXPECT_DOUBLE_EQ(r.num_train_epochs, 4);
  EXPECT_EQ(r.optim, "adamw_torch");
  EXPECT_DOUBLE_EQ(r.val_size, 0.05);
}

TEST_F(RecipeFile, ReadsNestedNames) {
  Recipe r = read(R"(model: m
lora_parameters:
  rank: 8
  dropout: 0.1
  keys: [self_attn.q_proj]
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-4
  weight_decay: 0.01
  fused: true
tokenizer:
  path: x/tokenizer.model
  max_seq_len: 1024
iters: 600
mask_prompt: false
grad_checkpoint: true
)");
  EXPECT_EQ(r.model_name_or_path, "m");
  EXPECT_DOUBLE_EQ(r.lora_dropout, 0.1);
  EXPECT_EQ(r.lora_target, StringList{"self_attn.q_proj"});
  EXPECT_EQ(r.optim, "adamw_torch");
  EXPECT_DOUBLE_EQ(r.learning_rate, 2e-4);
  EXPECT_DOUBLE_EQ(r.weight_decay, 0.01);
  EXPECT_EQ(r.cutoff_len, 1024);
  EXPECT_EQ(r.max_steps, 600);
  EXPECT_TRUE(r.train_on_prompt);
  EXPECT_EQ(r.gradient_checkpointing, "full");
}

TEST_F(RecipeFile, ReadsScheduleArguments) {
  Recipe r = read("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs:\n  min_lr_rate: 0.1\n");
  EXPECT_DOUBLE_EQ(r.min_lr_rate.value(), 0.1);
  r = read("lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 20, min_lr_rate: 0.2}\n");
  EXPECT_EQ(r.lr_num_decay_steps, 20);
}

TEST_F(RecipeFile, NeutralValuesOfMissingFeaturesAreFine) {
  Recipe r = read(
      "neftune_noise_alpha: null\nlr_scheduler_kwargs: null\nuse_galore: no\nnum_beams: 1\nrepetition_penalty: 1.0\n");
  EXPECT_EQ(r.lora_rank, Recipe().lora_rank);
  EXPECT_EQ(messages_, "");
}

TEST_F(RecipeFile, TheSameKeyTwiceWithOneValueIsFine) {
  Recipe r = read("packing: true\nneat_packing: true\nwarmup_steps: 5\n");
  EXPECT_TRUE(r.packing);
}

TEST_F(RecipeFile, EmptyFilesGiveDefaults) {
  EXPECT_EQ(to_yaml(read("")), "");
  EXPECT_EQ(to_yaml(read("# only a comment\n")), "");
  EXPECT_EQ(read_recipe("", {"lora_rank=3"}).lora_rank, 3);
}

TEST_F(RecipeFile, YamlReadsBackTheSame) {
  Recipe first = read(kLoraSft, {"prompt=say \"hi\": now\n# or then", "mesh=fsdp=2,tp=4", "sharding={mlp: tp}",
                                 "learning_rate=0.000123456789", "report_to=[]", "default_system=null?",
                                 "resume_from_checkpoint=true", "lora_target=q_proj,v_proj", "packing=false"});
  std::string yaml = to_yaml(first);
  Recipe second = read(yaml);
  for (const Key& key : recipe_keys()) EXPECT_EQ(value_text(second, key), value_text(first, key)) << key.name;
  EXPECT_EQ(to_yaml(second), yaml);
  EXPECT_EQ(second.prompt, first.prompt);
  EXPECT_EQ(second.learning_rate, 0.000123456789);
}

TEST_F(RecipeFile, YamlKeepsPackingOffInPretraining) {
  EXPECT_EQ(to_yaml(read("stage: pt\npacking: false\n")), "stage: pt\npacking: false\n");
  EXPECT_EQ(to_yaml(read("stage: pt\n")), "stage: pt\n");
}

// fettle_run.json, the trackers and the YAML get the same keys. The board continues a run from them.
TEST_F(RecipeFile, CopiesHaveKeysWhoseAbsenceMeansSomethingElse) {
  for (const char* line : {"packing: false", "lora_dropout: 0", "cutoff_len: 2048", "use_modelscope: false",
                           "additional_target: []", "export_size: 5"}) {
    const std::string key = std::string(line).substr(0, std::string(line).find(':'));
    const Recipe recipe = read(std::string(line) + "\n");
    ASSERT_EQ(KeyValues(recipe).changed(key), false) << line;
    const nlohmann::json copy = KeyValues(recipe).changed_values();
    ASSERT_EQ(copy.size(), 1u) << copy;
    EXPECT_TRUE(read_recipe("", {key + "=" + copy[key].dump()}).places.has(key)) << copy;
    const Recipe again = read(to_yaml(recipe));
    EXPECT_TRUE(again.places.has(key)) << to_yaml(recipe);
    EXPECT_EQ(KeyValues(again).changed(key), false) << to_yaml(recipe);
  }
  EXPECT_EQ(KeyValues(read("stage: pt\nlora_rank: 8\n")).changed_values().dump(), R"({"stage":"pt"})");
}

// Access tokens must not be in changed_values(), which trackers and logs get, or in the output of `fettle convert`,
// which people paste.
TEST_F(RecipeFile, AccessTokensAreReadButNeverWritten) {
  const Recipe recipe = read("hub_token: hf_private\nseed: 7\n");
  EXPECT_EQ(recipe.hub_token, "hf_private");
  EXPECT_EQ(KeyValues(recipe).changed_values().dump(), R"({"seed":7})");
  const std::string yaml = to_yaml(recipe);
  EXPECT_EQ(yaml.find("hf_private"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("# hub_token is secret"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("HF_TOKEN"), std::string::npos) << yaml;
  EXPECT_EQ(read(yaml).seed, 7);
  for (const char* name : {"hub_token", "hf_hub_token", "ms_hub_token"}) {
    const Recipe given = read_recipe("", {std::string(name) + "=hf_private"});
    EXPECT_EQ(given.hub_token, "hf_private");
    EXPECT_EQ(given.where("hub_token").find("hf_private"), std::string::npos) << given.where("hub_token");
  }
}

TEST(KeyTable, NamesAndAliasesAreUnique) {
  std::map<std::string_view, std::string_view> owner;
  for (const Key& key : recipe_keys()) {
    std::vector<std::string_view> names = key.aliases;
    names.push_back(key.name);
    for (auto name : names) EXPECT_TRUE(owner.emplace(name, key.name).second) << name << " of " << key.name;
  }
}

TEST(KeyTable, EveryDefaultIsAllowed) {
  Recipe defaults;
  for (const Key& key : recipe_keys()) {
    std::string text = value_text(defaults, key);
    if (text.empty()) continue;
    EXPECT_NO_THROW(read_recipe("", {std::string(key.name) + "=" + text})) << key.name << "=" << text;
  }
}

TEST(KeyTable, HelpNamesEveryKey) {
  std::string text = recipe_reference_text({});
  for (const Key& key : recipe_keys()) {
    EXPECT_NE(text.find("\n  " + std::string(key.name) + " "), std::string::npos) << key.name;
  }
}

TEST(KeyTable, HelpOfSomeKeysIsPartOfTheHelpOfAll) {
  const std::string some = key_help({"lora_rank", "seed"}, {}), all = recipe_reference_text({});
  const size_t second = some.find("  seed ");
  ASSERT_NE(second, std::string::npos);
  EXPECT_NE(all.find("\n" + some.substr(0, second)), std::string::npos);
  EXPECT_NE(all.find("\n" + some.substr(second)), std::string::npos);
  EXPECT_EQ(some.find("lora_alpha "), std::string::npos);
  EXPECT_THROW(key_help({"lora_r"}, {}), InternalError);  // lora_r is an alias of lora_rank
}

TEST(KeyTable, HelpIsWrapped) {
  std::istringstream lines(recipe_reference_text({}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Nearest, FindsMisspeltNames) {
  std::vector<std::string_view> names = {"lora_rank", "lora_alpha", "learning_rate"};
  EXPECT_EQ(nearest("lora_rnak", names), "lora_rank");
  EXPECT_EQ(nearest("learningrate", names), "learning_rate");
  EXPECT_EQ(nearest("zzzzzzzzz", names), std::nullopt);
  names = {"peft", "image"};
  EXPECT_EQ(nearest("port", names), std::nullopt) << "half of its letters differ";
  EXPECT_EQ(nearest("pfet", names), "peft");
  EXPECT_EQ(nearest("imgae", names), "image");
  EXPECT_EQ(nearest("imag", names), "image");
}

TEST(RequireKeys, PassesWhenAllAreThere) {
  Recipe recipe = read_recipe("", {"model_name_or_path=m", "dataset=a"});
  EXPECT_NO_THROW(require_keys(recipe, {"model_name_or_path", "dataset"}, "train"));
}

// `fettle eval tune.yaml eval_dataset=held.jsonl` works although tune.yaml has val_size.
TEST_F(RecipeFile, TheCommandChoosesTheRowsToEvaluateOn) {
  const Recipe rows = read("val_size: 10\n", {"eval_dataset=held.jsonl"});
  EXPECT_EQ(rows.val_size, 0);
  EXPECT_EQ(rows.eval_dataset, std::vector<std::string>{"held.jsonl"});
  EXPECT_EQ(messages_, path_.string() + ":1: the command gives eval_dataset, so val_size does not count\n");
  const Recipe share = read("seed: 1\neval_dataset: held.jsonl\n", {"val_size=0.1"});
  EXPECT_EQ(share.val_size, 0.1);
  EXPECT_TRUE(share.eval_dataset.empty());
  EXPECT_EQ(messages_, path_.string() + ":2: the command gives val_size, so eval_dataset does not count\n");
}

}  // namespace
}  // namespace fettle
