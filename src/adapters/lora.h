// Defines LoRA: trained low-rank matrices A and B for frozen linear layers. Source: Hu et al. 2021, and PEFT's naming.
//
// The LoRA weights of a module are lora_A [r, in] and lora_B [out, r] (for a fused module: [parts, out, r]). They add
// scale * B A dropout(x) to the module's result. DoRA (dora.h) also has lora_magnitude_vector [out].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/random.h"
#include "models/model.h"

namespace fettle {

// What a parameter of a mixture of experts does. kGateUp: gate and up, or up alone if the experts have no gate.
enum class ExpertPart { kRouter, kGateUp, kDown };

// The router's weight ("mlp.gate.weight"), or the weights of all experts of a layer ("mlp.experts.gate_up_proj"). The
// name is that of Transformers 5 and PEFT, within a layer.
struct ExpertParameter {
  ExpertPart part;
  std::string name;

  bool operator==(const ExpertParameter&) const = default;
};

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;                // as adapter_config.json says
  bool dropout_is_off = false;       // training ignores `dropout` (disable_dropout)
  bool rslora = false;               // scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  std::vector<std::string> modules;  // names within a layer: "self_attn.q_proj"
  bool fan_in_fan_out = false;       // base weights are [in, out]
  bool dora = false;
  std::vector<int64_t> layers = {};  // the layers that have LoRA weights; empty: all
  // The parameters of experts and of the router that have LoRA weights, as expert_parameters() returns them.
  std::vector<ExpertParameter> parameters = {};
  // The rank and alpha of gate_up are `gate_up_factor` times those of other modules. PEFT uses 2 when its config names
  // gate and up instead of gate_up.
  int64_t gate_up_factor = 1;
  std::vector<std::string> saved = {};  // modules that the adapter has in full, like PEFT's modules_to_save
  // Those entries of `saved` that are not trained, unless another entry of `saved` selects the same module: embedding
  // and head, which PEFT stores without naming them if the vocabulary was resized.
  std::vector<std::string> only_stored = {};

  double active_dropout() const { return dropout_is_off ? 0 : dropout; }
  // Returns the `scale` in scale * B A, for a module whose rank and alpha are `factor` times the options' rank and
  // alpha.
  double scale(int64_t factor = 1) const;
};

// Returns the modules that `targets` match. "all" and "all-linear" match every linear layer inside the model's layers,
// except those for which PEFT does not load adapters (Family::without_lora). Other names match as in PEFT: a target
// matches a module if it is the module's whole name, or the part of the name after one of its dots. So `q_proj` matches
// `self_attn.q_proj`. If a name matches nothing, but another name matches, adds a warning to `warnings` (if not null).
// Throws UserError when no name matches, and when a name matches only linear layers in Family::without_lora.
//
// A single target is a regular expression if it contains one of *[](){}|\+?^$. It must match whole names of linear
// layers in Transformers ("model.layers.0.self_attn.q_proj"). Throws UserError when it matches nothing, a layer in
// Family::without_lora, a module in only some layers of the model, or an embedding or head whose name it contains.
std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets,
                                      std::vector<std::string>* warnings = nullptr);

// Returns which parameters of experts `targets` match, in the order router, gate_up, down. The targets come from the
// recipe or, if `file` is not empty, from this file of an adapter. Throws UserError, which lists the possible names,
// when a target matches nothing, or when the model has no experts. Also throws when a target names one layer
// ("7.mlp.experts.down_proj"), as PEFT allows.
std::vector<ExpertParameter> expert_parameters(const Model& model, const std::vector<std::string>& targets,
                                               const std::string& file = "");

// `parameter` is one of options.parameters. Returns the prefix that its LoRA weights have within a layer: "mlp.experts"
// or "mlp.experts.base_layer". PEFT nests its wrappers: if options.parameters has two parameters of a module, the LoRA
// weights of the first are under "base_layer".
std::string lora_of_parameter(const LoraOptions& options, const ExpertParameter& parameter);
// Returns the value of Forward::expert_lora, or nullopt when options.parameters is empty.
std::optional<ExpertLora> expert_lora(const LoraOptions& options);

// Returns the LoRA weights of experts: lora_A [E, r, in] and lora_B [out, r, E], sharded like the experts. With
// ExpertNames::swapped_lora, `in` and `out` change places. PEFT's files store these weights as [E r, in] and [out, r
// E]. The LoRA weights of the router are [r, D] and [E, r].
std::vector<Param> expert_lora_params(const Model& model, const LoraOptions& options);

// Returns all LoRA weights, also those of experts. They are named "<module>.lora_A.weight" within the layer. A is
// sharded like the input of the base weight. B and the magnitude are sharded like the output of the base weight. The
// stacked arrays also have slices for layers without LoRA weights (LoraOptions::layers); the values of these slices
// have no effect.
std::vector<Param> lora_params(const Model& model, const LoraOptions& options);
// Returns the LoRA weights that change one parameter of the base, on the layers of `base`: A, B and, with DoRA, the
// magnitude. Returns an empty list when there are none. Gate and up of an expert share A and B.
std::vector<Param> lora_params_of(const Model& model, const LoraOptions& options, const Param& base);
// Returns whether the layer (i32 scalar) is one of options.layers, which must not be empty.
Tensor has_lora(const LoraOptions& options, const Tensor& layer);

// Returns whether the name of the parameter's module, or of a module that contains it, ends with `saved`. PEFT's
// modules_to_save selects in the same way.
bool saved_with(std::string_view parameter, std::string_view saved);

// Returns the options without the entries of `saved` that are only stored.
LoraOptions without_stored(LoraOptions options);

// Returns the parameters of the base that options.saved selects (see saved_with). If the model ties embedding and head,
// an entry that matches the head's name selects the embedding. Throws UserError, which lists the modules, when an entry
// matches nothing. Also throws when a selected module has LoRA weights.
std::vector<Param> saved_params(const Model& model, const LoraOptions& options);
// If the model uses its embedding as its head, returns the name that a separate weight of the head would have.
// Otherwise, and for classifiers, returns "".
std::string tied_head(const Model& model);
// Returns the whole names of the modules that are embedding and head, also that of a tied head ("transformer.wte").
std::vector<std::string> table_names(const Model& model);
// Returns whether the adapter saves an embedding that is also the head. PEFT keeps a copy for each of the two uses, so
// the adapter's file has the array under both names.
bool saves_tied_head(const Model& model, const LoraOptions& options);

// Sets the members of `forward` through which the forward pass uses the adapter: adapt, low_rank, enter_stage and
// expert_lora. Without a key, or with dropout 0, nothing is dropped. If `row_scales` f32 [B, r] is given, it replaces
// options.scale(): in row b of the batch, element i of A x is multiplied by row_scales[b, i] (see side_by_side.h).
void add_lora(Forward& forward, const LoraOptions& options, const PositionKey* key = nullptr,
              const Tensor& row_scales = {});
// Returns the function for Forward::adapt. For `key` and `row_scales`, see add_lora. `rules` must outlive the function;
// null: no input is split over devices.
std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const PositionKey* key, const ShardingRules* rules = nullptr,
    const Tensor& row_scales = {});

}  // namespace fettle
