// Defines Param, all that the program knows of a kind of parameter, and ParamList, in which a family lists its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "sharding/rules.h"

namespace fettle {

// How a parameter starts when it is not read: normal with config.initializer_range, 0, 1, or uniform within
// +-1 / sqrt(its last dim) (Kaiming's with a = sqrt 5).
enum class Init { kNormal, kZeros, kOnes, kUniformByFanIn };

// What a parameter does. Nothing learns this from a name.
enum class Role {
  kTokenEmbedding,     // [V, D]; where the two are tied it is the head too
  kPositionEmbedding,  // a table of learned positions
  kTypeEmbedding,      // of token types
  kHead,               // [V, D]: gives the logits of tokens
  kClassifier,         // a weight of a classifier's head; a checkpoint may lack it, it then starts as `init` says
  kClassifierBias,     // ... a bias
  kNorm,               // scales or offsets of a norm
  kLinear,             // the weight of a linear layer of the blocks: what LoRA's `all` means
  kBias,               // of a linear layer
  kRouter,             // gives each token its experts
  kExpertGate,         // weights of all experts of a layer
  kExpertUp,
  kExpertDown,
  kLoraA,
  kLoraB,
  kLoraMagnitude,   // DoRA's
  kQuantisedParts,  // codes of a quantised weight, and what is beside them
};

// Layers [first, first + count) of `all`. A count of 0: outside of the layers.
struct LayerRange {
  int64_t first = 0, count = 0, all = 0;
};

// A kind of parameter. One of the layers is one program parameter [L, ...], which loading fills from the checkpoint's
// names and from which export writes them.
struct Param {
  std::string hf_name;  // Hugging Face's, {} for the layer's number: "model.layers.{}.self_attn.q_proj.weight"
  Dims dims;            // of one layer's; of experts dims[0] is their number, which a second {} stands for
  LogicalAxes axes;
  Role role;
  LayerRange layers = {};
  Init init = Init::kNormal;
  // Modules fused into one (q|k|v, gate|up) keep their parts apart, so that each is split over devices by itself:
  // dims[fused] parts of dims[fused + 1], which are one dim in the checkpoint. -1: dims are the checkpoint's.
  int fused = -1;
  std::optional<DType> dtype = {};  // nothing: what the job gives all
  Memory memory = Memory::kDevice;  // where the program parameter lies
  bool trained = false;

  bool stacked() const { return layers.count > 0; }
  bool of_experts() const;  // the checkpoint has one tensor an expert
  bool of_classifier() const { return role == Role::kClassifier || role == Role::kClassifierBias; }
  bool is_lora() const;
  bool is_embedding() const;  // looked up by ids
  bool is_bias_or_norm() const;

  // Dims of the program parameter that number the checkpoint's tensors: 0, 1 (layers) or 2 (and experts).
  int stack_dims() const { return !stacked() ? 0 : of_experts() ? 2 : 1; }
  int64_t layer_count() const { return stacked() ? layers.count : 1; }
  // The program parameter's name: hf_name, with "[2:4]" behind it when it has some of the layers only.
  std::string stack_name() const;

  // Of one tensor in the checkpoint.
  Dims stored_dims() const;
  // The checkpoint's tensors, in the program parameter's order.
  int64_t stored_count() const;
  std::string stored_name(int64_t index) const;
};

// Shape and axes of the program parameter: [L, ...] when stacked.
Shape stacked_shape(const Param& param, DType dtype);
LogicalAxes stacked_axes(const Param& param);

// A size and the logical axis that it lies on.
struct SizedAxis {
  int64_t size;
  std::string axis;
};

struct LinearOptions {
  bool bias = false;
  bool in_first = false;  // the weight is [in, out] (Conv1D)
  int64_t parts = 1;      // so many modules of `out` each, fused into one
};

// A model's parameters in the making. Modules are named without ".weight" and ".bias".
class ParamList {
 public:
  // Of `all_layers` layers whose parameters' names begin with layer_prefix.
  ParamList(std::string layer_prefix, int64_t all_layers);

  // What is listed from here on lies in the layers, under names within one; or outside of them, under whole names.
  ParamList& in_layers();
  ParamList& outside();

  void add(const std::string& name, Dims dims, LogicalAxes axes, Role role, Init init = Init::kNormal);
  // [rows, width].
  void embedding(const std::string& module, int64_t rows, int64_t width, Role role = Role::kTokenEmbedding);
  void head(const std::string& module, int64_t vocab, int64_t width);
  // A scale that starts as `init` and, if wanted, offsets.
  void norm(const std::string& module, int64_t size, Init init, bool bias);
  // [out, in] (or in_first) with, if wanted, its bias; parts are held apart: [parts, out, in].
  void linear(const std::string& module, const SizedAxis& out, const SizedAxis& in, const LinearOptions& options = {});

  std::vector<Param> take() { return std::move(params_); }

 private:
  std::string prefix_;
  LayerRange all_, here_;
  std::vector<Param> params_;
};

}  // namespace fettle
