// Defines Job: what a recipe and a model's config.json ask for, before any weight is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "adapters/quantised.h"
#include "config/recipe.h"
#include "graph/program.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "sharding/rules.h"

namespace fettle {

struct Job {
  Recipe recipe;
  Model model;
  std::optional<LoraOptions> lora;         // with an adapter
  std::vector<std::string> merged;         // adapter folders that go into the frozen weights first
  std::string adapter;                     // the folder of `lora`'s weights; empty: a new one
  bool pissa = false;                      // the new adapter starts from the base's singular vectors
  std::vector<Param> frozen, trained;      // trained: the pairs with LoRA, else every weight
  std::vector<QuantisedWeight> quantised;  // whose parts are among `frozen`
  // Of preferences: what the reference model has other than the trained one does, frozen copies of these rows. Of a new
  // adapter's pairs there is none: the reference is the base without them.
  std::vector<Param> reference;
  DType compute = DType::kF32;  // of activations and matmuls
  // What the layers' matmuls take, in training with recipe.fp8; none: `compute`. See make_job.h.
  std::optional<Float8> float8;
  DType frozen_dtype = DType::kF32;
  DType trained_dtype = DType::kF32;
  ShardingRules sharding;
  Optimizer optimizer;

  bool trains_head() const;
  bool scales_loss() const { return compute == DType::kF16; }
  int64_t batch_shards() const;               // devices the batch is split over: dp x fsdp
  int64_t rows_per_micro_batch() const;       // of data, over all devices
  int64_t sequences_per_micro_batch() const;  // a preference pair is one row of two sequences
  DType reference_dtype() const { return lora && recipe.ref_model.empty() ? trained_dtype : frozen_dtype; }
  int64_t count(const std::vector<Param>& params) const;  // elements; of `frozen` those behind codes too
  // Numbers of the layers whose tensors the parameter stands for: those it holds, of a pair those that have one; {0}
  // outside of the layers.
  std::vector<int64_t> layers_of(const Param& param) const;
  Partition partition(const Param& param) const;  // of the stacked array
  // A trained f32 matrix of the layers that the step computes with in 16 bits: with its optimizer state in the host's
  // memory it lies there too, and each step makes itself a copy in 16 bits on the device. Not beside a reference model.
  bool has_master(const Param& param) const;
  Memory state_memory() const { return recipe.offload_optimizer ? Memory::kHost : Memory::kDevice; }
  // Positions of a row are a multiple of this: 8, and the devices of sp.
  int64_t row_multiple() const;
  // Positions of the longest row: cutoff_len rounded up to the multiple.
  int64_t longest_row() const;
  // PyTorch's habit spares biases and norms.
  static bool decays(const Param& param) { return !param.is_bias_or_norm(); }
};

// Names of program inputs and outputs.
std::string frozen_input(const Param& param);
std::string trained_input(const Param& param);
std::string start_array(const Param& param);  // of a PiSSA pair: what was taken off the base for it
std::string reference_input(const Param& param);

// Name of the loss scale's state, of programs of jobs that scale the loss.
inline const std::string kLossScale = "loss_scale";

// The trained parameter as the update rule sees it.
OptimWeight optim_weight(const Job& job, const Param& param);

// An array that the optimizer keeps beside a trained parameter; `name` is that of the program input and of the output.
struct StateArray {
  std::string name;  // "m/model.layers.{}.mlp.up_proj.weight"
  Shape shape;
  LogicalAxes axes;
  Partition partition;
  Memory memory = Memory::kDevice;
};
std::vector<StateArray> optimizer_state(const Job& job, const Param& param);

}  // namespace fettle
