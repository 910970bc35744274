// Defines Run: all settings of one command with one model on one target. They are known before any weight is read.
//
// A Run is made by resolve() (resolve/resolve.h) and never changed. Later code reads only the Run, not the recipe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/lora.h"
#include "adapters/quantised.h"
#include "adapters/side_by_side.h"
#include "config/key_places.h"
#include "config/key_values.h"
#include "data/batches/batch_spec.h"
#include "data/data_spec.h"
#include "graph/scan.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "run/run_length.h"
#include "run/target.h"
#include "sharding/rules.h"
#include "stages/stage.h"

namespace fettle {

// The purpose of a run. If the recipe names no adapter, training with LoRA makes a new adapter; evaluation and
// inference use the base, with all weights frozen. Evaluation computes the stage's loss, with the reference model if
// the stage has one. Inference computes no loss.
enum class Purpose { kTraining, kEvaluation, kInference };

// The settings of the weight update. Learning rates are the values at the schedule's peak.
struct UpdateSpec {
  double learning_rate = 5e-5;
  std::optional<double> embedding_lr;  // learning rate of the token embedding and the head; none: `learning_rate`
  // The factor on `learning_rate` for lora_B, DoRA's magnitudes, biases and norms; none: 1.
  std::optional<double> loraplus_lr_ratio;
  double weight_decay = 0;
  double max_grad_norm = 1;  // 0: no clipping
  // APOLLO projects the gradients of linear layers whose names contain one of these texts; "all": of all linear layers.
  std::vector<std::string> apollo_target{"all"};
};

// The adapters of a run. Folders contain adapters in PEFT's format.
struct AdapterSpec {
  std::optional<LoraOptions> lora;  // none: the run neither trains nor applies an adapter
  std::string folder;               // the folder with the adapter's weights; empty: a new adapter or none
  std::vector<std::string> merged;  // folders of adapters that are first merged into the frozen weights
  // Several adapters at once: each row of a batch uses one adapter or none. If the list is not empty, `lora` has the
  // joined_options() of these adapters.
  std::vector<SideAdapter> side_by_side = {};
  bool pissa = false;             // the new adapter starts from the base's singular vectors
  int64_t pissa_iterations = 16;  // PiSSA's power iterations; -1: an exact decomposition

  // Returns the folders of all adapters, in the order in which they are applied.
  std::vector<std::string> folders() const;
};

// The reference model of a stage that compares the trained model with another one.
struct ReferenceSpec {
  // The reference model has frozen copies of these parameters. For a new adapter and for an adapter that is evaluated,
  // the reference model is the base without the adapter.
  std::vector<Param> params;
  bool adapted = false;  // the reference model has a frozen copy of the adapter in AdapterSpec::folder
  std::string folder;    // ref_model; empty: the model at the start of the run
};

// The dtypes in which a run computes and stores weights.
struct Precision {
  DType compute = DType::kF32;   // of activations and matmuls
  bool by_default = false;       // the recipe sets no key for `compute`
  std::optional<Float8> float8;  // dtypes of the layers' matmuls in training; none: `compute`
  DType frozen = DType::kF32;    // of frozen weights
  DType trained = DType::kF32;   // of trained weights
  bool tf32 = false;
};

// The arrays that are kept outside of device memory.
struct OffloadSpec {
  bool optimizer = false;    // the optimizer state is in host memory; false if `dir` is set
  bool param = false;        // the layers' weights are in host memory
  std::string dir;           // folder on a disk for the optimizer state; empty: the state is not on a disk
  bool dir_weights = false;  // the file in `dir` also has the float32 weights (Run::on_disk)
};

// The settings for choosing the best evaluation and for using it.
struct BestSpec {
  std::string metric = "eval_loss";  // a metric of Evaluation::metrics()
  bool greater_is_better = false;
  bool load_at_end = false;  // the result is the best evaluation's checkpoint
  bool save = false;         // a checkpoint is saved after each evaluation better than those of all checkpoints
  int64_t patience = 0;      // the run ends after this many evaluations without a better metric; 0: it never ends early
  double threshold = 0;      // `patience` counts a metric as better only if it improves by more than this

  bool used() const { return load_at_end || save || patience > 0; }
  // Returns whether the run ends after this many evaluations in a row without a better metric.
  bool ends_after(int64_t not_better) const { return patience > 0 && not_better >= patience; }
};

// The files that a command writes.
struct OutputSpec {
  std::string folder;  // output_dir
  bool overwrite = false;
  std::string resume_from;       // empty: starts anew; "true": the newest checkpoint with a state; else a folder
  int64_t save_total_limit = 0;  // number of checkpoints to keep; 0: all
  bool save_only_model = false;  // checkpoints have no state, so runs cannot resume from them
  bool plot_loss = true;
  bool html_report = true;
  std::vector<std::string> report_to = {};  // names of trackers
  std::string run_name, project;            // names in trackers; empty run_name: the folder's name
  std::string logging_dir;                  // TensorBoard's folder; empty: inside `folder`
  int64_t profile_steps = 0;                // number of steps that are recorded; 0: none
  int64_t profile_start = 0;                // number of steps before them
  // JSON: KeyValues::changed_values of the recipe, for trackers, for fettle_run.json, and to compare with the
  // run that wrote a result.
  std::string changed_keys = "{}";
};

// What a user should know about how resolve() understood the recipe. resolve() prints nothing, because a search for a
// mesh or a batch resolves a recipe many times.
struct Remarks {
  std::vector<std::string> warnings, notes;

  void print() const;  // to stderr
};

struct Run {
  const Stage* stage;
  KeyValues keys;    // only the recipe keys that belong to the stage (Stage::keys)
  KeyPlaces places;  // where all keys of the recipe were set, for messages
  RunTarget target;
  std::string model_folder;  // model_name_or_path; for a model on a hub, its folder in the hub's cache
  std::string model_name;    // model_name_or_path as in the recipe
  Model model;
  bool from_scratch = false;  // true: random weights; false: the weights in model_folder
  AdapterSpec adapter;
  std::vector<Param> frozen, trained;      // with LoRA, `trained` has the adapter's weights and the saved modules
  std::vector<QuantisedWeight> quantised;  // the quantised weights; their parts are in `frozen`
  ReferenceSpec reference;
  Precision precision;
  OffloadSpec offload;
  RematPolicy remat = {};
  // true: settle_step() will choose `remat`, which is "full" before that call, and may merge micro-batches.
  bool remat_auto = false;
  int64_t merged_micro_batches = 1;  // how many of the recipe's micro-batches are one in `batch`
  ShardingRules sharding;
  ShardingRules loss_sharding;  // for the activations of the head and the loss
  double router_bias_rate = 0;  // moe_router_bias_update_rate; 0: routers' corrections do not change
  double noise_alpha = 0;       // alpha of NEFTune's noise on the embedded tokens; 0: no noise
  UpdateSpec update;
  Optimizer optimizer;
  int64_t rows_per_device = 8;       // per_device_train_batch_size
  int64_t eval_rows_per_device = 8;  // per_device_eval_batch_size
  BatchSpec batch, eval_batch;
  DataSpec data;
  LengthSpec length;
  BestSpec best;
  OutputSpec output;
  uint64_t seed = 42;
  Remarks remarks = {};

  // Returns the finetuning_type of a run that trains: "lora"; "full" if gradients train all weights; else "freeze".
  // Buffers are frozen in full tuning, too (Role::kBuffer).
  std::string_view method() const;
  bool trains_head() const;
  bool scales_loss() const { return precision.compute == DType::kF16; }
  bool has_reference() const { return stage->has_reference(keys); }
  const std::optional<LabelSet>& labels() const { return data.labels; }
  int64_t batch_shards() const;          // number of devices that share a batch: dp x fsdp
  int64_t rows_per_micro_batch() const;  // rows of data in a micro-batch, over all devices
  int64_t rows_per_step() const;         // rows of data in a step, over all devices and micro-batches
  // Returns whether steps move (change) this frozen parameter. They move only the corrections of routers, and only if
  // `router_bias_rate` is above 0.
  bool moves(const Param& param) const;
  // Returns whether checkpoints and results contain this frozen parameter. They do if the base lacks its values: the
  // run starts from random weights, steps move the parameter, or its values are the adapter's.
  bool keeps(const Param& param) const { return from_scratch || moves(param) || param.of_adapter; }
  DType reference_dtype() const {
    return adapter.lora && reference.folder.empty() ? precision.trained : precision.frozen;
  }
  int64_t count(const std::vector<Param>& params) const;  // number of elements; for `frozen`, includes `quantised`
  // Returns the numbers of the layers whose tensors the parameter contains. For a LoRA weight, these are only the
  // layers that have LoRA weights. Returns {0} for a parameter outside of the layers.
  std::vector<int64_t> layers_of(const Param& param) const;
  Partition partition(const Param& param) const;  // how the stacked array is split over the devices
  // Returns whether the parameter is a master weight. A master weight is a trained f32 matrix of the layers. It is in
  // host memory because offload_optimizer is set. Each step copies it to the device in 16 bits. A run that computes in
  // f32, or has offload_param or a reference model, has no master weights.
  bool has_master(const Param& param) const;
  // Returns whether the parameter's f32 values are in the file in `offload.dir`. With `offload.dir_weights`, the file
  // has every trained f32 matrix of the layers. Programs then get a 16-bit copy of these values, in the dtype
  // `precision.compute`.
  bool on_disk(const Param& param) const;
  // Returns whether the parameter is a matrix of the layers that is trained in f32 while the step computes in 16 bits.
  bool trained_above_compute(const Param& param) const;
  // Returns the dtype of a parameter's array in programs. `usual` is the dtype of parameters without a dtype of their
  // own.
  DType dtype_of(const Param& param, DType usual) const;
  // Returns whether weights of the layers are trained in host memory. If so, one loop over all layers writes their
  // gradients to host memory. A loop saves the same values of each layer for the backward pass, so `remat` must treat
  // all layers alike.
  bool trains_layers_on_host() const;
  Memory state_memory() const { return offload.optimizer ? Memory::kHost : Memory::kDevice; }
  // Returns whether the optimizer state is in a file. A step then is several programs (step/disk/disk_state.h).
  bool state_on_disk() const { return !offload.dir.empty(); }
};

// Returns the same run with another policy of rematerialisation.
Run with_remat(Run run, const RematPolicy& policy);
// Returns the same run with micro-batches that are `times` as large, so that a step has fewer of them. A step keeps its
// rows and, up to the order of sums, its loss. `rows_per_device` stays as in the recipe. `times` must divide the number
// of micro-batches.
Run with_merged(Run run, int64_t times);
// Returns the same run for small batches: neither rows nor positions are split over the devices.
Run with_unsplit_rows(Run run);

// Returns why the run cannot have offload_param, as the end of a message, with a remedy; "" if it can. Does not look at
// the mesh.
std::string offload_param_refusal(const Run& run);

// Names of program inputs and outputs.
std::string frozen_input(const Param& param);
std::string trained_input(const Param& param);
std::string start_array(const Param& param);  // PiSSA's initial A or B; their product is subtracted from the base
std::string reference_input(const Param& param);

// Name of the loss scale's state, in programs of runs that scale the loss.
inline const std::string kLossScale = "loss_scale";

// Describes a trained parameter for the update rule.
OptimWeight optim_weight(const Run& run, const Param& param);

// An array that a checkpoint stores: a trained weight, its optimizer state, PiSSA's initial A or B, a frozen weight
// that the base lacks, or the loss scale. `name` is the program's input and output, if it has one.
struct StateArray {
  std::string name;  // "m/model.layers.{}.mlp.up_proj.weight"
  Shape shape;
  LogicalAxes axes;
  Partition partition;
  Memory memory = Memory::kDevice;
  bool on_disk = false;  // the array is in a file; programs get one layer at a time, in device memory
};
std::vector<StateArray> optimizer_state(const Run& run, const Param& param);
// Returns the array that training updates for this parameter.
StateArray trained_array(const Run& run, const Param& param);

}  // namespace fettle
