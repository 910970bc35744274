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
       .help = "PEFT adapter folders, or names on the hub. All but the last adapter are merged into the base first. "
               "`train` continues the last adapter, and the other commands apply it.",
       .aliases = {"adapters", "peft_config.adapter_name_or_path", "lora_model_dir"}},
      {.name = "train_from_scratch",
       .member = &Recipe::train_from_scratch,
       .help = "Start from random weights. The model folder then needs only its config and tokenizer."},
      {.name = "template",
       .member = &Recipe::template_name,
       .help = "Name of a built-in chat template, or a template's Jinja text. If empty, the model's own template.",
       .aliases = {"chat_template"},
       .spellings = {{"tokenizer_default", ""}}},
      {.name = "tool_format",
       .member = &Recipe::tool_format,
       .help = "The format of tools and tool calls. The model's own chat template writes them, so this key is only "
               "checked: a format that differs from the template's is an error.",
       .values = {"default", "gemma4", "glm4", "llama3", "lfm2", "minimax1", "minimax2", "mistral", "qwen", "qwen3_5",
                  "glm4_moe", "seed_oss", "ling"}},
      {.name = "enable_thinking",
       .member = &Recipe::enable_thinking,
       .help =
           "For models that think before a reply. false: prompts end with an empty thought, and thoughts in the rows "
           "are left out if the template supports this; true: replies without a thought are trained with an empty "
           "thought; auto: the template's default.",
       .aliases = {"chat_template_kwargs.enable_thinking"},
       .values = {"auto", "true", "false"},
       .spellings = {{"", "auto"}}},
      {.name = "preserve_thinking",
       .member = &Recipe::preserve_thinking,
       .help = "Keep the thoughts of earlier replies in a conversation. The model's own template gets the variable "
               "preserve_thinking. With a built-in template, the key matters only with mask_history "
               "and in the stages dpo, kto and rm, which would otherwise drop these thoughts.",
       .aliases = {"chat_template_kwargs.preserve_thinking"}},
      {.name = "rope_scaling",
       .member = &Recipe::rope_scaling,
       .help = "How to stretch the model's positions when cutoff_len exceeds the model's longest sequence. The "
               "result's config.json has the new rope settings. If cutoff_len is not set, commands that do not train "
               "(eval, generate and others) stretch the positions to twice the model's longest sequence.",
       .values = {"linear", "dynamic", "yarn", "llama3"},
       .spellings = {{"none", ""}}},
      {.name = "resize_vocab",
       .member = &Recipe::resize_vocab,
       .help = "Give the embedding and the head a row for every token of the tokenizer. Keys that add tokens turn this "
               "key on."},
      {.name = "add_tokens",
       .member = &Recipe::add_tokens,
       .help = "Words to add to the tokenizer as new tokens.",
       .aliases = {"tokens"}},
      {.name = "add_special_tokens",
       .member = &Recipe::add_special_tokens,
       .help = "Special tokens to add to the tokenizer. Generated replies are shown without special tokens.",
       .aliases = {"new_special_tokens"}},
      {.name = "new_special_tokens_config",
       .member = &Recipe::new_special_tokens_config,
       .help = "A yaml file of special tokens to add, each with a description: `'<token>': text`. It replaces "
               "add_special_tokens."},
      {.name = "init_special_tokens",
       .member = &Recipe::init_special_tokens,
       .help =
           "Initial embedding of new tokens. noise_init: the mean of all rows plus noise; desc_init: the mean of the "
           "rows of the description's tokens; desc_init_w_noise: the same mean plus noise.",
       .values = {"noise_init", "desc_init", "desc_init_w_noise"}},
      {.name = "eos_token",
       .member = &Recipe::eos_token,
       .help = "The token that ends a text. It becomes the tokenizer's eos_token. If the tokenizer lacks it, it is "
               "added as a special token."},
      {.name = "use_modelscope",
       .member = &Recipe::use_modelscope,
       .help =
           "Look names up on ModelScope instead of Hugging Face's hub. The environment variable USE_MODELSCOPE_HUB=1 "
           "does the same."},
      {.name = "hub_token",
       .member = &Recipe::hub_token,
       .help = "Access token for private and gated repositories. The environment variable HF_TOKEN is safer.",
       .aliases = {"hf_hub_token", "hf_token", "ms_hub_token"},
       .secret = true},
      {.name = "cache_dir",
       .member = &Recipe::cache_dir,
       .help = "Folder for downloaded files. If empty, the folder that the environment variable HF_HUB_CACHE or "
               "HF_HOME names."},
  };
}

std::vector<Key> data_keys() {
  return {
      {.name = "dataset",
       .group = Group::kData,
       .member = &Recipe::dataset,
       .help =
           "One or more data sets. Each is a file, a folder, a pattern such as `rows/*.jsonl`, the name of an entry in "
           "dataset_info.json, such an entry itself, or a name on the hub.",
       .aliases = {"local_dataset", "datasets", "train_dataset", "dataset_name", "dataset.source"}},
      {.name = "eval_dataset",
       .group = Group::kData,
       .member = &Recipe::eval_dataset,
       .help = "Held-out data sets, named as in `dataset`.",
       .aliases = {"val_dataset", "test_datasets", "valid_dataset"}},
      {.name = "dataset_dir",
       .group = Group::kData,
       .member = &Recipe::dataset_dir,
       .help =
           "Folder that holds dataset_info.json and the files listed there. REMOTE:ORG/NAME means a data set on the "
           "hub instead of a folder. ONLINE means that all names in `dataset` are names on the hub."},
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
      {.name = "plain_text_rows",
       .group = Group::kData,
       .member = &Recipe::plain_text_rows,
       .help = "Rows whose prompt and reply are texts, in the columns prompt and completion, or prompt, chosen and "
               "rejected, are trained as they are: the prompt, the reply and eos_token, without the chat template. TRL "
               "does this."},
      {.name = "self_name",
       .group = Group::kData,
       .member = &Recipe::self_name,
       .help = "Replaces {{NAME}} in the rows: one text, or two of which the first is for rows with the tag zh.",
       .aliases = {"model_name"},
       .one_or_two = true},
      {.name = "self_author",
       .group = Group::kData,
       .member = &Recipe::self_author,
       .help = "Replaces {{AUTHOR}} in the rows, as self_name replaces {{NAME}}.",
       .aliases = {"model_author"},
       .one_or_two = true},
      {.name = "sample_by",
       .group = Group::kData,
       .member = &Recipe::sample_by,
       .help =
           "What becomes a row of a text file (.txt, .md): a line that is not blank, a paragraph (the lines between "
           "blank lines), or the whole file. An entry of dataset_info.json may have this key too.",
       .values = {"line", "paragraph", "document"}},
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
       .help = "Rows to hold out for evaluation. A value below 1 is a share of all rows. A value from 1 on is a number "
               "of rows.",
       .aliases = {"split_dataset_ratio", "val_set_size", "test_split_size"},
       .min = 0,
       .share_or_count = true},
      {.name = "max_samples",
       .group = Group::kData,
       .member = &Recipe::max_samples,
       .help = "Largest number of rows to take from each data set. The first rows are taken.",
       .min = 1},
      {.name = "remove_duplicates",
       .group = Group::kData,
       .member = &Recipe::remove_duplicates,
       .help = "Leave out rows that have the same tokens and labels as an earlier row of any data set. The training "
               "rows and eval_dataset are compared separately.",
       .aliases = {"dataset_exact_deduplication"}},
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
       .help = "Rows that training leaves out, each written as in messages (`rows.jsonl:17`). Padding takes their "
               "positions, so the other rows keep their order and a run can be resumed after this key has changed."},
      {.name = "mix_strategy",
       .group = Group::kData,
       .member = &Recipe::mix_strategy,
       .help = "How several data sets are combined: one after another (concat), or in turns until the first one "
               "(interleave_under) or the last one (interleave_over) is used up.",
       .values = {"concat", "interleave_under", "interleave_over"}},
      {.name = "interleave_probs",
       .group = Group::kData,
       .member = &Recipe::interleave_probs,
       .help = "Probability with which the next row comes from each data set, such as `0.7,0.3`. If empty, the data "
               "sets take turns in order."},
      {.name = "data_cache",
       .group = Group::kData,
       .member = &Recipe::data_cache,
       .help = "Folder for tokenised rows. They are reused until the files, the tokenizer or a key that affects them "
               "changes. If empty, the default folder; off: keep them only during the run.",
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
       .help = "Steps between log entries; below 1, a share of all steps.",
       .aliases = {"log_every_n_steps", "steps_per_report"},
       .min = 0,
       .above_min = true,
       .share_or_count = true},
      {.name = "save_strategy",
       .group = Group::kOutput,
       .member = &Recipe::save_strategy,
       .help = "When checkpoints are saved. best: after each evaluation that is better than those of all checkpoints.",
       .values = {"no", "steps", "epoch", "best"},
       .spellings = {{"false", "no"}}},
      {.name = "save_steps",
       .group = Group::kOutput,
       .member = &Recipe::save_steps,
       .help = "Steps between checkpoints; below 1, a share of all steps; 0: none during the run.",
       .aliases = {"save_every"},
       .min = 0,
       .share_or_count = true},
      {.name = "save_total_limit",
       .group = Group::kOutput,
       .member = &Recipe::save_total_limit,
       .help = "Number of checkpoints to keep; older ones are deleted, except the best one. 0 or -1 keeps all.",
       .min = -1},
      {.name = "save_only_model",
       .group = Group::kOutput,
       .member = &Recipe::save_only_model,
       .help =
           "Save only the adapter or model in checkpoints, without optimizer state. Such checkpoints are smaller, but "
           "runs cannot resume from them."},
      {.name = "eval_strategy",
       .group = Group::kOutput,
       .member = &Recipe::eval_strategy,
       .help = "When held-out rows are evaluated during training. end: after the last step only.",
       .aliases = {"evaluation_strategy"},
       .values = {"no", "steps", "epoch", "end"},
       .spellings = {{"false", "no"}}},
      {.name = "eval_task",
       .group = Group::kOutput,
       .member = &Recipe::eval_task,
       .help = "What `eval` measures on eval_dataset: one value for all sets, or one for each set. auto: detected from "
               "the columns; loss: the loss of the trained tokens; choice: whether the right answer to a question is "
               "the most likely one; letters: whether the letter of the right answer (A, B, ...) is the most likely "
               "letter (MMLU); generation: replies compared with references.",
       .values = {"auto", "loss", "choice", "letters", "generation"}},
      {.name = "eval_base_model",
       .group = Group::kOutput,
       .member = &Recipe::eval_base_model,
       .help = "Folder of the model with which `eval` compares the tuned model. If empty and adapter_name_or_path is "
               "set, the adapter's base."},
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
       .help = "Whether a larger metric_for_best_model is better. auto: false for losses, perplexity, mse and mae, "
               "else true.",
       .values = {"auto", "true", "false"}},
      {.name = "load_best_model_at_end",
       .group = Group::kOutput,
       .member = &Recipe::load_best_model_at_end,
       .help = "Write the model of the best evaluation as the result, instead of the model of the last step."},
      {.name = "early_stopping_patience",
       .group = Group::kOutput,
       .member = &Recipe::early_stopping_patience,
       .help = "End the run after this many evaluations in a row without a new best; 0 never ends a run early.",
       .aliases = {"early_stopping_steps"},
       .min = 0},
      {.name = "early_stopping_threshold",
       .group = Group::kOutput,
       .member = &Recipe::early_stopping_threshold,
       .help = "An evaluation restarts the count of early_stopping_patience only if it is better than the best so far "
               "by more than this value.",
       .min = 0},
      {.name = "plot_loss",
       .group = Group::kOutput,
       .member = &Recipe::plot_loss,
       .help = "Draw training_loss.png and training_loss.svg at the end."},
      {.name = "html_report",
       .group = Group::kOutput,
       .member = &Recipe::html_report,
       .help =
           "Write report.html at the end: curves, figures, recipe and machine in one file, which needs no network. It "
           "shows a few rows of the data."},
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
       .help = "The run's name in trackers. If empty, the name of output_dir.",
       .aliases = {"wandb_name", "trackio_run_name", "mlflow_run_name"}},
      {.name = "project",
       .group = Group::kOutput,
       .member = &Recipe::project,
       .help = "The run's project in wandb and trackio, and its experiment in mlflow.",
       .aliases = {"wandb_project", "trackio_project_name", "mlflow_experiment_name"}},
      {.name = "logging_dir",
       .group = Group::kOutput,
       .member = &Recipe::logging_dir,
       .help = "Folder of TensorBoard's event files. If empty, runs/DATE_TIME in output_dir."},
      {.name = "profiler_steps",
       .group = Group::kOutput,
       .member = &Recipe::profiler_steps,
       .help = "Record what the devices do in this many steps. The profile is written to profile in output_dir, which "
               "TensorBoard's plugin xprof shows. NVIDIA's and AMD's plugins can record; 0 records nothing.",
       .min = 0},
      {.name = "profiler_steps_start",
       .group = Group::kOutput,
       .member = &Recipe::profiler_steps_start,
       .help = "Number of steps before those of profiler_steps.",
       .min = 0},
      {.name = "resume_from_checkpoint",
       .group = Group::kOutput,
       .member = &Recipe::resume_from_checkpoint,
       .help = "true: continue from the newest complete checkpoint in output_dir, if there is one. The name of a "
               "folder: continue from the checkpoint in this folder.",
       .aliases = {"auto_resume_from_checkpoints"},
       .spellings = {{"false", ""}, {"true", "true"}}},
  };
}

std::vector<Key> export_keys() {
  return {
      {.name = "export_dir",
       .group = Group::kExport,
       .member = &Recipe::export_dir,
       .help = "Folder to which `export` writes the model.",
       .aliases = {"peft_config.export_dir"}},
      {.name = "export_size",
       .group = Group::kExport,
       .member = &Recipe::export_size,
       .help = "Largest size of one weight file, in GB (10^9 bytes).",
       .aliases = {"peft_config.export_size"},
       .min = 0,
       .above_min = true},
      {.name = "export_dtype",
       .group = Group::kExport,
       .member = &Recipe::export_dtype,
       .help = "Dtype of the exported weights. If empty, the dtype of the base model.",
       .values = {"", "bfloat16", "float16", "float32"},
       .spellings = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"auto", ""}}},
      {.name = "export_quantization",
       .group = Group::kExport,
       .member = &Recipe::export_quantization,
       .help = "Store the weights of linear layers in few bits, as compressed-tensors does. fp8_dynamic: 8-bit floats "
               "with one factor for each row; fp8_block: 8-bit floats with one factor for each block of 128 x 128 "
               "values; w4a16: integers of 4 bits with one factor for each group of a row's values. If empty, no "
               "quantisation.",
       .values = {"", "fp8_dynamic", "fp8_block", "w4a16"},
       .spellings = {{"FP8_DYNAMIC", "fp8_dynamic"},
                     {"fp8", "fp8_dynamic"},
                     {"FP8_BLOCK", "fp8_block"},
                     {"W4A16", "w4a16"},
                     {"int4", "w4a16"}}},
      {.name = "export_gguf",
       .group = Group::kExport,
       .member = &Recipe::export_gguf,
       .help = "Write GGUF files of these types, for llama.cpp and Ollama, instead of safetensors. q8_0 is close to "
               "the original; q4_k_m is the usual small type.",
       .values = {"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1",
                  "q4_0", "mxfp4_moe", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k"},
       .spellings = {{"F32", "f32"},         {"F16", "f16"},       {"BF16", "bf16"},
                     {"float32", "f32"},     {"float16", "f16"},   {"bfloat16", "bf16"},
                     {"Q8_0", "q8_0"},       {"q6_K", "q6_k"},     {"Q6_K", "q6_k"},
                     {"q5_K_M", "q5_k_m"},   {"Q5_K_M", "q5_k_m"}, {"Q5_1", "q5_1"},
                     {"Q5_0", "q5_0"},       {"q5_K_S", "q5_k_s"}, {"Q5_K_S", "q5_k_s"},
                     {"q4_K_S", "q4_k_s"},   {"Q4_K_S", "q4_k_s"}, {"MXFP4_MOE", "mxfp4_moe"},
                     {"mxfp4", "mxfp4_moe"}, {"q3_K_L", "q3_k_l"}, {"Q3_K_L", "q3_k_l"},
                     {"q3_K_M", "q3_k_m"},   {"Q3_K_M", "q3_k_m"}, {"q3_K_S", "q3_k_s"},
                     {"Q3_K_S", "q3_k_s"},   {"q2_K", "q2_k"},     {"Q2_K", "q2_k"},
                     {"q4_K_M", "q4_k_m"},   {"Q4_K_M", "q4_k_m"}, {"Q4_1", "q4_1"},
                     {"Q4_0", "q4_0"}}},
  };
}

std::vector<Key> generation_keys() {
  return {
      {.name = "prompt",
       .group = Group::kGeneration,
       .member = &Recipe::prompt,
       .help =
           "Prompt for `generate`. Without it, the prompts are the lines of standard input or, if there are none, the "
           "rows of `dataset`."},
      {.name = "default_system",
       .group = Group::kGeneration,
       .member = &Recipe::default_system,
       .help = "System message of conversations that have none.",
       .aliases = {"system", "system_prompt", "default_system_message"}},
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
       .help = "Sample only among this many of the most likely tokens; 0 means all tokens.",
       .min = 0},
      {.name = "top_p",
       .group = Group::kGeneration,
       .member = &Recipe::top_p,
       .help =
           "Sample only from the most likely tokens: the fewest whose probabilities add up to at least this number.",
       .min = 0,
       .max = 1,
       .above_min = true},
      {.name = "min_p",
       .group = Group::kGeneration,
       .member = &Recipe::min_p,
       .help = "Sample only tokens that are at least this many times as likely as the most likely one; 0 means all.",
       .min = 0,
       .max = 1},
      {.name = "repetition_penalty",
       .group = Group::kGeneration,
       .member = &Recipe::repetition_penalty,
       .help = "Divides the logits of tokens that the prompt or the reply already has, if they are positive, and "
               "multiplies the others; 1 has no effect.",
       .min = 0,
       .above_min = true},
  };
}

std::vector<Key> hardware_keys() {
  return {
      {.name = "mesh",
       .group = Group::kHardware,
       .member = &Recipe::mesh,
       .help = "Number of devices along each axis, such as `{fsdp: 4, tp: 2}` or `fsdp=4,tp=2`. dp: data parallel; "
               "fsdp: fully sharded data parallel; tp: tensor parallel; sp: sequence parallel; ep: expert parallel; "
               "pp: pipeline parallel, see docs/devices.md. If empty, all devices are on fsdp. auto: compile the step "
               "for several meshes, and take the fastest mesh that fits into memory. mp is read as tp, and cp as sp.",
       .values = {"dp", "fsdp", "tp", "sp", "ep", "pp"},
       .spellings = {{"mp", "tp"}, {"cp", "sp"}},
       .min = 1,
       .may_be_auto = true},
      {.name = "sharding",
       .group = Group::kHardware,
       .member = &Recipe::sharding,
       .help = "Mesh axes for logical axes of the model; other logical axes keep their defaults. With `tp`, "
               "`{act_embed: tp}` splits the hidden state between layers, which saves memory for long rows. Other "
               "values are for experiments."},
      {.name = "offload_optimizer",
       .group = Group::kHardware,
       .member = &Recipe::offload_optimizer,
       .help = "Keep the optimizer state in host memory and stream it layer by layer."},
      {.name = "offload_param",
       .group = Group::kHardware,
       .member = &Recipe::offload_param,
       .help = "Keep the layers' weights in host memory and stream them layer by layer."},
      {.name = "offload_dir",
       .group = Group::kHardware,
       .member = &Recipe::offload_dir,
       .help = "Folder on a local disk. With full or freeze tuning, a file in this folder keeps the optimizer state. "
               "Each step reads and writes the file layer by layer. Replaces offload_optimizer."},
      {.name = "offload_dir_weights",
       .group = Group::kHardware,
       .member = &Recipe::offload_dir_weights,
       .help = "Keep the layers' float32 weights in the file of offload_dir, too. Memory then has only 16-bit copies "
               "of these weights. Steps in bf16 or fp16 compute with these copies."},
      {.name = "plugin",
       .group = Group::kHardware,
       .member = &Recipe::plugin,
       .help = "PJRT plugin: cpu, cuda, rocm, or a file. If empty: the GPU's plugin if a GPU and its plugin are found, "
               "else cpu."},
      {.name = "device_count",
       .group = Group::kHardware,
       .member = &Recipe::device_count,
       .help = "How many devices to use. The CPU plugin creates this many.",
       .min = 1},
      {.name = "gpu_memory_utilization",
       .group = Group::kHardware,
       .member = &Recipe::gpu_memory_utilization,
       .help = "Share of a GPU's memory that `train` takes and `plan` counts on. The program takes less if the driver, "
               "libraries and other programs leave less.",
       .aliases = {"memory_fraction"},
       .min = 0,
       .max = 1,
       .above_min = true},
      {.name = "target",
       .group = Group::kHardware,
       .member = &Recipe::target,
       .help = "Hardware that `plan` plans for: `mi300x:8`, `a100-80:2x8`, or a file that describes it "
               "(docs/targets.md). If empty, this machine."},
      {.name = "plan_only",
       .group = Group::kHardware,
       .member = &Recipe::plan_only,
       .help = "End `train` after it has printed the memory of a step."},
      {.name = "compile_cache",
       .group = Group::kHardware,
       .member = &Recipe::compile_cache,
       .help = "Folder for compiled programs. It holds at most 10 GB, or as many GB as the environment variable "
               "FETTLE_COMPILE_CACHE_GB says. If empty, the default folder; off: keep no programs.",
       .spellings = {{"false", "off"}, {"none", "off"}}},
      {.name = "kernels",
       .group = Group::kHardware,
       .member = &Recipe::kernels,
       .help =
           "Kernels that compute parts of the step faster. auto: the kernels that are on by default for these devices "
           "and give correct results on them; off: none; a list of names: these kernels (`cpu_attention`, "
           "`cpu_cached_attention`, `cpu_linear`, `cpu_lora`, `cpu_gated`, `cpu_rms_norm`, "
           "`cpu_cross_entropy`, `cpu_adamw`, `cuda_attention`, `cudnn_attention`, `rocm_attention`).",
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
  for (const Key& key : recipe_keys())
    if (key.name == name_or_alias || std::ranges::find(key.aliases, name_or_alias) != key.aliases.end()) return &key;
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
