// Tests the kinds of recipes that users of other tools have. Fettle reads each recipe with the meaning that it has in
// its tool.
#include <gtest/gtest.h>

#include "config/key_values.h"
#include "config/keys.h"
#include "recipe_shape.h"

namespace fettle {
namespace {

// Every recipe in LLaMA-Factory's first format has these keys.
const std::string kModel = "model_name_or_path: maker/model\ntrust_remote_code: true\n";
const std::string kRows =
    "dataset: one,two\ntemplate: qwen3_nothink\ncutoff_len: 2048\nmax_samples: 1000\npreprocessing_num_workers: 16\n"
    "dataloader_num_workers: 4\n";
const std::string kOutput =
    "output_dir: saves/x\nlogging_steps: 10\nsave_steps: 500\nplot_loss: true\noverwrite_output_dir: true\n"
    "save_only_model: false\nreport_to: none\n";
const std::string kSteps =
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\nnum_train_epochs: 3.0\n"
    "lr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\nddp_timeout: 180000000\nresume_from_checkpoint: null\n";

std::string tuning(const std::string& more) {
  return kModel + kRows + kOutput + kSteps + "stage: sft\ndo_train: true\n" + more;
}

TEST_F(RecipeShape, KindsOfTheFirstFormAreRead) {
  const std::string more[] = {
      "finetuning_type: lora\nlora_rank: 8\nlora_target: all\n",
      "finetuning_type: full\ndeepspeed: examples/deepspeed/ds_z3_config.json\n",
      "finetuning_type: freeze\nfreeze_trainable_layers: 8\nfreeze_trainable_modules: all\n",
      "finetuning_type: lora\nquantization_bit: 4\nquantization_method: bnb\ndouble_quantization: false\n",
      "finetuning_type: full\nuse_dft_loss: true\n",
      "finetuning_type: full\nuse_eaft_loss: true\neaft_alpha: 1.0\n",
      "finetuning_type: full\nuse_asft_loss: true\nasft_alpha: 0.05\n",
      "finetuning_type: full\nuse_muon: true\n",
      "finetuning_type: full\nfp8: true\nfp8_backend: torchao\nfp8_enable_fsdp_float8_all_gather: true\n",
      "finetuning_type: lora\nuse_kt: true\nkt_cpu_activation: retain\nkt_config: {kt_backend: AMXBF16}\n",
      "finetuning_type: lora\nray_num_workers: 4\nuse_ray: true\nresources_per_worker: {GPU: 1}\n",
      "finetuning_type: lora\nimage_max_pixels: 262144\nvideo_max_pixels: 16384\nfreeze_vision_tower: true\n",
      "finetuning_type: lora\npissa_init: true\npissa_iter: 16\npissa_convert: true\n",
      "finetuning_type: lora\nloraplus_lr_ratio: 16.0\n",
      "finetuning_type: full\ntensor_model_parallel_size: 1\nsequence_parallel: false\npipeline_model_parallel_size: "
      "4\n"
      "bias_activation_fusion: true\napply_rope_fusion: true\nuse_distributed_optimizer: true\n"
      "overlap_param_gather: true\noverlap_grad_reduce: true\nmoe_grouped_gemm: true\n"
      "moe_token_dispatcher_type: alltoall\nexpert_model_parallel_size: 2\nrecompute_granularity: full\n",
  };
  for (const std::string& one : more) EXPECT_EQ(refusal(tuning(one)), "") << one;
}

// LlamaBoard writes these keys. It leaves out all other keys that are false or empty.
TEST_F(RecipeShape, LlamaBoardsRecipesAreRead) {
  const Recipe recipe = read(
      tuning("finetuning_type: lora\nenable_thinking: true\npacking: false\nuse_reentrant_gc: "
             "true\ndouble_quantization: true\n"
             "freeze_vision_tower: true\nfreeze_multi_modal_projector: true\nflash_attn: auto\noptim: adamw_torch\n"
             "include_num_input_tokens_seen: true\nmax_grad_norm: '1.0'\nimage_max_pixels: 589824\nvideo_max_pixels: "
             "65536\n"));
  EXPECT_EQ(recipe.enable_thinking, "true");
  EXPECT_EQ(read(tuning("finetuning_type: lora\nenable_thinking: false\n")).enable_thinking, "false");
}

TEST_F(RecipeShape, MissingMethodsAreRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"use_galore: true\n", "use_galore is not available"},
      {"use_badam: true\n", "use_badam is not available"},
      {"use_apollo: true\napollo_proj: svd\n", "apollo_proj: svd is not available"},
      {"mixture_of_depths: convert\n", "mixture_of_depths is not available"},
      {"finetuning_type: oft\n", "finetuning_type: oft is not available"},
      {"export_quantization_bit: 4\n", "export_quantization_bit is not available"},
      {"mixture_of_depths: convert\n", "mixture_of_depths is not available"},
  };
  for (const auto& [line, said] : cases) EXPECT_NE(refusal(tuning(line)).find(said), std::string::npos) << line;
}

TEST_F(RecipeShape, MegatronAndKTransformersKeysAreMapped) {
  const Recipe megatron =
      read(tuning("tensor_model_parallel_size: 4\nexpert_model_parallel_size: 1\nrecompute_granularity: full\n"
                  "mixed_precision: bf16_mixed\nuse_packed_sequences: false\n"));
  EXPECT_EQ(megatron.mesh, (std::map<std::string, int64_t>{{"tp", 4}}));
  EXPECT_EQ(megatron.gradient_checkpointing, "full");
  EXPECT_TRUE(read(tuning("use_kt: true\n")).offload_param);
  EXPECT_FALSE(read(tuning("use_kt: false\n")).offload_param);
  EXPECT_EQ(read(tuning("use_eaft_loss: true\n")).sft_loss, "eaft");
  EXPECT_EQ(read("stage: orpo\n").pref_loss, "orpo");
}

TEST_F(RecipeShape, AxolotlsIntervalsOfNoEpochsAndOddNumbers) {
  const std::string base = "base_model: maker/model\nsequence_len: 64\ndatasets:\n- path: r.jsonl\n";
  for (const char* odd : {".", "-", "e", "1e999"})
    EXPECT_NE(refusal(base + "saves_per_epoch: '" + odd + "'\n").find("wanted a number"), std::string::npos) << odd;
  EXPECT_EQ(refusal(base + "num_epochs: 0\nsaves_per_epoch: 2\n").find("inf"), std::string::npos);
}

TEST_F(RecipeShape, TheSecondFormOfLlamaFactory) {
  const std::string base =
      "model: maker/model\nmodel_class: llm\nkernel_config:\n  name: auto\nquant_config: null\ndist_config:\n"
      "  name: fsdp2\n  dcp_path: null\ntrain_dataset: rows.jsonl\noutput_dir: out\ncutoff_len: 2048\n"
      "learning_rate: 1.0e-4\nmax_steps: 10\nsample_backend: hf\nmax_new_tokens: 128\n";
  const Recipe full =
      read(base + "micro_batch_size: 2\nbatching_strategy: padding_free\nflash_attn: flash_attention_2\n");
  EXPECT_EQ(full.model_name_or_path, "maker/model");
  EXPECT_EQ(full.finetuning_type, "full");
  EXPECT_EQ(full.lr_scheduler_type, "constant");
  EXPECT_TRUE(full.bf16);
  EXPECT_FALSE(full.packing);
  EXPECT_EQ(full.per_device_train_batch_size, 2);
  EXPECT_NE(said_.find("read as a recipe of LLaMA-Factory v1"), std::string::npos) << said_;
  EXPECT_TRUE(read(base + "batching_strategy: dynamic_batching\n").packing);
  EXPECT_FALSE(read(base + "bf16: false\ncp_mode: ulysses\ncp_size: 2\n").bf16);
  EXPECT_EQ(read(base + "cp_size: 2\n").mesh, (std::map<std::string, int64_t>{{"sp", 2}}));
  const Recipe least = read("model: m\ntrain_dataset: rows.jsonl\nsave_steps:\n");
  EXPECT_EQ(least.finetuning_type, "full");
  EXPECT_EQ(least.per_device_train_batch_size, 1);
  EXPECT_EQ(least.weight_decay, 0.01);
  EXPECT_EQ(least.save_strategy, "no");
  EXPECT_EQ(read("model: m\ntrain_dataset: rows.jsonl\n", {"save_steps=5"}).save_strategy, "steps");

  const Recipe lora = read(base +
                           "peft_config:\n  name: lora\n  r: 16\n  lora_alpha: 32\n  target_modules: all\n"
                           "init_config:\n  name: init_on_rank0\n");
  EXPECT_EQ(lora.finetuning_type, "lora");
  EXPECT_EQ(lora.lora_rank, 16);
  EXPECT_EQ(lora.lora_alpha, 32);
  EXPECT_EQ(lora.lora_dropout, 0.05) << "the tool's default";
  EXPECT_EQ(read("model: m\npeft_config: {name: freeze, freeze_trainable_layers: 3, freeze_extra_modules: null}\n")
                .freeze_trainable_layers,
            3);
  EXPECT_EQ(
      read("model: m\npeft_config: {name: lora}\nquant_config: {name: bnb, quantization_bit: 4}\n").quantization_bit,
      4);
  const Recipe muon = read(
      "model: m\nmodel_class: llm\noptim_config:\n  name: muon\n  wd: 0.1\n  momentum: 0.9\n  nesterov: true\n"
      "  ns_steps: 5\n  adamw_betas: [0.9, 0.95]\n  adamw_eps: 1.0e-8\n");
  EXPECT_EQ(muon.optim, "muon");
  EXPECT_EQ(muon.weight_decay, 0.1);
  EXPECT_EQ(muon.adam_beta2, 0.95);
  EXPECT_EQ(muon.optim_args.at("momentum"), "0.9");
  const Recipe exported = read(
      "model: m\npeft_config: {name: lora, adapter_name_or_path: out, export_dir: merged, "
      "export_size: 5, infer_dtype: auto}\n");
  EXPECT_EQ(exported.adapter_name_or_path, std::vector<std::string>{"out"});
  EXPECT_EQ(exported.export_dir, "merged");
}

TEST_F(RecipeShape, AFileMayListDataSets) {
  const std::string list = write("sets.yaml",
                                 "own:\n  path: rows.jsonl\n  source: local\n  converter: alpaca\n  size: 50\n"
                                 "pairs:\n  path: maker/pairs\n  split: train\n  converter: pair\n");
  const Recipe recipe = read("train_dataset: " + list + "\n");
  ASSERT_EQ(recipe.dataset.size(), 2u);
  EXPECT_EQ(recipe.dataset[0], R"({"hf_hub_url":"rows.jsonl","num_samples":50})");
  EXPECT_EQ(recipe.dataset[1], R"({"hf_hub_url":"maker/pairs","split":"train","ranking":true})");
  EXPECT_EQ(read("dataset:\n- file_name: a.jsonl\n  formatting: sharegpt\n").dataset[0],
            R"({"file_name":"a.jsonl","formatting":"sharegpt"})");
}

const std::string kAxolotl =
    "base_model: maker/model\nload_in_8bit: false\nload_in_4bit: false\nsequence_len: 4096\nsample_packing: true\n"
    "val_set_size: 0.05\noutput_dir: ./outputs\nwandb_project:\nwandb_entity:\nwandb_watch:\nwandb_name:\n"
    "wandb_log_model:\ngradient_accumulation_steps: 4\nmicro_batch_size: 2\nnum_epochs: 2\noptimizer: adamw_bnb_8bit\n"
    "lr_scheduler: cosine\nlearning_rate: 2e-5\nbf16: auto\ntf32: false\ngradient_checkpointing: true\n"
    "resume_from_checkpoint:\nlogging_steps: 1\nattn_implementation: flash_attention_2\nwarmup_ratio: 0.1\n"
    "weight_decay: 0.0\n";

TEST_F(RecipeShape, AxolotlsRecipesKeepTheirMeaning) {
  const Recipe full = read(kAxolotl +
                           "datasets:\n- path: maker/rows\n  type: alpaca\n  split: train[:20%]\n"
                           "plugins:\n- axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
                           "saves_per_epoch: 1\nevals_per_epoch: 4\nspecial_tokens:\n  pad_token: <|end|>\n");
  EXPECT_EQ(full.finetuning_type, "full") << "without an adapter, Axolotl trains all weights";
  EXPECT_EQ(full.dataset[0], R"({"hf_hub_url":"maker/rows","split":"train[:20%]","formatting":"alpaca_prompt"})");
  EXPECT_EQ(full.save_strategy, "epoch");
  EXPECT_EQ(full.eval_strategy, "steps");
  EXPECT_NEAR(full.eval_steps, 0.125, 1e-9) << "four times in each of two epochs";
  EXPECT_EQ(full.overlength, "drop");
  EXPECT_EQ(full.eos_token, "");
  const Recipe lora = read(kAxolotl +
                           "adapter: qlora\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\n"
                           "datasets:\n- path: maker/rows\n  type: chat_template\n  field_messages: conversations\n"
                           "  message_property_mappings: {role: from, content: value}\nchat_template: gemma3\n"
                           "eot_tokens: [<end_of_turn>]\nspecial_tokens: {eos_token: </s>}\nsaves_per_epoch: 2\n");
  EXPECT_EQ(lora.finetuning_type, "lora");
  EXPECT_EQ(lora.quantization_bit, 4);
  EXPECT_EQ(lora.dataset[0], R"({"hf_hub_url":"maker/rows","formatting":"sharegpt","columns":{"messages":)"
                             R"("conversations","system":"system","tools":"tools"},"tags":)"
                             R"({"role_tag":"from","content_tag":"value"}})")
      << "usual names are kept too, because a row may have several lists";
  EXPECT_EQ(lora.template_name, "") << "the family's own";
  EXPECT_EQ(lora.eos_token, "</s>");
  EXPECT_NEAR(lora.save_steps, 0.25, 1e-9);
  EXPECT_EQ(lora.eval_strategy, "epoch");
  const Recipe own = read(kAxolotl +
                          "datasets:\n- path: r.jsonl\n  type: chat_template\n  field_messages: talk\n"
                          "  message_property_mappings: {role: who, content: what}\n"
                          "  roles: {user: [me], assistant: [bot]}\n");
  EXPECT_EQ(own.dataset[0], R"({"hf_hub_url":"r.jsonl","formatting":"sharegpt","columns":{"messages":"talk",)"
                            R"("system":"system","tools":"tools"},"tags":)"
                            R"({"role_tag":"who","content_tag":"what","user_tag":"me","assistant_tag":"bot"}})");
}

// Returns a recipe with one data set. `set` has the lines of the data set after its path.
std::string with_set(const std::string& set) {
  return kAxolotl + "datasets:\n- path: r.jsonl\n" + set;
}

TEST_F(RecipeShape, AxolotlsCustomPromptsAndTexts) {
  EXPECT_EQ(read(with_set("  type:\n    field_instruction: q\n    field_output: a\n    field_input:\n"
                          "    format: |-\n      [INST] {instruction}\n      {input} [/INST]\n"
                          "    no_input_format: \"[INST] {instruction} [/INST]\"\n    system_prompt: Be brief.\n"))
                .dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"alpaca_prompt","prompt":{"format":"[INST] {instruction}\n{input} )"
            R"([/INST]","no_input_format":"[INST] {instruction} [/INST]","system_prompt":"Be brief."},"columns":)"
            R"({"prompt":"q","response":"a"}})");
  EXPECT_NE(
      refusal(with_set("  type: {field_instruction: q, field_model: a}\n")).find("with field_model is not available"),
      std::string::npos);
  EXPECT_NE(refusal(with_set("  type: {field_prompt: q}\n") + "rl: dpo\n").find("not available for preference pairs"),
            std::string::npos);
  EXPECT_EQ(read(with_set("  type: completion\n")).dataset[0], R"({"hf_hub_url":"r.jsonl","formatting":"text"})");
  EXPECT_EQ(read(with_set("  type: completion\n  field: body\n")).dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"text","columns":{"text":"body"}})");
}

TEST_F(RecipeShape, AxolotlsPreferencePairs) {
  const std::string chat = "  type: chat_template.default\n";
  const std::string names = R"("system":"system","tools":"tools"},"tags":{"role_tag":"role","content_tag":"content"}})";
  EXPECT_EQ(read(with_set(chat + "  field_messages: conversation\n  field_chosen: chosen\n  field_rejected: rejected\n"
                                 "  message_property_mappings: {role: role, content: content}\n"
                                 "  roles: {system: [system], user: [user], assistant: [assistant]}\n") +
                 "rl: dpo\n")
                .dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"sharegpt","columns":{"messages":"conversation",)" + names);
  EXPECT_EQ(
      read(with_set(chat + "  field_messages: talk\n  field_chosen: good\n  field_rejected: poor\n") + "rl: dpo\n")
          .dataset[0],
      R"({"hf_hub_url":"r.jsonl","ranking":true,"columns":{"chosen":"good","rejected":"poor","messages":"talk"}})");
  EXPECT_EQ(read(with_set("  type: chat_template.argilla_chat\n  field_chosen: good\n") + "rl: dpo\n").dataset[0],
            R"({"hf_hub_url":"r.jsonl","ranking":true,"columns":{"chosen":"good"}})");
  EXPECT_EQ(read(with_set(chat + "  roles: {user: [me], assistant: [bot]}\n") + "rl: dpo\n").dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"sharegpt","columns":{"messages":"messages",)"
            R"("system":"system","tools":"tools"},"tags":)"
            R"({"role_tag":"role","content_tag":"content","user_tag":"me","assistant_tag":"bot"}})");
  EXPECT_EQ(
      read(with_set(chat + "  roles: {user: [user, human], assistant: [assistant, bot]}\n") + "rl: dpo\n").dataset[0],
      R"({"hf_hub_url":"r.jsonl","formatting":"sharegpt","columns":{"messages":"messages",)"
      R"("system":"system","tools":"tools"},"tags":)"
      R"({"role_tag":"role","content_tag":"content","assistant_tag":["assistant","bot"]}})");
}

TEST_F(RecipeShape, AxolotlsKeysOfAConversationTakeEffectOrAreRefused) {
  const std::string chat = "  type: chat_template\n";
  for (const char* neutral : {"  roles_to_train: [assistant]\n", "  roles_to_train: [gpt]\n", "  train_on_eos: turn\n",
                              "  drop_system_message: false\n",
                              "  field_thinking: thinking\n"
                              "  template_thinking_key: thinking\n",
                              "  chat_template: tokenizer_default\n"})
    EXPECT_EQ(read(with_set(chat + neutral)).dataset[0], "r.jsonl") << neutral;
  EXPECT_EQ(read(with_set(chat + "  drop_system_message: true\n")).dataset[0],
            R"({"hf_hub_url":"r.jsonl","drop_system":true})");
  EXPECT_EQ(read(with_set(chat + "  roles_to_train: []\n  message_field_training: train\n")).dataset[0],
            R"({"hf_hub_url":"r.jsonl","only_marked":true})");
  EXPECT_EQ(read(with_set(chat + "  field_tools: functions\n  revision: v2\n")).dataset[0],
            R"({"hf_hub_url":"r.jsonl@v2","columns":{"messages":"messages","tools":"functions"}})");
  EXPECT_EQ(read(with_set("  type: chat_template.argilla_chat\n  field_messages: talk\n") + "rl: dpo\n").dataset[0],
            "r.jsonl")
      << "these rows have whole conversations instead of a list";
  const std::pair<std::string, std::string> cases[] = {
      {"  roles_to_train: [user, assistant]\n", "roles_to_train: only the assistant's turns"},
      {"  roles_to_train: []\n", "roles_to_train: only the assistant's turns"},
      {"  train_on_eos: all\n", "train_on_eos: found 'all', wanted 'turn'"},
      {"  train_on_eot: none\n", "train_on_eot: found 'none', wanted 'turn'"},
      {"  field_thinking: thought\n", "field_thinking is thought, but template_thinking_key is reasoning_content"},
      {"  message_property_mappings: {role: from, content: value, tool_calls: calls}\n",
       "message_property_mappings.tool_calls: only role and content"},
  };
  for (const auto& [line, said] : cases)
    EXPECT_NE(refusal(with_set(chat + line)).find(said), std::string::npos) << line;
}

TEST_F(RecipeShape, AnEntryIsPrintedInSingleQuotes) {
  const Recipe recipe = read(with_set("  type: chat_template\n  drop_system_message: true\n"));
  EXPECT_EQ(value_text(recipe, *find_key("dataset")), R"(['{"hf_hub_url":"r.jsonl","drop_system":true}'])");
  EXPECT_EQ(read("model_name_or_path: m\ndataset: " + value_text(recipe, *find_key("dataset")) + "\n").dataset,
            recipe.dataset);
}

TEST_F(RecipeShape, KeysOfAxolotlThatChangeNoResult) {
  const Recipe recipe = read(with_set("  type: chat_template\n") +
                             "flex_attention: true\nbatch_flattening: true\ngc_steps: 10\nlora_on_cpu: true\n"
                             "chunked_cross_entropy_num_chunks: 8\ncomet_project_name: p\nsave_first_step: true\n"
                             "default_system_message: Be brief.\nmlflow_experiment_name: e\nmlflow_run_name: n\n"
                             "sequence_parallel_degree: 2\nring_attn_func: batch_ring\n");
  EXPECT_NE(said_.find("flex_attention has no effect here: attention never stores"), std::string::npos) << said_;
  EXPECT_NE(said_.find("gc_steps, lora_on_cpu"), std::string::npos) << said_;
  EXPECT_EQ(recipe.default_system, "Be brief.");
  EXPECT_EQ(recipe.project, "e");
  EXPECT_EQ(recipe.run_name, "n");
  EXPECT_EQ(recipe.mesh.at("sp"), 2);
  EXPECT_EQ(read(with_set("  type: chat_template\n") + "default_system_message:\nsequence_parallel_degree: 1\n")
                .default_system,
            "");
}

TEST_F(RecipeShape, AxolotlsTemplatesOfDataSets) {
  const std::string chat = "  type: chat_template\n", more = "- path: b.jsonl\n" + chat;
  EXPECT_EQ(read(with_set(chat + "  chat_template: chatml\n")).template_name, "chatml");
  EXPECT_EQ(read(with_set(chat + "  chat_template: chatml\n" + more + "  chat_template: chatml\n")).template_name,
            "chatml");
  EXPECT_EQ(read("chat_template: chatml\n" + with_set(chat + more)).template_name, "chatml");
  EXPECT_EQ(read("chat_template: chatml\n" + with_set(chat + "  chat_template: tokenizer_default\n")).template_name,
            "");
  EXPECT_NE(refusal(with_set(chat + "  chat_template: chatml\n" + more))
                .find("chat_template: found the model's own after chatml"),
            std::string::npos);
  EXPECT_NE(refusal("chat_template: llama3\n" + with_set(chat + more + "  chat_template: chatml\n"))
                .find("chat_template: found chatml after llama3"),
            std::string::npos);
  for (const char* name : {"metharme", "llava", "alpaca"})
    EXPECT_NE(refusal("chat_template: " + std::string(name) + "\n" + with_set(chat))
                  .find("save it as chat_template.jinja in the model folder"),
              std::string::npos);
  for (const char* name : {"nemotron", "nemotron_h", "command_a_rag"})
    EXPECT_EQ(read("chat_template: " + std::string(name) + "\n" + with_set(chat)).template_name, "");
  read("chat_template: gemma3\n" + with_set(chat));
  EXPECT_NE(said_.find("names a family of models; Fettle uses the template in the model folder"), std::string::npos)
      << said_;
}

TEST_F(RecipeShape, AxolotlsDefaults) {
  const Recipe recipe = read("base_model: m\nmicro_batch_size: 1\nlearning_rate: 1e-4\ndatasets:\n- path: r\n");
  EXPECT_EQ(recipe.cutoff_len, 512);
  EXPECT_TRUE(recipe.bf16);
  EXPECT_EQ(recipe.warmup_ratio, 0.03);
  EXPECT_EQ(recipe.max_warmup_steps, 100);
  EXPECT_FALSE(read("base_model: m\nmicro_batch_size: 1\nfp16: true\n").bf16);
  EXPECT_EQ(read("base_model: m\nmicro_batch_size: 1\nwarmup_ratio: 0.1\n").max_warmup_steps, 0);
}

TEST_F(RecipeShape, AxolotlsCosineEndsAtTheLeastRate) {
  const std::string start = "base_model: m\nmicro_batch_size: 1\n";
  const Recipe least = read(start + "lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n");
  EXPECT_EQ(least.lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(least.min_lr_rate, 0.1);
  EXPECT_EQ(
      read(start + "lr_scheduler: cosine\ncosine_min_lr_ratio: 1.0\ncosine_constant_lr_ratio: 0\n").lr_scheduler_type,
      "constant_with_warmup")
      << "the rate never falls";
  EXPECT_EQ(read(start + "cosine_min_lr_ratio: 0.1\n").lr_scheduler_type, "cosine_with_min_lr");
  EXPECT_EQ(read(start + "lr_scheduler: linear\ncosine_min_lr_ratio: 0.1\n").lr_scheduler_type, "linear");
  EXPECT_NE(said_.find("cosine_min_lr_ratio has no effect"), std::string::npos) << said_;
  EXPECT_EQ(read(start + "lr_scheduler: cosine\ncosine_min_lr_ratio: 0\n").lr_scheduler_type, "cosine");
}

// TRL's CPOConfig adds the loss of the chosen reply, times cpo_alpha (default 1), to SimPO's loss.
TEST_F(RecipeShape, SimpoKeepsTheWeightOfTheChosenReply) {
  const std::string start = "base_model: m\nmicro_batch_size: 1\nrl: simpo\n";
  EXPECT_EQ(read(start).pref_ftx, 1);
  EXPECT_EQ(read(start + "cpo_alpha: 0.5\n").pref_ftx, 0.5);
  EXPECT_EQ(read(start + "cpo_alpha: 0\n").pref_ftx, 0);
  EXPECT_EQ(read("base_model: m\nmicro_batch_size: 1\nrl: dpo\n").pref_ftx, 0);
  EXPECT_EQ(read("model: m\nrlhf_type: simpo\n").pref_ftx, 1);
}

TEST_F(RecipeShape, KeysThatWouldChangeTheRowsAreRefused) {
  const std::string start = "base_model: m\nmicro_batch_size: 1\n";
  EXPECT_NE(refusal(start + "pretrain_multipack_attn: false\n").find("never attend to each other"), std::string::npos);
  EXPECT_NE(refusal(start + "min_sample_len: 16\n").find("remove short rows"), std::string::npos);
  EXPECT_EQ(refusal(start + "pretrain_multipack_attn: true\nmin_sample_len: 2\n"), "");
}

// The versions of the tools are those in docs/from-other-tools.md.
TEST_F(RecipeShape, OtherToolsKeepTheirDefaults) {
  const Recipe swift = read("model: m\ntuner_type: lora\ndataset: r\nper_device_train_batch_size: 4\n");
  EXPECT_EQ(swift.learning_rate, 1e-4);
  EXPECT_EQ(swift.lora_rank, 8);
  EXPECT_EQ(swift.lora_alpha, 32);
  EXPECT_EQ(swift.lora_dropout, 0.05);
  EXPECT_EQ(swift.weight_decay, 0.1);
  EXPECT_EQ(swift.adam_beta2, 0.95);
  EXPECT_EQ(swift.lr_scheduler_type, "cosine");
  EXPECT_EQ(swift.overlength, "drop");
  EXPECT_EQ(swift.gradient_accumulation_steps, 4);
  EXPECT_TRUE(swift.bf16);
  EXPECT_NE(said_.find("max_length is not given"), std::string::npos) << said_;
  const Recipe full = read("model: m\ntrain_type: full\ndataset: r\nweight_decay: 0\nmax_length: 99\n");
  EXPECT_EQ(full.learning_rate, 1e-5);
  EXPECT_EQ(full.weight_decay, 0);
  EXPECT_EQ(said_.find("max_length is not given"), std::string::npos) << said_;
  const Recipe simpo = read("model: m\nrlhf_type: simpo\n");
  EXPECT_EQ(simpo.pref_beta, 2);
  EXPECT_EQ(simpo.simpo_gamma, 1);
  const Recipe trl = read("model_name_or_path: m\ndataset_name: r\n");
  EXPECT_EQ(trl.finetuning_type, "full");
  EXPECT_EQ(trl.learning_rate, 2e-5);
  EXPECT_EQ(trl.cutoff_len, 1024);
  const Recipe dpo = read("model_name_or_path: m\ndataset_name: r\nuse_peft: true\nstage: dpo\n");
  EXPECT_EQ(dpo.learning_rate, 1e-6);
  EXPECT_EQ(dpo.lora_rank, 16);
  EXPECT_EQ(dpo.lora_alpha, 32);
  const Recipe unsloth = read("model: m\ndata: {local_dataset: [a]}\ntraining: {num_epochs: 2}\n");
  EXPECT_EQ(unsloth.quantization_bit, 4);
  EXPECT_EQ(unsloth.lora_rank, 64);
  EXPECT_EQ(unsloth.lora_alpha, 16);
  EXPECT_EQ(unsloth.learning_rate, 2e-4);
  EXPECT_EQ(unsloth.warmup_steps, 5);
  EXPECT_EQ(unsloth.optim, "adamw_8bit");
  EXPECT_TRUE(unsloth.train_on_prompt);
  testing::internal::CaptureStderr();
  const Recipe words = read_recipe("", {"model=m", "tuner_type=lora", "weight_decay=0.2"});
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(words.adam_beta2, 0.95);
  EXPECT_EQ(words.weight_decay, 0.2);
}

TEST_F(RecipeShape, AxolotlsNewTokensAndSpans) {
  const std::string rows = "datasets:\n- path: r.jsonl\n  type: chat_template\n";
  const Recipe recipe =
      read(kAxolotl + rows + "  message_field_training: train\n  message_field_training_detail: parts\n" +
           "tokens: [<a>, <b>]\n");
  EXPECT_EQ(recipe.add_tokens, (std::vector<std::string>{"<a>", "<b>"}));
  EXPECT_NE(recipe.dataset[0].find(R"("spans_tag":"parts")"), std::string::npos) << recipe.dataset[0];
  EXPECT_EQ(read(kAxolotl + rows + "  message_field_training_detail: train_detail\n").dataset[0], "r.jsonl");
  EXPECT_NE(refusal(kAxolotl + rows + "  message_field_training: wanted\n").find("wanted train or training"),
            std::string::npos);
}

// Reads the keys of the command lines of `swift sft` and `trl sft`, and the keys in Unsloth's files.
TEST_F(RecipeShape, CommandLinesOfOtherTools) {
  const Recipe swift = read(
      "model: maker/model\ntuner_type: lora\ndataset: maker/rows#500\ntarget_modules: all-linear\n"
      "split_dataset_ratio: 0.01\nattn_impl: flash_attn\nsystem: Be brief.\ndeepspeed: zero3_offload\n"
      "loss_scale: last_round\ntruncation_strategy: delete\nquant_method: bnb\nmodel_author: me\n");
  EXPECT_EQ(swift.finetuning_type, "lora");
  EXPECT_EQ(swift.dataset, std::vector<std::string>{"maker/rows#500"});
  EXPECT_EQ(swift.val_size, 0.01);
  EXPECT_EQ(swift.default_system, "Be brief.");
  EXPECT_TRUE(swift.offload_param && swift.mask_history);
  EXPECT_EQ(swift.overlength, "drop");
  const Recipe trl = read(
      "model_name_or_path: maker/model\ndataset_name: maker/rows\ndataset_train_split: train\nuse_peft: true\n"
      "lora_r: 16\nlora_task_type: CAUSAL_LM\nmax_length: 1024\neval_packing: false\nassistant_only_loss: true\n");
  EXPECT_EQ(trl.lora_rank, 16);
  EXPECT_EQ(trl.cutoff_len, 1024);
  const Recipe unsloth = read(
      "model: maker/model\ndata:\n  local_dataset: [a.jsonl]\n  format_type: auto\ntraining:\n  training_type: lora\n"
      "  max_seq_length: 512\n  random_seed: 7\n  train_on_completions: true\nlora:\n  lora_r: 4\n"
      "  target_modules: [q_proj]\n  finetune_language_layers: true\nlogging:\n  enable_wandb: false\n");
  EXPECT_EQ(unsloth.dataset, std::vector<std::string>{"a.jsonl"});
  EXPECT_EQ(unsloth.cutoff_len, 512);
  EXPECT_EQ(unsloth.seed, 7);
  EXPECT_EQ(unsloth.lora_rank, 4);
  EXPECT_EQ(unsloth.lora_target, std::vector<std::string>{"q_proj"});
}

// The output of `fettle convert` is a recipe that reads back as the same recipe.
TEST_F(RecipeShape, ConvertedRecipesReadBackTheSame) {
  const Recipe recipe = read(kAxolotl +
                             "datasets:\n- path: maker/rows\n  type: alpaca\n  split: train[:20%]\n- path: b.jsonl\n"
                             "  type: chat_template\nevals_per_epoch: 4\nspecial_tokens: {eos_token: </s>}\n");
  const Recipe custom = read(with_set("  type: {format: \"say: \\\"{instruction}\\\"\\n'{input}' #\"}\n"));
  EXPECT_EQ(read(to_yaml(custom)).dataset, custom.dataset);
  const Recipe again = read(to_yaml(recipe));
  EXPECT_EQ(to_yaml(again), to_yaml(recipe));
  EXPECT_EQ(again.dataset, recipe.dataset);
}

TEST_F(RecipeShape, AxolotlsTextsForPretraining) {
  const std::string more = "sample_packing: true\nmax_steps: 5\npretraining_dataset:\n";
  const Recipe recipe =
      read(kAxolotl + more + "- path: maker/rows\n  name: en\n  type: pretrain\n  text_column: body\n");
  EXPECT_EQ(recipe.stage, "pt");
  EXPECT_EQ(recipe.dataset[0],
            R"({"hf_hub_url":"maker/rows","subset":"en","formatting":"text","columns":{"text":"body"}})");
  EXPECT_EQ(read(kAxolotl + "max_steps: 5\npretraining_dataset: maker/rows\n").dataset[0], "maker/rows");
  EXPECT_NE(refusal(kAxolotl + more + "- path: maker/rows\n  shards: 4\n").find("'shards'"), std::string::npos);
  EXPECT_NE(refusal(with_set("") + "pretraining_dataset: maker/rows\n").find("cannot be used together"),
            std::string::npos);
}

TEST_F(RecipeShape, AxolotlsStylesOfAlpaca) {
  EXPECT_EQ(read(with_set("  type: alpaca:phi\n")).dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"alpaca_prompt","prompt":{"style":"phi"}})");
}

TEST_F(RecipeShape, AxolotlsWordsAboutTheModel) {
  const std::string sets = with_set("");
  const Recipe recipe =
      read(sets +
           "bnb_config_kwargs: {bnb_4bit_use_double_quant: false, bnb_4bit_quant_type: fp4}\nadapter: qlora\n"
           "model_config: {output_router_logits: true}\n"
           "model_quantization_config: Mxfp4Config\nmodel_quantization_config_kwargs: {dequantize: true}\n"
           "unfrozen_parameters: ['^model.language_model.*', lm_head]\n"
           "tokens: {eos_token: </s>, pad_token: <pad>}\n");
  EXPECT_FALSE(recipe.double_quantization);
  EXPECT_EQ(recipe.quantization_type, "fp4");
  EXPECT_EQ(recipe.output_router_logits, "true");
  EXPECT_EQ(recipe.eos_token, "</s>");
  EXPECT_TRUE(recipe.add_tokens.empty());
  EXPECT_NE(refusal(sets + "unfrozen_parameters: ['model.layers.4[4-9]+.mlp']\n")
                .find("unfrozen_parameters is not available"),
            std::string::npos);
  EXPECT_NE(refusal(sets + "model_config: {rope_theta: 1}\n").find("model_config.rope_theta"), std::string::npos);
  EXPECT_NE(refusal(sets + "bnb_config_kwargs: {other: 1}\n").find("bnb_config_kwargs.other"), std::string::npos);
  EXPECT_TRUE(read(sets + "reinit_weights: true\n").train_from_scratch);
}

// A key that is written without a value does not contradict another key with the same meaning.
TEST_F(RecipeShape, AxolotlsEmptyKeysContradictNothing) {
  const Recipe recipe = read(
      "base_model: maker/model\nsequence_len: 64\ndatasets:\n- path: r.jsonl\nsaves_per_epoch: 4\nsave_steps:\n"
      "resume_from_checkpoint:\nauto_resume_from_checkpoints: true\nfloat16: true\nbf16: false\nfp16: false\n");
  EXPECT_EQ(recipe.save_steps, 0.25);
  EXPECT_EQ(recipe.resume_from_checkpoint, "true");
  EXPECT_TRUE(recipe.fp16);
}

TEST_F(RecipeShape, AxolotlsEmptyKeysAreRead) {
  read(with_set("") + "pretraining_dataset:\nmodel_config:\nunfrozen_parameters:\nbnb_config_kwargs:\n");
}

TEST_F(RecipeShape, TrackersThatFettleLacksDoNotStopARun) {
  read(with_set("") + "use_swanlab: true\nplugins: [axolotl.integrations.swanlab.SwanLabPlugin]\n");
  EXPECT_NE(said_.find("SwanLabPlugin"), std::string::npos);
  EXPECT_NE(said_.find("use_swanlab has no effect here"), std::string::npos);
}

// An entry names columns only if Fettle does not find them in the rows by itself.
TEST_F(RecipeShape, AxolotlsFormsOfPairsAndRatedReplies) {
  const auto set = [&](const std::string& type, const std::string& rl) {
    return read(with_set("  type: " + type + "\n") + "rl: " + rl + "\n");
  };
  EXPECT_EQ(set("chatml.intel", "dpo").dataset[0], "r.jsonl");
  EXPECT_EQ(set("chatml.intel", "ipo").template_name, "chatml");
  EXPECT_EQ(set("llama3.ultra", "kto").template_name, "llama3");
  EXPECT_EQ(set("llama3.argilla", "dpo").dataset[0], R"({"hf_hub_url":"r.jsonl","ranking":true,"columns":)"
                                                     R"({"chosen":"chosen_response","rejected":"rejected_response"}})");
  EXPECT_EQ(set("chatml.intel", "kto").dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"alpaca","columns":)"
            R"({"prompt":"question","response":"completion","system":"system"}})");
  EXPECT_EQ(set("chatml.argilla_chat", "kto").dataset[0],
            R"({"hf_hub_url":"r.jsonl","formatting":"openai","columns":{"messages":"completion"}})");
  EXPECT_NE(refusal(with_set("  type: chatml.intel\n")).find("'chatml.intel'"), std::string::npos);
  EXPECT_NE(refusal(with_set("  type: zephyr.nectar\n") + "rl: dpo\n").find("'zephyr.nectar'"), std::string::npos);
}

TEST_F(RecipeShape, AxolotlsOrderOfRows) {
  const std::string set = with_set("  type: alpaca\n");
  EXPECT_TRUE(read(set + "curriculum_sampling: true\n").disable_shuffling);
  EXPECT_FALSE(read(set + "curriculum_sampling: false\n").disable_shuffling);
  const std::string two = set + "- path: s.jsonl\n  type: alpaca\n";
  EXPECT_FALSE(read(two + "curriculum_sampling: true\n").disable_shuffling) << "merged sets are shuffled";
  EXPECT_TRUE(read(two + "curriculum_sampling: true\nshuffle_merged_datasets: false\n").disable_shuffling);
  EXPECT_TRUE(read(set + "dataset_exact_deduplication: true\n").remove_duplicates);
}

TEST_F(RecipeShape, AxolotlsOtherMethodsAreRefusedByName) {
  const std::string rows = "datasets:\n- path: maker/rows\n  type: alpaca\n";
  EXPECT_NE(refusal(kAxolotl + rows + "processor_type: AutoProcessor\n").find("trains an image model"),
            std::string::npos);
  EXPECT_NE(refusal(kAxolotl + rows + "plugins: [axolotl.integrations.kd.KDPlugin]\n").find("kd.KDPlugin"),
            std::string::npos);
  EXPECT_NE(refusal(kAxolotl + rows + "rl: gdpo\n").find("rl: found 'gdpo'"), std::string::npos);
  EXPECT_NE(refusal(kAxolotl + "datasets:\n- path: maker/rows\n  type: jeopardy\n").find("'jeopardy'"),
            std::string::npos);
}

}  // namespace
}  // namespace fettle
