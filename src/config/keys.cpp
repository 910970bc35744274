#include "config/keys.h"

#include <algorithm>

namespace fettle {
namespace {

std::vector<Key> model_keys() {
  return {
      {.name = "model_name_or_path",
       .member = &Recipe::model_name_or_path,
       .help = "Base model: a folder in Hugging Face's layout, a GGUF file, or a name on the hub such as "
               "Qwen/Qwen3-0.6B, which is downloaded. A local file or folder with that name takes precedence.",
       .aliases = {"base_model", "model", "checkpointer.checkpoint_dir", "load_parameters_path"}},
      {.name = "model_revision",
       .member = &Recipe::model_revision,
       .help = "Branch, tag or commit of model_name_or_path on the hub. For adapters and data sets, write it after the "
               "name: NAME@REVISION.",
       .aliases = {"revision", "revision_of_model"}},
      {.name = "adapter_name_or_path",
       .member = &Recipe::adapter_name_or_path,
       .help = "PEFT adapter folders, or names on the hub. `train` continues the last adapter, and the other commands "
               "apply it. The adapters before it are merged into the base first.",
       .aliases = {"adapters", "peft_config.adapter_name_or_path", "lora_model_dir"}},
      {.name = "train_from_scratch",
       .member = &Recipe::train_from_scratch,
       .help = "Start from random weights. The model folder then needs only its config and tokenizer."},
      {.name = "template",
       .member = &Recipe::template_name,
       .help = "Built-in chat template; empty means the model's own.",
       .aliases = {"chat_template"},
       .spellings = {{"tokenizer_default", ""}}},
      {.name = "tool_format",
       .member = &Recipe::tool_format,
       .help = "The form in which tools and calls are written. The model's own template writes them; a name of another "
               "form is an error.",
       .values = {"default", "gemma4", "glm4", "llama3", "lfm2", "minimax1", "minimax2", "mistral", "qwen", "qwen3_5",
                  "glm4_moe", "seed_oss", "ling"}},
      {.name = "enable_thinking",
       .member = &Recipe::enable_thinking,
       .help =
           "For models that think before a reply. false: prompts end with an empty thought, and thoughts in the rows "
           "are left out where the template allows it; true: replies without a thought are trained with an empty "
           "one; auto: as the template does by default.",
       .values = {"auto", "true", "false"},
       .spellings = {{"", "auto"}}},
      {.name = "preserve_thinking",
       .member = &Recipe::preserve_thinking,
       .help = "Earlier replies of a conversation keep their thoughts, if the template supports both."},
      {.name = "rope_scaling",
       .member = &Recipe::rope_scaling,
       .help =
           "Stretch the model's positions when cutoff_len is longer than the model's own length. config.json of the "
           "result says so. Commands that do not train, and have no cutoff_len, double the length.",
       .values = {"linear", "dynamic", "yarn", "llama3"},
       .spellings = {{"none", ""}}},
      {.name = "resize_vocab",
       .member = &Recipe::resize_vocab,
       .help =
           "Give the embedding and the head a row for every token of the tokenizer. New tokens do so by themselves."},
      {.name = "add_tokens",
       .member = &Recipe::add_tokens,
       .help = "Words that become tokens of their own, behind those of the tokenizer.",
       .aliases = {"tokens"}},
      {.name = "add_special_tokens",
       .member = &Recipe::add_special_tokens,
       .help = "The same for special tokens, which replies leave out.",
       .aliases = {"new_special_tokens"}},
      {.name = "new_special_tokens_config",
       .member = &Recipe::new_special_tokens_config,
       .help = "A yaml file of special tokens to add, each with a description: '<token>': text. Replaces "
               "add_special_tokens."},
      {.name = "init_special_tokens",
       .member = &Recipe::init_special_tokens,
       .help =
           "How rows of new tokens start: noise_init takes the mean of all rows with noise, desc_init the mean of the "
           "description's tokens, desc_init_w_noise that with noise.",
       .values = {"noise_init", "desc_init", "desc_init_w_noise"}},
      {.name = "eos_token",
       .member = &Recipe::eos_token,
       .help = "The token that ends a text. It must be the tokenizer's own eos_token; another one is an error."},
      {.name = "use_modelscope",
       .member = &Recipe::use_modelscope,
       .help = "Look names up on ModelScope instead of Hugging Face's hub. USE_MODELSCOPE_HUB=1 does the same."},
      {.name = "hub_token",
       .member = &Recipe::hub_token,
       .help = "Access token for private and gated repositories. HF_TOKEN is the safer place for it.",
       .aliases = {"hf_hub_token", "ms_hub_token"},
       .secret = true},
      {.name = "cache_dir",
       .member = &Recipe::cache_dir,
       .help =
           "Folder for downloaded files. Empty means the folder that the environment names (HF_HUB_CACHE, HF_HOME)."},
  };
}

std::vector<Key> data_keys() {
  return {
      {.name = "dataset",
       .group = Group::kData,
       .member = &Recipe::dataset,
       .help =
           "Files, folders or patterns of rows, names of entries in dataset_info.json or entries themselves, or names "
           "on the hub.",
       .aliases = {"local_dataset", "datasets", "train_dataset", "dataset_name", "dataset.source"}},
      {.name = "eval_dataset",
       .group = Group::kData,
       .member = &Recipe::eval_dataset,
       .help = "Held-out data sets, named as in `dataset`.",
       .aliases = {"val_dataset", "test_datasets", "valid_dataset"}},
      {.name = "dataset_dir",
       .group = Group::kData,
       .member = &Recipe::dataset_dir,
       .help = "Folder of dataset_info.json and of the files that it names; REMOTE:ORG/NAME if the folder is a data "
               "set on the hub; ONLINE if all names in `dataset` are names on the hub."},
      {.name = "cutoff_len",
       .group = Group::kData,
       .member = &Recipe::cutoff_len,
       .help = "Longest sequence in tokens. With packing, the length of every sequence.",
       .aliases = {"sequence_len", "max_length", "max_seq_length", "max_seq_len", "max_target_length",
                   "tokenizer.max_seq_len"},
       .min = 2},
      {.name = "overlength",
       .group = Group::kData,
       .member = &Recipe::overlength,
       .help = "What to do with rows longer than cutoff_len: cut them, drop them, or stop with an error.",
       .aliases = {"excess_length_strategy"},
       .values = {"cut", "drop", "error"},
       .spellings = {{"truncate", "cut"}, {"raise", "error"}}},
      {.name = "packing",
       .group = Group::kData,
       .member = &Recipe::packing,
       .help = "Put several rows into one sequence; they do not attend to each other. On by default with `stage: pt`.",
       .aliases = {"sample_packing", "dataset.packed"},
       .by_stage = true},
      {.name = "train_on_prompt",
       .group = Group::kData,
       .member = &Recipe::train_on_prompt,
       .help = "Train on the prompts too, not only on the replies.",
       .aliases = {"train_on_inputs", "train_on_input", "dataset.train_on_input"}},
      {.name = "mask_history",
       .group = Group::kData,
       .member = &Recipe::mask_history,
       .help = "Train only on the last reply of a conversation."},
      {.name = "val_size",
       .group = Group::kData,
       .member = &Recipe::val_size,
       .help = "Rows to hold out for evaluation: a share below 1, or a count.",
       .aliases = {"split_dataset_ratio", "val_set_size"},
       .min = 0,
       .share_or_count = true},
      {.name = "max_samples",
       .group = Group::kData,
       .member = &Recipe::max_samples,
       .help = "Most rows to take from each data set; the first ones are taken.",
       .min = 1},
      {.name = "disable_shuffling",
       .group = Group::kData,
       .member = &Recipe::disable_shuffling,
       .help = "Keep the rows in the order of the files."},
      {.name = "on_bad_row",
       .group = Group::kData,
       .member = &Recipe::on_bad_row,
       .help = "Stop at a row that cannot be read, or skip it and count it.",
       .values = {"error", "skip"}},
      {.name = "skip_rows",
       .group = Group::kData,
       .member = &Recipe::skip_rows,
       .help =
           "Rows that training leaves out, each as messages name it (`rows.jsonl:17`). They keep their places in the "
           "order, so a run can be resumed with this key changed."},
      {.name = "mix_strategy",
       .group = Group::kData,
       .member = &Recipe::mix_strategy,
       .help = "How several data sets are combined: one after another (concat), or in turns until the first one "
               "(interleave_under) or the last one (interleave_over) is used up.",
       .values = {"concat", "interleave_under", "interleave_over"}},
      {.name = "interleave_probs",
       .group = Group::kData,
       .member = &Recipe::interleave_probs,
       .help = "How often each data set has its turn, such as `0.7,0.3`. Empty means that they take turns in order."},
      {.name = "data_cache",
       .group = Group::kData,
       .member = &Recipe::data_cache,
       .help = "Folder of tokenised rows, reused as long as nothing that made them changes. Empty means the default "
               "folder; off keeps none.",
       .aliases = {"tokenized_path", "dataset_prepared_path"}},
  };
}

std::vector<Key> output_keys() {
  return {
      {.name = "output_dir",
       .group = Group::kOutput,
       .member = &Recipe::output_dir,
       .help = "Folder of the result: adapter or model, checkpoints, logs, loss plot.",
       .aliases = {"adapter_path", "base_output_directory"}},
      {.name = "overwrite_output_dir",
       .group = Group::kOutput,
       .member = &Recipe::overwrite_output_dir,
       .help = "Allow output_dir to hold an earlier run, which is replaced."},
      {.name = "logging_steps",
       .group = Group::kOutput,
       .member = &Recipe::logging_steps,
       .help = "Steps between log entries.",
       .aliases = {"log_every_n_steps", "steps_per_report"},
       .min = 1},
      {.name = "save_strategy",
       .group = Group::kOutput,
       .member = &Recipe::save_strategy,
       .help = "When checkpoints are saved. best: after each evaluation that is better than all before it.",
       .values = {"no", "steps", "epoch", "best"},
       .spellings = {{"false", "no"}}},
      {.name = "save_steps",
       .group = Group::kOutput,
       .member = &Recipe::save_steps,
       .help = "Steps between checkpoints; below 1, a share of all steps.",
       .aliases = {"save_every"},
       .min = 0,
       .above_min = true,
       .share_or_count = true},
      {.name = "save_total_limit",
       .group = Group::kOutput,
       .member = &Recipe::save_total_limit,
       .help = "How many of the newest checkpoints are kept; 0 keeps all.",
       .min = 0},
      {.name = "save_only_model",
       .group = Group::kOutput,
       .member = &Recipe::save_only_model,
       .help = "Checkpoints hold the adapter or model alone, without optimizer state. They are smaller, and cannot be "
               "resumed."},
      {.name = "eval_strategy",
       .group = Group::kOutput,
       .member = &Recipe::eval_strategy,
       .help = "When held-out rows are evaluated during training.",
       .aliases = {"evaluation_strategy"},
       .values = {"no", "steps", "epoch"},
       .spellings = {{"false", "no"}}},
      {.name = "eval_task",
       .group = Group::kOutput,
       .member = &Recipe::eval_task,
       .help = "What `eval` does with eval_dataset: one value for all sets, or one for each. auto: detected from the "
               "columns; loss: the loss of the trained tokens; choice: the most likely continuation of a question; "
               "letters: the same with A, B, ... (MMLU); generation: replies compared with references.",
       .values = {"auto", "loss", "choice", "letters", "generation"}},
      {.name = "eval_base_model",
       .group = Group::kOutput,
       .member = &Recipe::eval_base_model,
       .help = "Model folder that `eval` compares with. With adapter_name_or_path, empty means the base of the "
               "adapter."},
      {.name = "eval_steps",
       .group = Group::kOutput,
       .member = &Recipe::eval_steps,
       .help = "Steps between evaluations; below 1, a share of all steps; 0 means logging_steps.",
       .aliases = {"steps_per_eval"},
       .min = 0,
       .share_or_count = true},
      {.name = "metric_for_best_model",
       .group = Group::kOutput,
       .member = &Recipe::metric_for_best_model,
       .help =
           "The figure that decides which evaluation is the best: loss, perplexity, accuracy, rewards/margins, ..."},
      {.name = "greater_is_better",
       .group = Group::kOutput,
       .member = &Recipe::greater_is_better,
       .help = "Whether a larger metric_for_best_model is better. auto: not for losses, perplexity, mse and mae.",
       .values = {"auto", "true", "false"}},
      {.name = "load_best_model_at_end",
       .group = Group::kOutput,
       .member = &Recipe::load_best_model_at_end,
       .help = "Write the model of the best evaluation as the result, not that of the last step."},
      {.name = "early_stopping_patience",
       .group = Group::kOutput,
       .member = &Recipe::early_stopping_patience,
       .help = "The run ends after so many evaluations without a better one; 0 means that it never ends early.",
       .aliases = {"early_stopping_steps"},
       .min = 0},
      {.name = "early_stopping_threshold",
       .group = Group::kOutput,
       .member = &Recipe::early_stopping_threshold,
       .help = "By how much an evaluation must be better to count for early_stopping_patience.",
       .min = 0},
      {.name = "plot_loss",
       .group = Group::kOutput,
       .member = &Recipe::plot_loss,
       .help = "Draw training_loss.png and training_loss.svg at the end."},
      {.name = "report_to",
       .group = Group::kOutput,
       .member = &Recipe::report_to,
       .help =
           "Trackers that also get the figures: tensorboard (event files), wandb (an offline run for `wandb sync`), "
           "trackio (its local database), mlflow (the server that MLFLOW_TRACKING_URI names). trainer_log.jsonl and "
           "trainer_state.json are always written.",
       .values = {"none", "tensorboard", "wandb", "trackio", "mlflow"},
       .later = {"swanlab", "comet_ml", "clearml", "neptune", "all"}},
      {.name = "run_name",
       .group = Group::kOutput,
       .member = &Recipe::run_name,
       .help = "The run's name in trackers; empty means the name of output_dir.",
       .aliases = {"wandb_name", "trackio_run_name"}},
      {.name = "project",
       .group = Group::kOutput,
       .member = &Recipe::project,
       .help = "The project in wandb and trackio that the run belongs to.",
       .aliases = {"wandb_project", "trackio_project_name"}},
      {.name = "logging_dir",
       .group = Group::kOutput,
       .member = &Recipe::logging_dir,
       .help = "Folder of TensorBoard's event files; empty means runs/DATE_TIME in output_dir."},
      {.name = "resume_from_checkpoint",
       .group = Group::kOutput,
       .member = &Recipe::resume_from_checkpoint,
       .help = "true continues from the newest complete checkpoint in output_dir, if there is one. A folder's name "
               "continues from that checkpoint.",
       .aliases = {"auto_resume_from_checkpoints"},
       .spellings = {{"false", ""}, {"true", "true"}}},
  };
}

std::vector<Key> export_keys() {
  return {
      {.name = "export_dir",
       .group = Group::kExport,
       .member = &Recipe::export_dir,
       .help = "Folder of the model that `export` writes.",
       .aliases = {"peft_config.export_dir"}},
      {.name = "export_size",
       .group = Group::kExport,
       .member = &Recipe::export_size,
       .help = "Largest weight file, in GB (10^9 bytes).",
       .aliases = {"peft_config.export_size"},
       .min = 0,
       .above_min = true},
      {.name = "export_dtype",
       .group = Group::kExport,
       .member = &Recipe::export_dtype,
       .help = "Dtype of the exported weights; empty means the base model's.",
       .values = {"", "bfloat16", "float16", "float32"},
       .spellings = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"auto", ""}}},
      {.name = "export_gguf",
       .group = Group::kExport,
       .member = &Recipe::export_gguf,
       .help = "Write GGUF files for llama.cpp and Ollama instead of safetensors: one type or a list. q8_0 is close to "
               "the original, q4_k_m the usual small one.",
       .values = {"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_1", "q5_0", "q4_k_m", "q4_1", "q4_0"},
       .spellings = {{"F32", "f32"},
                     {"F16", "f16"},
                     {"BF16", "bf16"},
                     {"float32", "f32"},
                     {"float16", "f16"},
                     {"bfloat16", "bf16"},
                     {"Q8_0", "q8_0"},
                     {"q6_K", "q6_k"},
                     {"Q6_K", "q6_k"},
                     {"q5_K_M", "q5_k_m"},
                     {"Q5_K_M", "q5_k_m"},
                     {"Q5_1", "q5_1"},
                     {"Q5_0", "q5_0"},
                     {"q4_K_M", "q4_k_m"},
                     {"Q4_K_M", "q4_k_m"},
                     {"Q4_1", "q4_1"},
                     {"Q4_0", "q4_0"}}},
  };
}

std::vector<Key> generation_keys() {
  return {
      {.name = "prompt",
       .group = Group::kGeneration,
       .member = &Recipe::prompt,
       .help = "Prompt for `generate`; without it, each line of standard input is a prompt."},
      {.name = "default_system",
       .group = Group::kGeneration,
       .member = &Recipe::default_system,
       .help = "System message of conversations that have none.",
       .aliases = {"system", "system_prompt"}},
      {.name = "max_new_tokens",
       .group = Group::kGeneration,
       .member = &Recipe::max_new_tokens,
       .help = "Longest reply, in tokens.",
       .aliases = {"max_tokens"},
       .min = 1},
      {.name = "do_sample",
       .group = Group::kGeneration,
       .member = &Recipe::do_sample,
       .help = "Draw tokens at random; false always takes the most likely token."},
      {.name = "temperature",
       .group = Group::kGeneration,
       .member = &Recipe::temperature,
       .help = "Divides the logits before sampling; 0 means do_sample: false.",
       .aliases = {"temp"},
       .min = 0},
      {.name = "top_k",
       .group = Group::kGeneration,
       .member = &Recipe::top_k,
       .help = "Sample only among this many most likely tokens; 0 means all.",
       .min = 0},
      {.name = "top_p",
       .group = Group::kGeneration,
       .member = &Recipe::top_p,
       .help = "Sample only among the most likely tokens that together have this probability.",
       .min = 0,
       .max = 1,
       .above_min = true},
  };
}

std::vector<Key> hardware_keys() {
  return {
      {.name = "mesh",
       .group = Group::kHardware,
       .member = &Recipe::mesh,
       .help = "Devices along each axis, such as `{fsdp: 4, tp: 2}` or `fsdp=4,tp=2`. dp: data parallel; fsdp: fully "
               "sharded data parallel; tp: tensor parallel; sp: sequence parallel; ep: expert parallel; pp is not "
               "available yet. Empty puts all devices on fsdp. auto compiles several meshes and takes the one with "
               "the lowest time bound that fits. mp is read as tp, cp as sp.",
       .values = {"dp", "fsdp", "tp", "sp", "ep", "pp"},
       .spellings = {{"mp", "tp"}, {"cp", "sp"}},
       .min = 1,
       .may_be_auto = true},
      {.name = "sharding",
       .group = Group::kHardware,
       .member = &Recipe::sharding,
       .help = "Mesh axis that splits a logical axis of the model, instead of the default one, such as `{mlp: tp}`."},
      {.name = "offload_optimizer",
       .group = Group::kHardware,
       .member = &Recipe::offload_optimizer,
       .help = "Keep the optimizer state in host memory and stream it layer by layer."},
      {.name = "offload_param",
       .group = Group::kHardware,
       .member = &Recipe::offload_param,
       .help = "Keep the layers' weights in host memory and stream them layer by layer."},
      {.name = "plugin",
       .group = Group::kHardware,
       .member = &Recipe::plugin,
       .help = "PJRT plugin: cpu, cuda, rocm, or a file. Empty means a GPU's plugin if the GPU and the plugin are "
               "there, else cpu."},
      {.name = "device_count",
       .group = Group::kHardware,
       .member = &Recipe::device_count,
       .help = "How many devices to use. The CPU plugin creates this many.",
       .min = 1},
      {.name = "gpu_memory_utilization",
       .group = Group::kHardware,
       .member = &Recipe::gpu_memory_utilization,
       .help = "Share of a GPU's memory that `train` takes and `plan` counts on; less where the driver, libraries and "
               "other programs leave less.",
       .aliases = {"memory_fraction"},
       .min = 0,
       .max = 1,
       .above_min = true},
      {.name = "target",
       .group = Group::kHardware,
       .member = &Recipe::target,
       .help = "Hardware that `plan` plans for: `mi300x:8`, `a100-80:2x8`, or a file that describes it "
               "(docs/targets.md). Empty means this machine."},
      {.name = "plan_only",
       .group = Group::kHardware,
       .member = &Recipe::plan_only,
       .help = "`train` stops after it has printed the memory of a step."},
      {.name = "compile_cache",
       .group = Group::kHardware,
       .member = &Recipe::compile_cache,
       .help = "Folder of compiled programs, at most 10 GB of them ($FETTLE_COMPILE_CACHE_GB). Empty means the default "
               "folder; off keeps none.",
       .spellings = {{"false", "off"}, {"none", "off"}}},
      {.name = "kernels",
       .group = Group::kHardware,
       .member = &Recipe::kernels,
       .help = "Faster replacements of parts of the step: auto uses every kernel that the devices compute correctly; "
               "off uses none; a list of names (`cpu_attention`, `cpu_linear`) uses these.",
       .spellings = {{"true", "auto"}, {"false", "off"}, {"none", "off"}}},
  };
}

std::vector<Key> all_keys() {
  std::vector<Key> all;
  for (const auto& part : {model_keys(), method_keys(), preference_keys(), data_keys(), training_keys(), output_keys(),
                           export_keys(), generation_keys(), hardware_keys()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

const std::vector<Key>& recipe_keys() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

const Key* find_key(std::string_view name_or_alias) {
  for (const Key& key : recipe_keys()) {
    if (key.name == name_or_alias || std::ranges::find(key.aliases, name_or_alias) != key.aliases.end()) return &key;
  }
  return nullptr;
}

std::string_view group_title(Group group) {
  switch (group) {
    case Group::kModel: return "Model";
    case Group::kMethod: return "Method";
    case Group::kData: return "Data";
    case Group::kTraining: return "Training";
    case Group::kOutput: return "Output";
    case Group::kExport: return "Export";
    case Group::kGeneration: return "Generation";
    case Group::kHardware: return "Hardware";
  }
  return "";
}

}  // namespace fettle
