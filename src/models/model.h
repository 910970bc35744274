// Defines a model family as four short answers, and what its forward function is given.
//
// Shape legend of this folder: B rows, T positions, S keys, D hidden_size, N query heads, K key heads, G = N / K,
// H head_dim, F intermediate_size, V vocab_size, L layers.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/scan.h"
#include "models/config.h"
#include "sharding/rules.h"

namespace fettle {

// How a weight starts when a model is trained from random values.
enum class Init { kNormal, kZeros, kOnes };

// Where a classifier's head reads the hidden states of a row.
enum class Pooled { kFirst, kLast };

// A kind of weight. `name` is Hugging Face's, with {} for the layer number; stacked kinds are one program parameter
// [L, ...]. Read both ways: load fills the stack from the names, export writes the names from the stack. A second {}
// is the expert's number: dims[0] tensors a layer.
struct WeightRow {
  std::string name;  // "model.layers.{}.self_attn.q_proj.weight"
  Dims dims;         // of one layer's
  LogicalAxes axes;
  Init init = Init::kNormal;
  // Modules fused into one (q|k|v, gate|up) keep their parts apart, so that each is split over devices by itself:
  // dims[fused] parts of dims[fused + 1], which are one dim in the checkpoint. -1: dims are the checkpoint's.
  int fused = -1;
  // A stack of some layers only, when `layers` is above 0: so many from first_layer on.
  int64_t first_layer = 0, layers = 0;
  // Of the row's own; nothing: what the job gives all rows.
  std::optional<DType> dtype = {};
  // Of a classifier's head: a checkpoint may lack it, and it then starts as `init` says.
  bool head = false;

  Dims stored_dims() const;  // of one tensor in the checkpoint
  bool of_experts() const;
  // Dims of the parameter that number the checkpoint's tensors: 0, 1 (layers) or 2 (and experts).
  int stack_dims() const { return !stacked() ? 0 : of_experts() ? 2 : 1; }
  // The checkpoint's tensors in the parameter's order.
  int64_t stored_count(const ModelConfig& config) const;
  std::string stored_name(int64_t index) const;
  bool stacked() const { return name.find("{}") != std::string::npos; }
};

// Names the row among the weights of a program: its name, with "[2:4]" behind it when it holds some layers only.
std::string stack_name(const WeightRow& row);

// Weights in a graph, by stack_name (an adapter's too); a stacked one is [L, ...]. All stacks are cut at the same
// layers.
using Weights = std::map<std::string, Tensor>;

// The weights of the layer at hand, named as within the layer ("self_attn.q_proj.weight").
struct Layer {
  Tensor index;  // i32, which layer
  Weights weights;

  const Tensor& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return weights.contains(name); }
};

// Keys and values of all layers so far, [L, B, S, K, H], and how many positions are filled (i32).
struct KvCache {
  Tensor keys, values, filled;
};

// LoRA pairs beside the weights of all experts of a layer: what `gate_up` names is added to gate and up, the gate's
// rows first. Each is a prefix of ".lora_A.weight" [E, r, in] and ".lora_B.weight" [out, r, E] in the layer; empty:
// none.
struct ExpertPairs {
  std::string gate_up, down;
  double scale = 1;
};

// Everything a forward function reads. Token arrays are i32 [B, T]; rows hold documents numbered by `segments`
// (0 = padding), which never see each other, with positions restarting.
struct Forward {
  const ModelConfig& config;
  const Weights& weights;
  const ShardingRules& sharding;
  DType compute = DType::kF32;  // of activations and matmul operands
  Remat remat = Remat::kFull;
  int64_t attention_block = 512;  // queries at a time when T is larger (memory-efficient attention)
  // Adds an adapter's part to a linear layer's result: (layer, module, x, y) -> y'. Null: none.
  std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> adapt;

  std::optional<ExpertPairs> expert_pairs;
  std::optional<Float8> float8;  // what linear layers multiply; none: `compute`

  // f32 [2, experts], summed over layers and the tokens of documents: tokens sent and probability given to each. Null:
  // not wanted.
  Tensor router;
  // Makes a layer's weights of what is held for them (quantised ones). Null: they are held as they are.
  std::function<void(Layer&)> unpack;

  // The layer's slice of a stack (named by stack_name) that lies in the host's memory. Null: all lie on the device.
  std::function<Tensor(const std::string& stack, const Tensor& slice)> fetch;

  Tensor tokens, positions, segments;
  Tensor token_types;  // of encoders: 0, or 1 in the second text of a pair; null: all 0
  Tensor lengths;      // i32 [B]: of whole documents, where rope depends on it; null: by the positions at hand
  std::optional<KvCache> cache;  // generation: in; afterwards the grown one
};

// How a family classifies sequences, as Transformers' XForSequenceClassification.
struct ClassifierHead {
  std::string architecture;  // "LlamaForSequenceClassification"; empty: Transformers has none
  Pooled pooled = Pooled::kLast;
  // Linear layers one after another, tanh between them; the last gives the logits. Each is a module's name.
  std::vector<std::string> modules = {"score"};
  bool bias = false;
  std::vector<std::string> saved = {"score"};  // what PEFT's modules_to_save names of it
  // Beginnings of the names of tensors that a checkpoint may have for other tasks.
  std::vector<std::string> others = {"lm_head."};
};

struct Family {
  std::string model_type;
  std::string architecture;                        // "LlamaForCausalLM"; of an encoder its base, "BertModel"
  std::string layer_prefix;                        // "model.layers.{}."
  std::string embedding;                           // row that is also the head when tied
  std::string head;                                // row of the untied head, [V, D]
  std::vector<std::string> other_embeddings = {};  // rows looked up by positions or token types
  bool fan_in_fan_out = false;                     // linear weights are [in, out] (Conv1D)
  ModelConfig (*read)(const ConfigReader& reader);
  std::vector<WeightRow> (*weights)(const ModelConfig& config);
  Tensor (*forward)(Forward& f);  // the normalised last hidden states [B, T, D]
  // Names of the linear layers inside a layer, in order; what LoRA's `all` means.
  std::vector<std::string> linears;
  ClassifierHead classifier;
  bool encoder = false;  // sees whole rows at once: classifies only
};

const std::vector<Family>& families();
// Throws UserError listing the supported ones.
const Family& family_of(const nlohmann::json& config, const std::string& file);

// A family with its config: what the rest of the program passes around.
struct Model {
  const Family* family;
  ModelConfig config;
  std::vector<WeightRow> weights;

  const WeightRow& row(const std::string& name) const;
  bool classifies() const { return config.num_labels > 0; }
  // The row that gives the logits of tokens. Not of a classifier.
  const std::string& head() const { return config.tie_word_embeddings ? family->embedding : family->head; }
  bool is_linear(const WeightRow& row) const;  // the weight of one of family->linears
  bool is_embedding(const WeightRow& row) const;
  int64_t parameters() const;
};
// num_labels above 0: a classifier with so many, whose head is in the place of the language model's. Throws UserError
// when the family cannot be it, or when config.json is one of a classifier and num_labels is 0.
Model make_model(const nlohmann::json& config, const std::string& file, int64_t num_labels = 0);

// Layers that the row holds; 1 when it is not stacked.
int64_t layers_held(const WeightRow& row, const ModelConfig& config);
// Shape of the program parameter of a row: [L, ...] when stacked.
Shape stacked_shape(const WeightRow& row, const ModelConfig& config, DType dtype);
LogicalAxes stacked_axes(const WeightRow& row);

}  // namespace fettle
