// Defines Family, Forward and Model. Family describes a model family. Forward has the arguments of its forward
// function. Model is a family with the config and the parameters of one model.
//
// Shape legend of this folder: B lines of a micro-batch (a line is one row of its arrays), T positions, S keys, D
// hidden_size, N query heads, K key heads, G = N / K, H head_dim, F intermediate_size, V vocab_size, L layers.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/scan.h"
#include "models/config.h"
#include "models/param.h"
#include "models/remat_policy.h"
#include "sharding/rules.h"

namespace fettle {

// The token whose hidden state a classifier's head reads: the first or the last token of a sequence. Not used if
// ClassifierFields::mean is true.
enum class Pooled { kFirst, kLast };

// The parameters of a model and of its adapter, as values of a graph. Parameters of the layers are stacks [L, ...].
class Weights {
 public:
  struct Entry {
    Param param;
    Tensor value;
  };

  // Adds the parameter. Replaces a parameter with the same stack_name.
  void set(const Param& param, Tensor value) { entries_.insert_or_assign(param.stack_name(), Entry{param, value}); }
  // Returns the value with this stack_name. Throws InternalError when there is none.
  const Tensor& at(const std::string& name) const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::map<std::string, Entry> entries_;
};

// A quantised weight of all experts of a layer. In 16 bits, the weights of all experts can be larger than all else that
// a layer needs. So the loop over blocks of tokens (blocks/experts/moe.h) computes the weight of one expert at a time.
struct PackedExperts {
  std::vector<Tensor> parts;  // [E, ...]
  // Returns the weights of some experts, from parts that have only these experts.
  std::function<Tensor(const std::vector<Tensor>& parts)> unpack;
};

// The weights of the current layer, under their names within a layer ("self_attn.q_proj.weight").
struct Layer {
  Tensor index;  // i32, the layer's number
  // A loop runs over several layers whose parameters have the same names and shapes. This is the lowest layer number in
  // that loop.
  int64_t lowest = 0;
  std::map<std::string, Tensor> weights;
  std::map<std::string, PackedExperts> packed;  // quantised weights of experts

  const Tensor& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return weights.contains(name); }
};

// An array that generation keeps for the layers in `layers`. It has one slice for each of these layers. Two arrays may
// have the same name if they have no layer in common.
struct CacheArray {
  std::string name;
  LayerSet layers;
  Dims dims;  // the dims for one layer and one line; -1: the dim of positions, which grows during generation
  LogicalAxes axes;
  std::optional<DType> dtype = {};  // nullopt: the dtype of the activations

  // An array without a dim of positions is the state after the last token. From this state, generation cannot go back
  // to an earlier token.
  bool has_positions() const { return std::ranges::find(dims, -1) != dims.end(); }
};

// The arrays that generation keeps for the tokens so far. `filled` (i32 [B]) is the number of these tokens in each
// line. `real` (i32 scalar) is the number of new tokens in each line; the positions after them are padding.
struct Cache {
  std::vector<CacheArray> kinds;
  std::vector<Tensor> arrays;  // [layers, ...], one for each of `kinds`
  Tensor filled, real;
};

// LoRA weights of all experts of a layer and of the router, by their names within the layer. `gate_up` and `down` are
// prefixes of the names ".lora_A.weight" [E, r, in] and ".lora_B.weight" [out, r, E] (with ExpertNames::swapped_lora,
// `in` and `out` change places). `router` is the prefix of the arrays [r, D] and [E, r]. An empty prefix means no LoRA.
// The outputs of `gate_up` are in the order of the fused weight; if there is no fused weight, the gate's outputs come
// first, then up's.
struct ExpertLora {
  std::string gate_up, down, router;
  double scale = 1, gate_up_scale = 1;
};

// The LoRA weights of one linear layer.
struct LowRank {
  Tensor a, b;  // [R, I] and [O.., R]
  double scale;
};

// The arguments of a forward function. Token arrays are i32 [B, T]. A line has one or more documents; `segments` has
// the number of each position's document (0: padding). Tokens attend only within their document, and positions restart
// in each document.
struct Forward {
  const ModelConfig& config;
  const Weights& weights;
  const ShardingRules& sharding;
  DType compute = DType::kF32;  // dtype of activations and matmul operands
  RematPolicy remat = {};
  int64_t attention_block = 512;  // queries per block when T is larger (memory-efficient attention)
  // Adds the adapter to a linear layer's result: (layer, module, x, y) -> y'. Null: no adapter.
  std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> adapt;

  // Returns the LoRA weights of a linear layer if its adapter only adds scale * (x a^T) b^T; else nullopt, and `adapt`
  // adds the adapter. Null: `adapt` adds all adapters.
  std::function<std::optional<LowRank>(const Layer&, const std::string& module)> low_rank;

  // Changes the embedded tokens [B, T, D], for example by adding noise. Null: no change.
  std::function<Tensor(const Tensor&)> disturb;

  std::optional<ExpertLora> expert_lora;
  std::optional<Float8> float8;  // dtypes of the linear layers' products; nullopt: `compute`

  // f32 [2, experts], summed over layers and over the tokens that count. Row 0 counts the tokens that are sent to
  // each expert. Row 1 sums the probabilities that the router gives each expert. Null: not computed.
  Tensor router;
  // f32 [L, experts]: the number of tokens that each layer sends to each expert. Null: not counted.
  Tensor loads;
  // i32 [B, T]: 0 for the tokens that `router` and `loads` leave out. Null: `segments`, so all tokens of documents
  // count.
  Tensor counted;
  // Computes the layer's quantised weights from their stored parts, and puts them into Layer::weights. The parts of
  // experts go into Layer::packed instead. If `after` is given, the program waits for its value before it computes the
  // weights. The function then replaces `*after` by a copy, and the layer must use the copy. Null: no weights are
  // quantised.
  std::function<void(Layer&, Tensor* after)> unpack;

  // Returns a device array: the layer's slice of a stack. If the stack is in host memory, the slice is copied to the
  // device. Null: all stacks are on the device.
  std::function<Tensor(const Param& param, const Tensor& slice)> fetch;

  // Each stage of a pipeline computes only some lines of the batch, with a copy of this Forward (`stage`). The token
  // arrays of the copy already have only these lines. Other arrays [B, ...], such as those that `adapt` uses, still
  // have all lines. enter_stage makes the copy use rows(array) [B', ...] instead. Null: there are no other arrays.
  using RowsOf = std::function<Tensor(const Tensor& array)>;
  std::function<void(Forward& stage, const RowsOf& rows)> enter_stage;
  // The lines consist of this many micro-batches, which pass through a pipeline: line r belongs to micro-batch
  // r % micro_batches.
  int64_t micro_batches = 1;
  Tensor used_micro_batches;  // i32: number of micro-batches that a pipeline computes; null: all

  Tensor tokens, positions, segments;
  // The number of the document that the position's document continues, or its own number. Tokens also attend to that
  // document, and positions go on after it. For models whose layers only have attention. Null: documents stand alone.
  Tensor prompts;
  Tensor token_types;  // encoders: 1 for tokens of a second text, else 0; null: all 0
  Tensor lengths;      // i32 [B]: length of the whole document, if rope depends on it; null: computed from `positions`
  std::optional<Cache> cache;  // generation: the forward function adds the new tokens to it
};

// Describes how a family classifies sequences, like Transformers' ...ForSequenceClassification classes.
struct ClassifierHead {
  std::string architecture;  // "LlamaForSequenceClassification"; empty when Transformers has none
  Pooled pooled = Pooled::kLast;
  // Module names of the linear layers, in order, with an activation between two of them. The last layer gives the
  // logits.
  std::vector<std::string> modules = {"score"};
  std::string norm = {};  // a norm before the last linear layer; "": none
  bool bias = false;
  std::vector<std::string> saved = {"score"};  // the names for PEFT's modules_to_save
  // Prefixes of tensors for other tasks. A checkpoint may contain such tensors; they are ignored.
  std::vector<std::string> others = {"lm_head."};
};

// Returns the arrays "keys" and "values", both [1, S, K, H], of these layers.
std::vector<CacheArray> keys_and_values(const ModelConfig& config, const LayerSet& layers);

struct Family {
  std::string model_type;
  std::string architecture;     // "LlamaForCausalLM"; for an encoder its base class, "BertModel"
  std::string layer_prefix;     // "model.layers.{}."
  bool fan_in_fan_out = false;  // linear weights are [in, out] (Conv1D)
  std::function<ModelConfig(const ConfigReader& reader)> read;
  std::function<std::vector<Param>(const ModelConfig& config)> params;
  std::function<Tensor(Forward& f)> forward;  // returns the last hidden states [B, T, D] after the final norm
  std::function<std::vector<CacheArray>(const ModelConfig& config)> cache = [](const ModelConfig& c) {
    return keys_and_values(c, all_layers(c.num_hidden_layers));
  };
  // Tensors of a checkpoint that are ignored. Most repeat other values: buffers of older versions, or a second copy of
  // the tied head. "*" stands for any prefix or any suffix.
  std::vector<std::string> ignored = {};
  ClassifierHead classifier;
  // Prefixes of tensors that belong to the checkpoint but not to the text model (a vision tower). They are not loaded;
  // export and full tuning copy them.
  std::vector<std::string> carried = {};
  // Returns the names of tensors that a checkpoint may have for the model's layers although no computation uses them.
  // Export and full tuning copy these tensors. Null: there are none.
  std::function<std::vector<std::string>(const ModelConfig& config)> unused = nullptr;
  // Linear layers within a layer that LoRA leaves out, because PEFT refuses adapters with them.
  std::vector<std::string> without_lora = {};
  // Under Transformers 5, PEFT reads LoRA on gate_proj, up_proj and down_proj as LoRA on the routed experts. So it does
  // not load LoRA weights of shared experts or dense MLPs.
  bool mlp_is_experts_in_peft = false;
  std::string head = "lm_head";  // the module that gives the logits of tokens
  bool encoder = false;          // tokens attend in both directions; such a family can only classify
};

// Returns the family without a classifier, for families of which Transformers has no ...ForSequenceClassification.
Family without_classifier(Family family);
// Returns the family with Family::mlp_is_experts_in_peft set. PEFT's list of such families is
// _MODEL_TO_CONVERSION_PATTERN of Transformers: those with "qwen2_moe".
Family with_mlp_as_experts_in_peft(Family family);

// Returns whether the tensor has a prefix of Family::carried. Export and full tuning copy such a tensor unchanged.
bool carries(const Family& family, std::string_view tensor);
// Returns whether the tensor's layer has the number num_hidden_layers or more. Such a layer predicts tokens further
// ahead.
bool is_of_later_layer(const Family& family, const ModelConfig& config, std::string_view tensor);
// Returns whether no computation uses the tensor: it is of a later layer, or Family::unused names it. Export and full
// tuning copy such a tensor.
bool is_unused(const Family& family, const ModelConfig& config, std::string_view tensor);

const std::vector<Family>& families();
// Returns the family for the model_type in config.json; null when that type is not supported.
const Family* find_family(const nlohmann::json& config);
// Returns the family. Throws UserError, which lists the supported types, when the model_type is not supported.
const Family& family_of(const nlohmann::json& config, const std::string& file);

// A family with a model's config and parameters. Most parts of Fettle get a model in this form.
struct Model {
  const Family* family;
  ModelConfig config;
  std::vector<Param> params;

  const Param& param(const std::string& hf_name) const;
  // Returns the names of the linear layers, in order: names within a layer, or the whole name of a linear layer outside
  // of the layers. The head is not included.
  std::vector<std::string> linears() const;
  // Returns the whole name of a linear layer. If the linear layer is inside the decoder layers, the name has {} in
  // place of the decoder layer's number.
  std::string path_of(const std::string& linear) const;
  // Returns the weights of a linear layer. There are several if the linear layer has different dims in different
  // decoder layers.
  std::vector<Param> linear(const std::string& module) const;
  // Returns the numbers of the decoder layers that have this linear layer, in ascending order. Returns {0} if the
  // linear layer is outside of the decoder layers.
  std::vector<int64_t> layers_of(const std::string& module) const;
  bool classifies() const { return config.num_labels > 0; }
  // Returns the parameter that gives the logits of tokens. Throws InternalError for a classifier.
  const Param& head() const;
  int64_t parameters() const;
};
// Makes a language model, or, if `num_labels` is above 0, a classifier with this number of labels. Throws UserError
// when the family cannot be used in this way, when config.json is not usable, or when config.json describes a
// classifier and num_labels is 0.
Model make_model(const nlohmann::json& config, const std::string& file, int64_t num_labels = 0);

}  // namespace fettle
