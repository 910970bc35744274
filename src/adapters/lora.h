// Defines LoRA: low-rank pairs beside frozen linear layers. Source: Hu et al. 2021, and PEFT's naming.
//
// A module's LoRA pair is lora_A [r, in] and lora_B [out, r] (fused: [parts, out, r]); its result gains scale * B A
// dropout(x). DoRA (Liu et al. 2024) adds lora_magnitude_vector [out]: the rows of W + scale * B A are brought to those
// norms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;
  bool rslora = false;               // scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  std::vector<std::string> modules;  // within a layer: "self_attn.q_proj"
  bool fan_in_fan_out = false;       // base weights are [in, out]
  bool dora = false;
  std::vector<int64_t> layers = {};          // those that have LoRA pairs; empty: all
  std::vector<std::string> parameters = {};  // of experts, that have LoRA pairs: of expert_parameters, in that order
  std::vector<std::string> saved = {};       // modules trained whole beside them, named as PEFT's modules_to_save

  double scale() const;
};

// The modules that `targets` mean: "all" and "all-linear" every linear layer of the blocks, else names matched as PEFT
// matches them (the whole name, or its end after a dot). Throws UserError listing the names when one matches none.
std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets);

// What `targets` mean of the parameters that hold the weights of all experts of a layer, named as Transformers 5 and
// PEFT name them ("mlp.experts.gate_up_proj": gate and up of an expert in one). Throws UserError listing them when one
// matches none, or when the model has no experts.
std::vector<std::string> expert_parameters(const Model& model, const std::vector<std::string>& targets);

// Where the LoRA pair of one of options.parameters lies within a layer: as PEFT nests its wrappers, the first of two
// within the second's base_layer.
std::string lora_of_parameter(const LoraOptions& options, const std::string& parameter);
// What Forward::expert_lora is; none without parameters.
std::optional<ExpertLora> expert_lora(const LoraOptions& options);

// The LoRA pairs of experts: lora_A [E, r, in] and lora_B [out, r, E], sharded as the experts are. PEFT's files have
// them as [E r, in] and [out, r E].
std::vector<Param> expert_lora_params(const Model& model, const LoraOptions& options);

// The LoRA pairs, of experts too, named "<module>.lora_A.weight" in the layer; sharded as their base: A as its input, B
// and the magnitude as its output. Layers without a pair have a place in the stack, which holds anything and does
// nothing.
std::vector<Param> lora_params(const Model& model, const LoraOptions& options);
// Those of them that change one parameter of the base: A, B and, with DoRA, the magnitude; empty when none does. The
// experts' gate and up share a pair, whose B has the gate's outputs before up's.
std::vector<Param> lora_params_of(const Model& model, const LoraOptions& options, const Param& base);
// Whether the layer (i32) is one of options.layers, which must not be empty.
Tensor has_lora(const LoraOptions& options, const Tensor& layer);

// Whether the parameter is part of a module that `saved` names, as PEFT matches: one whose name ends so.
bool saved_with(std::string_view parameter, std::string_view saved);

// Parameters of the base that `saved` means: of modules whose name ends so, as PEFT matches. Throws UserError listing
// the modules when a name matches none, when it has a LoRA pair of its own, or when the head would be trained apart
// from the embedding it is tied to.
std::vector<Param> saved_params(const Model& model, const LoraOptions& options);

// Where a dropout mask comes from: the same for any mesh.
struct DropoutKey {
  Tensor seed;  // u32 scalar: mixes the run's seed, the step and the micro-batch
};

// Lets a forward pass add the adapter's part, that of experts too. Without a key nothing is dropped.
void add_lora(Forward& forward, const LoraOptions& options, const DropoutKey* key = nullptr);
// What Forward::adapt calls. Without a key (or with dropout 0) nothing is dropped.
std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const DropoutKey* key);

// A uniform u32 for each element, a function of key and the element's global index alone.
Tensor random_bits(const Dims& dims, const Tensor& key_u32);

}  // namespace fettle
