// Defines Request: the user's input to a command, before the devices are known.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "data/classes/taught_labels.h"
#include "programs/devices.h"
#include "run/assumed_devices.h"
#include "run/model_folders.h"
#include "run/run.h"
#include "run/variant.h"

namespace fettle {

struct Recipe;

enum class Command { kTrain, kPlan, kData, kEval, kGenerate, kChat, kServe, kExport };

// The settings for generating replies.
struct GenerationSpec {
  std::string prompt;  // one prompt; empty: the prompts are rows of the data or lines of stdin
  int64_t max_new_tokens = 512;
  bool do_sample = true;
  double temperature = 0.95;
  int64_t top_k = 50;
  double top_p = 0.7, min_p = 0, repetition_penalty = 1;
  uint64_t seed = 42;
};

// The settings of `eval`.
struct EvalSpec {
  std::vector<std::string> tasks;  // eval_task: one task for all sets, or one per set; "auto": a set's columns decide
  std::string base_model;          // eval_base_model; empty: none
  std::string output_dir;
};

struct ExportSpec {
  std::string folder;
  int64_t shard_bytes = 0;
  bool splits_gguf = false;       // the recipe sets export_size, so shard_bytes also limits GGUF files
  std::optional<DType> dtype;     // none: the base's dtype
  std::vector<std::string> gguf;  // export_gguf: the types of GGUF files to write; empty: writes safetensors
  std::string quantization;       // export_quantization; empty: none
};

// A checked recipe with its opened model folder. The folders of src that docs/map.md lists after `run` use the Request
// and never the recipe. Copies share the recipe.
class Request {
 public:
  // Fetches the models that the recipe names on a hub (model_folders.h). Throws UserError when a key that the command
  // needs is missing, the model folder is broken, or keys contradict the stage.
  Request(const Recipe& recipe, Command command);

  const Stage& stage() const { return *stage_; }
  const KeyPlaces& places() const;  // where the recipe's keys were set, for messages
  const ModelRepository& repository() const { return *repository_; }
  std::string config_file() const;          // the path of the model's config.json, for messages
  const std::string& model_folder() const;  // for a model on a hub, its folder in the hub's cache
  const std::vector<std::string>& adapters() const;
  // Returns the message about an adapter that lacks the adapters below it (checkpoint/peft/earlier_adapters.h); "" if
  // there is none. The constructor has already warned about it.
  std::string missing_adapters() const;
  // Returns the names of the model and its adapters, "base + adapter". A name is the name on the hub or the name of the
  // folder.
  std::string model_title() const;
  // Returns the labels if the stage trains a classifier, and nullopt for other stages. The first call reads the rows if
  // the recipe and the model do not determine all labels. A plan reads no rows when the recipe gives the names or the
  // number of the labels.
  const std::optional<LabelSet>& labels() const;
  DataSpec data() const;
  // Returns the same as data(), but without labels, so that no rows are read.
  DataSpec data_without_labels() const;

  DeviceRequest devices() const;
  AssumedDevices assumed_devices() const;
  bool mesh_is_auto() const;
  bool remat_is_auto() const;
  bool names_mesh() const;  // true when the recipe's mesh gives sizes of axes
  // Returns the batch specification on this number of devices, for commands that open no device. With
  // Purpose::kTraining, returns the batch specification of `train`. With Purpose::kEvaluation, returns the batch
  // specification of `eval`. With `mesh: auto`, all devices are on fsdp.
  BatchSpec batch(int64_t devices, BatchUse use, Purpose purpose = Purpose::kTraining) const;
  MeshAxes mesh(int64_t devices) const;
  // Returns the hardware to plan for: NAME[:DEVICES | :HOSTSxDEVICES], or the path of a target file instead of NAME.
  // "this" and "" mean this machine.
  const std::string& target() const;
  std::optional<int64_t> device_count() const;  // the number of devices that the recipe asks for

  bool plan_only() const;
  nlohmann::json changed_keys() const;  // KeyValues::changed_values of the recipe
  GenerationSpec generation() const;
  EvalSpec eval() const;
  ExportSpec exported() const;

  // Returns the run on these devices. Throws UserError like resolve().
  Run resolve(const RunTarget& target, Purpose purpose, const Variant& variant = {}) const;

  // Returns whether the model or one of the adapters has a trained classifier or score head.
  bool has_taught_head() const;
  // Returns the recipe's keys about labels.
  LabelRequest label_request() const;
  TaughtLabels taught_labels() const;

  // Returns the quantised format of the linear layers (quantisation_of in resolve/quantise.h); nullopt when they are
  // not quantised or are integers in groups (GPTQ, AWQ, packed). Throws UserError when the checkpoint and the recipe
  // differ in the number of bits.
  std::optional<Quantisation> quantisation(const ModelConfig& config) const;

  // Returns this request with the stage that evaluates rows of other kinds (Stage::measured_as): for dpo, this is sft.
  // Returns the request unchanged if the stage evaluates only its own rows.
  Request for_other_rows() const;
  // Returns whether the stage's loss compares with a reference model.
  bool has_reference() const;
  bool names_reference() const;  // the recipe has ref_model

  // Returns the same request with these adapters, which may be names on a hub.
  Request with_adapters(const std::vector<std::string>& adapters) const;
  // without_adapters returns the same request without its adapters. with_model also replaces the model folder and drops
  // the recipe's keys about labels. The new request determines its labels again.
  Request without_adapters() const;
  Request with_model(const std::string& folder) const;
  // Returns a request for comparing logits: all arithmetic is in f32, and nothing is offloaded. `num_labels` is above 0
  // for a classifier. If `merged` is given, this model folder replaces the model and its adapters.
  Request exact(int64_t num_labels, const std::string& merged = "") const;

 private:
  // Fetches models_ and opens the model's folder. With `changes`, first applies the recipe's changes to the model
  // (change_model).
  void open(bool changes);

  std::shared_ptr<const Recipe> recipe_;
  Command command_ = Command::kTrain;
  const Stage* stage_ = nullptr;  // the recipe's stage, unless `eval` or a comparison of logits needs another one
  ModelFolders models_;
  std::shared_ptr<const ModelRepository> repository_;
  mutable std::shared_ptr<const std::optional<LabelSet>> labels_;  // null: not settled yet
};

}  // namespace fettle
