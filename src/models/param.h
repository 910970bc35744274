// Defines Param, which describes one parameter (or one per layer), and ParamList, in which a family lists its
// parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "models/layer_set.h"
#include "sharding/rules.h"

namespace fettle {

// The initial values of a parameter that is not read from a checkpoint. kNormal: the standard deviation is
// config.initializer_range. kUniformByFanIn: uniform from -x to x for x = 1 / sqrt(last dim), Kaiming's rule with
// a = sqrt(5).
enum class Init { kNormal, kZeros, kOnes, kUniformByFanIn };

// What a parameter does in the model.
enum class Role {
  kTokenEmbedding,     // [V, D]; with tied embeddings it is also the head
  kPositionEmbedding,  // a table of learned positions
  kTypeEmbedding,      // a table with a vector for each token type
  kLayerEmbedding,     // a second table of tokens, with a vector for each token and layer (Gemma 4)
  kHead,               // [V, D]: gives the logits of tokens
  kHeadBias,           // [V]: the bias of kHead
  kClassifier,         // a weight of a classifier's head. If a checkpoint lacks it, it is initialised by `init`
  kClassifierBias,     // a bias of a classifier's head
  kClassifierNorm,     // a scale or an offset of a norm in a classifier's head
  kNorm,               // scales or offsets of a norm
  kLinear,             // the weight of a linear layer inside the model's layers; LoRA's `all` selects these
  kBias,               // the bias of a linear layer
  kRouter,             // chooses each token's experts
  kBuffer,             // numbers that no gradient trains: a correction of a router's scores, a factor of a layer
  kExpertGate,         // weights of all experts of a layer
  kExpertUp,
  kExpertDown,
  kExpertsFused,  // weights of all experts of a layer, in one tensor of the checkpoint
  kExpertBias,    // biases of all experts of a layer, in one tensor
  kCoefficients,  // learned numbers of other kinds: sinks of attention, short convolutions, decays
  kLoraA,
  kLoraB,
  kLoraMagnitude,   // DoRA's magnitude of each output
  kQuantisedParts,  // codes of a quantised weight, and the numbers from which its values are computed
};

// Describes one parameter. For a parameter of the layers, the program has one stacked parameter [L, ...]. Loading fills
// it from one checkpoint tensor per layer (or per layer and expert, if of_experts()), and export writes these tensors
// again.
struct Param {
  // Hugging Face's name, with {} for the layer's number: "model.layers.{}.self_attn.q_proj.weight". If the
  // checkpoint has one tensor per expert, a second {} stands for the number of the expert.
  std::string hf_name;
  Dims dims;  // dims of one layer; for experts, dims[0] is the number of experts
  LogicalAxes axes;
  Role role;
  LayerSet layers = {};
  Init init = Init::kNormal;
  // dims[fused] and dims[fused + 1] are one dim in the checkpoint; -1: there are no such dims. For example, the parts
  // of a fused module (q|k|v, gate|up) have a dim of their own, so that each part is split over devices separately.
  int fused = -1;
  std::optional<DType> dtype = {};  // nullopt: the dtype that the run gives to all parameters without a dtype
  Memory memory = Memory::kDevice;  // the memory in which the program parameter is
  bool trained = false;
  bool norm_offset = false;  // true for the offset (bias) of a norm
  int64_t head_rows = 0;     // rows of one head, in the weight of a query or key projection; 0: other parameters
  bool of_adapter = false;   // a frozen parameter with the adapter's values instead of the base's

  bool stacked() const { return !layers.numbers.empty(); }
  bool of_experts() const;     // the checkpoint has one tensor per expert
  bool has_experts() const;    // has weights of a layer's experts, in one tensor or several
  bool of_classifier() const;  // belongs to a classifier's head
  bool is_lora() const;
  bool is_embedding() const;  // a table whose rows are selected by ids
  bool is_bias() const;       // is added to the result of a linear layer, a convolution, experts or a norm
  bool is_bias_or_norm() const;

  // Returns the number of leading dims that the program parameter has and one tensor of the checkpoint lacks: 0, 1
  // (layers) or 2 (layers and experts).
  int stack_dims() const { return !stacked() ? 0 : of_experts() ? 2 : 1; }
  int64_t layer_count() const { return stacked() ? layers.count() : 1; }
  // Returns the name of the program parameter: hf_name, followed by "[2:4]" (first layer, layer after the last) when
  // the stack was cut.
  std::string stack_name() const;

  // Returns the dtype in which results and exports write the parameter. `usual` is the dtype of parameters without a
  // dtype of their own.
  DType written_dtype(DType usual) const { return dtype.value_or(usual); }
  // Returns the dims of one tensor in the checkpoint.
  Dims stored_dims() const;
  // Returns the number of the checkpoint's tensors that form the program parameter.
  int64_t stored_count() const;
  std::string stored_name(int64_t index) const;
};

// Returns the module that the parameter or tensor belongs to: "model.norm" for "model.norm.weight".
std::string module_of(const std::string& name);
// Returns the last part of a module's name: "q_proj" for "self_attn.q_proj".
std::string last_part(const std::string& module);

// Return the shape and the axes of the program parameter: [L, ...] if it is stacked.
Shape stacked_shape(const Param& param, DType dtype);
LogicalAxes stacked_axes(const Param& param);

// The size of a dim and its logical axis.
struct SizedAxis {
  int64_t size;
  std::string axis;
};

struct LinearOptions {
  bool bias = false;
  bool in_first = false;  // the weight is [in, out] (Conv1D)
  int64_t parts = 1;      // number of modules, each with `out` outputs, that are fused into this one
  int64_t head_rows = 0;  // Param::head_rows of the weight
};

// Collects a model's parameters. Modules are named without ".weight" and ".bias".
class ParamList {
 public:
  // The model has `all_layers` layers. The names of their parameters begin with layer_prefix.
  ParamList(std::string layer_prefix, int64_t all_layers);

  // After in_layers(), the added parameters belong to all layers, or to the layers with the given numbers; their names
  // are relative to the layer. After outside(), the added parameters are outside of the layers and have full names.
  // Parameters with the same name and different dims may be added for different layers. After in_layers() with an empty
  // list, nothing is added.
  ParamList& in_layers();
  ParamList& in_layers(std::vector<int64_t> numbers);
  ParamList& outside();

  void add(const std::string& name, Dims dims, LogicalAxes axes, Role role, Init init = Init::kNormal,
           std::optional<DType> dtype = {});
  // Adds a parameter of a fused module. `fused` is Param::fused.
  void add_fused(const std::string& name, Dims dims, LogicalAxes axes, int fused, Role role);
  // Adds a weight [rows, width].
  void embedding(const std::string& module, int64_t rows, int64_t width, Role role = Role::kTokenEmbedding);
  void head(const std::string& module, int64_t vocab, int64_t width, bool bias = false);
  // Adds a scale, initialised by `init`, and, with `bias`, an offset.
  void norm(const std::string& module, int64_t size, Init init, bool bias);
  // Adds a weight and, with options.bias, a bias. The weight is [out, in], or [parts, out, in] if there are several
  // parts. With options.in_first, it is [in, out] or [in, parts, out].
  void linear(const std::string& module, const SizedAxis& out, const SizedAxis& in, const LinearOptions& options = {});

  std::vector<Param> take() { return std::move(params_); }

 private:
  std::string prefix_;
  LayerSet all_, here_;
  bool skips_ = false;  // true after in_layers() with an empty list: nothing is added
  std::vector<Param> params_;
};

}  // namespace fettle
