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
#include "models/param.h"
#include "sharding/rules.h"

namespace fettle {

// Where a classifier's head reads the hidden states of a row.
enum class Pooled { kFirst, kLast };

// A model's parameters as values of a graph, an adapter's too. Those of the layers are stacks [L, ...], all cut at the
// same layers.
class Weights {
 public:
  struct Entry {
    Param param;
    Tensor value;
  };

  // Replaces one of the same stack_name.
  void set(const Param& param, Tensor value) { entries_.insert_or_assign(param.stack_name(), Entry{param, value}); }
  // By stack_name.
  const Tensor& at(const std::string& name) const;
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::map<std::string, Entry> entries_;
};

// The weights of the layer at hand, named as within the layer ("self_attn.q_proj.weight").
struct Layer {
  Tensor index;  // i32, which layer
  std::map<std::string, Tensor> weights;

  const Tensor& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return weights.contains(name); }
};

// Keys and values of all layers so far, [L, B, S, K, H], and how many positions are filled (i32).
struct KvCache {
  Tensor keys, values, filled;
};

// LoRA pairs beside the weights of all experts of a layer: what `gate_up` names is added to gate and up, to the gate
// first. Each is a prefix of ".lora_A.weight" [E, r, in] and ".lora_B.weight" [out, r, E] in the layer; empty:
// none.
struct ExpertLora {
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

  std::optional<ExpertLora> expert_lora;
  std::optional<Float8> float8;  // what linear layers multiply; none: `compute`

  // f32 [2, experts], summed over layers and the tokens of documents: tokens sent and probability given to each. Null:
  // not wanted.
  Tensor router;
  // Makes a layer's weights of what is held for them (quantised ones). Null: they are held as they are.
  std::function<void(Layer&)> unpack;

  // The layer's slice of a stack that lies in the host's memory. Null: all lie on the device.
  std::function<Tensor(const Param& param, const Tensor& slice)> fetch;

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
  std::string architecture;     // "LlamaForCausalLM"; of an encoder its base, "BertModel"
  std::string layer_prefix;     // "model.layers.{}."
  bool fan_in_fan_out = false;  // linear weights are [in, out] (Conv1D)
  ModelConfig (*read)(const ConfigReader& reader);
  std::vector<Param> (*params)(const ModelConfig& config);
  Tensor (*forward)(Forward& f);  // the normalised last hidden states [B, T, D]
  // Tensors that a checkpoint may have and that say nothing new: buffers of older versions, the head tied to the
  // embedding stored again. "*" stands for any beginning.
  std::vector<std::string> ignored = {};
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
  std::vector<Param> params;

  const Param& param(const std::string& hf_name) const;
  // The weight of a linear layer, by its name within a layer.
  const Param& linear(const std::string& module) const { return param(family->layer_prefix + module + ".weight"); }
  // Names of the linear layers inside a layer, in order.
  std::vector<std::string> linears() const;
  bool classifies() const { return config.num_labels > 0; }
  // What gives the logits of tokens. Not of a classifier.
  const Param& head() const;
  int64_t parameters() const;
};
// num_labels above 0: a classifier with so many, whose head is in the place of the language model's. Throws UserError
// when the family cannot be it, or when config.json is one of a classifier and num_labels is 0.
Model make_model(const nlohmann::json& config, const std::string& file, int64_t num_labels = 0);

}  // namespace fettle
