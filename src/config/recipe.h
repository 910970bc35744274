// Defines Recipe: the settings of one run as plain values, read from a YAML file and key=value overrides.
//
// Key names are those of LLaMA-Factory and Hugging Face. Each key has one row in the key tables (keys.h). This row
// defines how the key is read and checked, and its help.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/key_places.h"

namespace fettle {

struct Recipe {
  // Keys about the model.
  std::string model_name_or_path;                 // a model folder, a GGUF file, or a name on a hub
  std::string model_revision;                     // branch, tag or commit on the hub; empty: main branch
  std::vector<std::string> adapter_name_or_path;  // PEFT adapter folders, or names on a hub
  bool train_from_scratch = false;                // start from random weights; the folder needs no weights
  std::string template_name;             // key `template`: name of a built-in, or a text; empty: the model's own
  std::string tool_format;               // the tool format that the template must have; empty: any
  std::string enable_thinking = "auto";  // auto, true, false
  bool preserve_thinking = false;        // earlier replies keep their thoughts
  std::string rope_scaling;              // linear, dynamic, yarn, llama3; empty: the model's own
  bool resize_vocab = false;             // the embedding has a row for every token of the tokenizer
  std::vector<std::string> add_tokens, add_special_tokens;
  std::string new_special_tokens_config;           // a yaml file that maps special tokens to descriptions
  std::string init_special_tokens = "noise_init";  // noise_init, desc_init, desc_init_w_noise
  std::string eos_token;                           // becomes the tokenizer's eos_token; empty: no change
  bool use_modelscope = false;  // names mean repositories of ModelScope; if not set, USE_MODELSCOPE_HUB decides
  std::string hub_token;        // access token; empty: from the environment
  std::string cache_dir;        // folder of downloaded files; empty: from the environment

  // Keys about the training method.
  std::string stage = "sft";             // src/stages has the values
  std::string finetuning_type = "lora";  // lora, full, freeze
  int64_t lora_rank = 8;
  std::optional<double> lora_alpha;  // default 2 x lora_rank
  double lora_dropout = 0;
  std::vector<std::string> lora_target = {"all"};
  bool use_rslora = false;
  bool use_dora = false;
  bool pissa_init = false;
  int64_t pissa_iter = 16;                       // power iterations of pissa_init; -1: an exact decomposition
  std::optional<double> loraplus_lr_ratio;       // learning rate of lora_B divided by that of lora_A
  std::vector<std::string> additional_target;    // modules that are trained whole and saved with the adapter
  std::vector<std::string> layers_to_transform;  // numbers of the decoder layers that get an adapter; empty: all
  std::vector<std::string> target_parameters;    // expert parameters with an adapter, such as mlp.experts.gate_up_proj
  bool create_new_adapter = false;               // merge all of adapter_name_or_path, then start a new adapter
  int64_t freeze_trainable_layers = 2;           // how many of the last decoder layers to train; negative: of the first
  bool use_llama_pro = false;                    // the trained decoder layers are spread evenly over the model
  std::vector<std::string> freeze_trainable_modules = {"all"};  // modules trained in those decoder layers
  std::vector<std::string> freeze_extra_modules;                // modules trained outside of the decoder layers
  std::string lora_dtype = "float32";
  std::optional<int64_t> quantization_bit;
  std::string quantization_type = "nf4";
  bool double_quantization = true;

  // Stage sft.
  std::string sft_loss = "cross_entropy";  // cross_entropy, dft, eaft, asft
  double eaft_alpha = 1, asft_alpha = 0.1;

  // Classification: stage cls. Keys that are not set come from the model or adapter, or else from the rows.
  std::string problem_type;  // single_label_classification, multi_label_classification, regression
  std::optional<int64_t> num_labels;
  std::vector<std::string> id2label;  // label names by number

  // Preferences: stages dpo, kto and rm.
  std::string pref_loss = "sigmoid";  // dpo: sigmoid, hinge, ipo, orpo, simpo
  double pref_beta = 0.1;
  double pref_ftx = 0;  // weight of the chosen reply's cross-entropy in the loss
  double dpo_label_smoothing = 0;
  std::string disable_dropout = "auto";  // auto: dropout is off in the stages of the recipe's tool
  bool dropout_is_off = false;           // what disable_dropout means for this stage: lora_dropout has no effect
  double simpo_gamma = 0.5;
  double center_rewards_coefficient = 0;
  double kto_chosen_weight = 1, kto_rejected_weight = 1;
  std::string ref_model;  // a model folder; empty: the model at the start of the run

  // Keys about the data.
  std::vector<std::string> dataset;  // files, folders, patterns, names or entries of dataset_info.json, hub names
  std::vector<std::string> eval_dataset;
  std::string dataset_dir = "data";
  int64_t cutoff_len = 2048;
  bool packing = false;          // several rows share a sequence, but do not attend to each other
  bool plain_text_rows = false;  // rows with the texts prompt and completion do not use the chat template
  std::vector<std::string> self_name, self_author;  // replace {{NAME}} and {{AUTHOR}} in rows
  std::string sample_by = "line";                   // line, paragraph, document: the rows of text files
  bool train_on_prompt = false;
  bool mask_history = false;
  double val_size = 0;  // rows held out: below 1 a share, else a number
  std::optional<int64_t> max_samples;
  bool remove_duplicates = false;
  bool disable_shuffling = false;
  std::string overlength = "cut";             // cut, drop, error
  std::string on_bad_row = "error";           // error, skip
  std::vector<std::string> skip_rows;         // "file:line" of rows to leave out
  std::string mix_strategy = "concat";        // concat, interleave_under, _over or _once
  std::vector<std::string> interleave_probs;  // a weight for each item of `dataset`; see interleave_weights
  std::string data_cache;                     // folder; empty: the default folder; "off": no cache

  // Keys about the training loop.
  int64_t per_device_train_batch_size = 8;
  std::optional<int64_t> per_device_eval_batch_size;  // default: per_device_train_batch_size
  int64_t gradient_accumulation_steps = 1;
  double learning_rate = 5e-5;
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // above 0: overrides num_train_epochs
  std::string lr_scheduler_type = "linear";
  std::optional<double> min_lr;       // last learning rate; or min_lr_rate
  std::optional<double> min_lr_rate;  // last rate divided by learning_rate; required for cosine_with_min_lr
  double lr_power = 1;                // power of the polynomial schedule
  double lr_num_cycles = 1;           // number of cycles of cosine_with_restarts
  // Steps of warmup_stable_decay. If one is empty, it gets the rest of the steps after the warmup. If both are empty,
  // a third of these steps is stable.
  std::optional<int64_t> lr_num_stable_steps, lr_num_decay_steps;
  double warmup_ratio = 0;
  double warmup_steps = 0;                  // below 1, a share of all steps (as in Transformers 5)
  int64_t max_warmup_steps = 0;             // limit for a warmup given as a share; 0: no limit
  std::optional<double> embedding_lr;       // learning rate of embedding and head; empty: learning_rate
  std::optional<double> moe_aux_loss_coef;  // weight of the loss that balances experts; empty: from config.json
  // Replaces the weight from config.json in families for which Transformers has a balancing loss.
  std::optional<double> moe_aux_loss_default;
  double moe_router_bias_update_rate = 0;     // by how much a step changes the corrections of routers; 0: not at all
  std::string output_router_logits = "auto";  // whether the balancing loss is on: auto (from config.json), true, false
  std::string optim = "adamw_torch";
  std::map<std::string, std::string> optim_args;  // hyperparameters of the optimizer by name
  bool use_muon = false;
  bool use_adam_mini = false;
  bool use_apollo = false;
  std::vector<std::string> apollo_target{"all"};  // texts that the names of linear layers contain, or "all"
  int64_t apollo_rank = 16;
  int64_t apollo_update_interval = 200;
  double apollo_scale = 32;
  std::string apollo_proj = "random";
  std::string apollo_proj_type = "std";
  std::string apollo_scale_type = "channel";
  bool apollo_scale_front = false;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0 turns clipping off
  double neftune_noise_alpha = 0;
  bool bf16 = false;
  bool fp16 = false;
  bool pure_bf16 = false;
  bool tf32 = false;
  bool fp8 = false;                             // matrix products of the layers take 8-bit operands
  std::string gradient_checkpointing = "auto";  // auto, none, attention, dots, linear, 25%, 50%, 75%, full
  int64_t seed = 42;

  // Keys about the output.
  std::string output_dir;
  bool overwrite_output_dir = false;
  double logging_steps = 10;            // below 1, a share of the run's steps
  std::string save_strategy = "steps";  // no, steps, epoch, best
  double save_steps = 500;              // below 1, a share of the run's steps; not 0 if save_strategy is steps
  int64_t save_total_limit = 0;         // 0 or -1 keeps all
  bool save_only_model = false;         // checkpoints have no optimizer state, so runs cannot resume from them
  std::string eval_strategy = "no";     // no, steps, epoch, end
  double eval_steps = 0;                // below 1, a share of the run's steps; 0: the value of logging_steps
  std::string metric_for_best_model = "loss";
  std::string greater_is_better = "auto";
  bool load_best_model_at_end = false;
  int64_t early_stopping_patience = 0;  // 0: off
  double early_stopping_threshold = 0;
  bool plot_loss = true;
  bool html_report = true;
  std::vector<std::string> report_to = {"none"};
  std::string run_name;
  std::string project = "fettle";
  std::string logging_dir;
  int64_t profiler_steps = 0;                     // 0: no profile
  int64_t profiler_steps_start = 0;               // number of steps before the profile
  std::vector<std::string> eval_task = {"auto"};  // eval: one task for all sets of eval_dataset, or one per set
  std::string eval_base_model;                    // eval: a model folder to compare with
  std::string resume_from_checkpoint;             // empty: none; "true": the newest complete checkpoint; else a folder

  // Keys about the export.
  std::string export_dir;
  double export_size = 5;                // largest size of a weight file, in GB
  std::string export_dtype;              // empty: the base model's dtype
  std::string export_quantization;       // quantisation scheme of the exported weights; empty: none
  std::vector<std::string> export_gguf;  // types of GGUF files; empty: write safetensors

  // Keys about generation.
  int64_t max_new_tokens = 512;
  bool do_sample = true;
  double temperature = 0.95;
  int64_t top_k = 50;
  double top_p = 0.7;
  double min_p = 0;
  double repetition_penalty = 1;
  std::string prompt;  // generate: one prompt; empty: the lines of stdin, or the rows of `dataset`
  std::string default_system;

  // Keys about the hardware.
  std::map<std::string, int64_t> mesh;  // the size of each axis; empty: all devices on fsdp; {auto: 1}: Fettle chooses
  std::map<std::string, std::string> sharding;  // the mesh axes of a logical axis, instead of the default ones
  bool offload_optimizer = false;               // keep the optimizer state in host memory
  bool offload_param = false;                   // keep the weights of the decoder layers in host memory
  std::string offload_dir;               // keep the optimizer state in a file of this folder; empty: keep it in memory
  bool offload_dir_weights = false;      // keep the float32 weights of the decoder layers in that file too
  std::string plugin;                    // cpu, cuda, rocm, or a file; empty: the plugin of a GPU if found, else cpu
  std::optional<int64_t> device_count;   // devices to use; the CPU plugin creates this many
  double gpu_memory_utilization = 0.95;  // share of a GPU's memory that the program may take
  std::string target;                    // plan: the hardware to plan for
  bool plan_only = false;
  std::string compile_cache;                    // folder; empty: the default folder; "off": no cache
  std::vector<std::string> kernels = {"auto"};  // auto, off, or names of kernels

  // Where each key was set, and the file read. Paths in the file are relative to the current folder.
  KeyPlaces places;

  // Returns interleave_probs as numbers; empty if the key is empty. Throws UserError if the key is set but does not
  // have one number above 0 for each item of `dataset`.
  std::vector<double> interleave_weights() const;
  double effective_lora_alpha() const { return lora_alpha.value_or(2.0 * static_cast<double>(lora_rank)); }
  bool remat_is_auto() const { return gradient_checkpointing == "auto"; }
  // Returns whether the recipe says `mesh: auto`. If so, choose_mesh (plan/mesh_choice.h) chooses among meshes that all
  // take the same number of rows per step: per_device_train_batch_size x devices x gradient_accumulation_steps.
  bool mesh_is_auto() const { return mesh.contains("auto"); }
  std::string where(std::string_view key) const { return places.of(key); }  // for messages
};

// Reads `file` (yaml; empty: only overrides), then applies "key=value" overrides in order. Throws UserError with
// file:line and the key. Errors are unknown keys (the message suggests the nearest known name), values of a wrong type
// or out of range, and values that contradict each other (checks.h).
Recipe read_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// Throws UserError if a key of `names` is empty in the recipe. The message lists these keys and says that `command`
// needs them.
void require_keys(const Recipe& recipe, std::initializer_list<std::string_view> names, std::string_view command);

// Returns the recipe as YAML. The YAML has the keys that a copy of the recipe needs (must_be_said in keys.h). Reading
// the YAML gives the same values, except for access tokens, which a comment replaces.
std::string to_yaml(const Recipe& recipe);

}  // namespace fettle
