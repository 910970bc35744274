// Defines LoRA: trained low-rank matrices A and B for frozen linear layers. Source: Hu et al. 2021, and PEFT's naming.
//
// The LoRA weights of a module are lora_A [r, in] and lora_B [out, r] (fused: [parts, out, r]). They add scale * B A
// dropout(x) to the module's result. DoRA (Liu et al. 2024) adds lora_magnitude_vector [out] and scales each row of W +
// scale * B A, so that the row's norm equals the row's element of this vector.
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
  // The expert parameters that have LoRA weights, including the router's weight, in the order of expert_parameters().
  std::vector<std::string> parameters = {};
  // The rank and alpha of gate_up are `gate_up_factor` times those of other modules. PEFT uses 2 when its config names
  // gate and up.
  int64_t gate_up_factor = 1;
  std::vector<std::string> saved = {};  // modules that are trained in full, like PEFT's modules_to_save

  // Returns the `scale` in scale * B A, for a module whose rank and alpha are `factor` times the options' rank and
  // alpha.
  double scale(int64_t factor = 1) const;
};

// Returns the modules that `targets` match. "all" and "all-linear" match every linear layer of the blocks, except those
// for which PEFT does not load adapters (Family::without_lora). Other names match as in PEFT: `q_proj` matches
// `self_attn.q_proj`, because a target is the whole name or its end after a dot. A single target with characters of a
// regular expression must match a layer's whole name in Transformers
// ("model.language_model.layers.0.self_attn.q_proj"). Warns about a name that matches nothing if another name matches.
// Throws UserError when no target matches, when a name matches only linear layers in Family::without_lora, and when a
// regular expression matches one of these or matches a module in only some layers of the model.
std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets);

// Returns which parameters of experts `targets` match. A parameter is the weights of all experts of a layer, under the
// name of Transformers 5 and PEFT ("mlp.experts.gate_up_proj": gate and up fused), or the router's weight
// ("mlp.gate.weight"). Throws UserError, which lists the possible names, when a target matches nothing, or when the
// model has no experts.
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
// magnitude. Returns an empty list when there are none. Gate and up of an expert share A and B; B has first the outputs
// for the gate, then the outputs for up.
std::vector<Param> lora_params_of(const Model& model, const LoraOptions& options, const Param& base);
// Returns whether the layer (i32 scalar) is one of options.layers, which must not be empty.
Tensor has_lora(const LoraOptions& options, const Tensor& layer);

// Returns whether the parameter belongs to a module that `saved` names. As in PEFT, the module's name must end with
// `saved`.
bool saved_with(std::string_view parameter, std::string_view saved);

// Returns the parameters of the base that options.saved selects (the module's name must end with the entry, as in
// PEFT). Throws UserError, which lists the modules, when an entry matches nothing. Also throws when the module has LoRA
// weights, and when the model ties embedding and head but only one of them would be trained.
std::vector<Param> saved_params(const Model& model, const LoraOptions& options);
// Returns the name that the head's weight would have in a model that uses its embedding as its head. Returns "" for
// other models and for classifiers.
std::string tied_head(const Model& model);
// Returns whether the adapter saves an embedding that is also the head. PEFT keeps a copy for each of the two uses, so
// the adapter's file has the array under both names.
bool saves_tied_head(const Model& model, const LoraOptions& options);

// The source of dropout masks. A mask depends on a sequence's number and on the position in the sequence. It depends
// neither on the sequence's line in the batch nor on the mesh.
struct DropoutKey {
  Tensor seed;       // u32 scalar, mixed from the run's seed and the step
  Tensor rows;       // i32 [B, T]: for each position, its sequence's number in the step
  Tensor positions;  // i32 [B, T]: the index of each position in its sequence
};

// Sets forward.adapt and forward.expert_lora, so that the forward pass uses the adapter. Without a key, nothing is
// dropped. `row_scales`, if given, are f32 [B, r]: for each row of the batch, the scale of each rank, in place of
// options.scale() (see side_by_side.h).
void add_lora(Forward& forward, const LoraOptions& options, const DropoutKey* key = nullptr,
              const Tensor& row_scales = {});
// Returns the function for Forward::adapt. Without a key, or with dropout 0, the function drops nothing. `rules` must
// outlive the function. Without `rules`, products treat their inputs as not split.
std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const DropoutKey* key, const ShardingRules* rules = nullptr,
    const Tensor& row_scales = {});

// Returns the FNV-1a hash of the text, from which keys of random numbers are made.
uint32_t hash_of(const std::string& text);
// Returns a uniform u32 for each element. The value depends only on the key and the element's global index.
Tensor random_bits(const Dims& dims, const Tensor& key_u32);
// Returns a uniform u32 for each element of [B, T, D]. The value depends only on key.seed, the sequence's number, the
// position in the sequence and the feature.
Tensor random_bits_of_rows(int64_t features, const DropoutKey& key);

}  // namespace fettle
