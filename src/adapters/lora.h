// Defines LoRA: trained low-rank matrices A and B for frozen linear layers. Source: Hu et al. 2021, and PEFT's naming.
//
// The LoRA weights of a module are lora_A [r, in] and lora_B [out, r] (fused: [parts, out, r]). They add scale * B A
// dropout(x) to the module's result. DoRA (Liu et al. 2024) adds lora_magnitude_vector [out]: the norms to which the
// rows of W + scale * B A are scaled.
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
  std::vector<std::string> modules;  // names within a layer: "self_attn.q_proj"
  bool fan_in_fan_out = false;       // base weights are [in, out]
  bool dora = false;
  std::vector<int64_t> layers = {};  // the layers that have LoRA weights; empty: all
  // Expert parameters, and the router's weight, that have LoRA weights, in the order of expert_parameters().
  std::vector<std::string> parameters = {};
  // The rank and alpha of gate_up are this factor times those of other modules. PEFT uses 2 when its config names gate
  // and up.
  int64_t gate_up_factor = 1;
  std::vector<std::string> saved = {};  // modules that are trained in full, like PEFT's modules_to_save

  // Returns the factor on B A of a module whose rank and alpha are `factor` times rank and alpha.
  double scale(int64_t factor = 1) const;
};

// Returns the modules that `targets` match. "all" and "all-linear" match every linear layer of the blocks. Other names
// match as in PEFT: the whole name, or its end after a dot. Throws UserError, which lists the names, when a target
// matches nothing.
std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets);

// Returns which parameters of experts `targets` match: the weights of all experts of a layer, under the name of
// Transformers 5 and PEFT ("mlp.experts.gate_up_proj": gate and up fused), or the router's weight ("mlp.gate.weight").
// Throws UserError, which lists the possible names, when a target matches nothing, or when the model has no experts.
std::vector<std::string> expert_parameters(const Model& model, const std::vector<std::string>& targets);

// Returns the prefix, within a layer, of the LoRA weights for a parameter in options.parameters. PEFT nests its
// wrappers: if a module has two such parameters, the weights of the first are under "base_layer" of the second.
std::string lora_of_parameter(const LoraOptions& options, const std::string& parameter);
// Returns the value of Forward::expert_lora, or nullopt when options.parameters is empty.
std::optional<ExpertLora> expert_lora(const LoraOptions& options);

// Returns the LoRA weights of experts: lora_A [E, r, in] and lora_B [out, r, E], sharded like the experts. PEFT's files
// store them as [E r, in] and [out, r E]. The LoRA weights of the router are [r, D] and [E, r].
std::vector<Param> expert_lora_params(const Model& model, const LoraOptions& options);

// Returns all LoRA weights, also those of experts. They are named "<module>.lora_A.weight" within the layer. A is
// sharded like the input of the base weight, B and the magnitude like its output. The stacked arrays also have slots
// for layers without LoRA weights; their values have no effect.
std::vector<Param> lora_params(const Model& model, const LoraOptions& options);
// Returns the LoRA weights that change one parameter of the base, on the layers of `base`: A, B and, with DoRA, the
// magnitude; empty when there are none. Gate and up of an expert share A and B; the outputs of B for the gate come
// first, then those for up.
std::vector<Param> lora_params_of(const Model& model, const LoraOptions& options, const Param& base);
// Returns whether the layer (i32) is one of options.layers, which must not be empty.
Tensor has_lora(const LoraOptions& options, const Tensor& layer);

// Returns whether the parameter belongs to a module that `saved` names. As in PEFT, the end of the module's name must
// match.
bool saved_with(std::string_view parameter, std::string_view saved);

// Returns the parameters of the base that `saved` selects (the end of the module's name must match, as in PEFT). Throws
// UserError, which lists the modules, when a name matches nothing. Also throws when the module has LoRA weights, and
// when the model ties embedding and head but only one of them would be trained.
std::vector<Param> saved_params(const Model& model, const LoraOptions& options);
// The name of the head's weight in a model that uses its embedding as its head; empty in other models and in
// classifiers.
std::string tied_head(const Model& model);
// Returns whether the adapter has such an embedding. PEFT keeps a copy for each of the two uses, so the adapter's file
// has the array under both names.
bool saves_tied_head(const Model& model, const LoraOptions& options);

// The source of dropout masks. A mask depends on the row and the position in the row, not on the place of the row in
// the batch or on the mesh.
struct DropoutKey {
  Tensor seed;       // u32 scalar, mixed from the run's seed and the step
  Tensor rows;       // i32 [B, T]: the number of each position's row in the step
  Tensor positions;  // i32 [B, T]: the place of each position in its row
};

// Adds the adapter to the forward pass, including its weights for experts. Without a key, nothing is dropped.
void add_lora(Forward& forward, const LoraOptions& options, const DropoutKey* key = nullptr);
// Returns the function for Forward::adapt. Without a key (or with dropout 0), nothing is dropped. `rules` must outlive
// the function. Without `rules`, products treat their inputs as not split.
std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const DropoutKey* key, const ShardingRules* rules = nullptr);

// Returns a uniform u32 for each element. It depends only on the key and the element's global index.
Tensor random_bits(const Dims& dims, const Tensor& key_u32);
// Returns a uniform u32 for each element of [B, T, D]. It depends only on key.seed, the row, the position in the row
// and the feature.
Tensor random_bits_of_rows(int64_t features, const DropoutKey& key);

}  // namespace fettle
