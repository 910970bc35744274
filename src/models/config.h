// Defines ModelConfig: what Fettle knows about a model from its config.json. Many fields have the names of the keys
// that they are read from.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/arrays/shape.h"
#include "models/float8_storage.h"
#include "models/group_storage.h"
#include "models/layer_set.h"
#include "models/module_rules.h"
#include "models/quantisation.h"

namespace fettle {

// The settings of rotary embedding (rope). Source: transformers/modeling_rope_utils.py.
struct RopeParameters {
  std::string rope_type = "default";  // default, dynamic, linear, llama3, longrope, yarn, proportional
  double rope_theta = 10000;
  // The share of a head's dims that are rotated. These are the first dims of the head; with `proportional`, the first
  // dims of each half of the head.
  double partial_rotary_factor = 1;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  // Number of positions for which the unscaled rope was trained. With `dynamic`, this is max_position_embeddings, and
  // longer documents get lower frequencies.
  int64_t original_max_position_embeddings = 0;
  // longrope divides the frequencies by short_factor for documents up to original_max_position_embeddings, and by
  // long_factor for longer ones. longrope and yarn multiply cos and sin by attention_factor.
  std::vector<double> short_factor, long_factor;
  double attention_factor = 1;
  // yarn (Peng et al. 2023) divides a dim's frequency by `factor` if the dim makes fewer than beta_slow turns in
  // original_max_position_embeddings positions. It keeps the frequency if the dim makes more than beta_fast turns, and
  // blends in between.
  double beta_fast = 32, beta_slow = 1;
  double mscale_all_dim = 0;  // yarn: DeepSeek computes a further factor on the scores from this value
  bool truncate = true;       // yarn: the range of blended dims is rounded outwards to whole dims
  bool interleaved = false;   // rotated pairs are dims 2i and 2i + 1; else i and i + half of the rotated dims

  bool operator==(const RopeParameters&) const = default;
  // Returns how many dims the frequencies cover. Proportional rope covers all dims; dims that are not rotated have the
  // frequency 0.
  int64_t rotary_dim(int64_t head_dim) const;
};

enum class Norm {
  kRms,         // x / rms(x) * weight
  kRmsPlusOne,  // x / rms(x) * (1 + weight)
  kLayer,       // (x - mean) / deviation * weight + bias
  kCentred,     // (x - mean) / deviation * weight
};

// Names of the modules of a mixture of experts within a layer; {} is the number of the expert. If gate_up has a name,
// then gate_up and down are parameters with the weights of all experts, and gate and up are empty. If gate and gate_up
// are both empty, experts have no gate: they compute down(act(up(x))).
struct ExpertNames {
  std::string router, gate = {}, up = {}, down, gate_up = {};
  // Transformers' names of the router's and the experts' modules, if the checkpoint's files use other names. PEFT's
  // adapters use Transformers' names.
  std::string router_module = {}, module = {};
  bool in_first = false;  // gate_up and down are [E, in, out], else [E, out, in]
  // Transformers does not mark gate_up and down [E, in, out] as transposed. So PEFT reads them as if they were [E, out,
  // in]: PEFT's lora_A has the dim of the outputs, and lora_B has the dim of the inputs.
  bool swapped_lora = false;
  bool in_turns = false;  // outputs of gate_up alternate between gate and up; else all outputs of the gate come first

  bool fused() const { return !gate_up.empty(); }
  bool gated() const { return fused() || !gate.empty(); }

  // Returns the module names that most families use if they store each expert separately.
  static ExpertNames one_by_one() {
    return {.router = "mlp.gate",
            .gate = "mlp.experts.{}.gate_proj",
            .up = "mlp.experts.{}.up_proj",
            .down = "mlp.experts.{}.down_proj"};
  }
};

// How the router of a mixture of experts chooses a token's experts, and how it computes their routing weights.
struct Routing {
  bool sigmoid = false;    // scores are sigmoids of the logits, else their softmax
  bool in_f32 = false;     // the logits are computed in f32
  bool normalised = true;  // norm_topk_prob: the routing weights of a token sum up to 1
  // Name of a parameter that is added to the scores when experts are chosen, but not to the routing weights; "": none.
  // The parameter is always f32, because rounding it to 16 bits would change which experts are chosen.
  std::string correction = {};
  std::string factors = {};  // name of the parameter with a factor on each expert's routing weight; "": none
  // Only the experts of the `top_groups` best groups can be chosen. If best_two is true, a group's score is the sum of
  // the scores of its two best experts; else it is the score of its best expert.
  int64_t groups = 1, top_groups = 1;
  bool best_two = true;
  double scale = 1;        // factor on the routing weights
  double epsilon = 1e-20;  // added to the sum that divides a token's scores; only used if `sigmoid` and `normalised`
  bool on_inputs = false;  // the routing weights multiply the experts' inputs, else their results
};

// An MLP beside the experts, which is applied to every token.
struct SharedExpert {
  std::string module;     // "mlp.shared_experts"
  int64_t size = 0;       // inner size of this MLP
  std::string gate = {};  // a linear layer whose sigmoid multiplies the result; "": none
};

// The gated activation of GPT-OSS: gate * sigmoid(alpha * gate) * (up + 1). First, `gate` is clamped to at most
// `limit`, and `up` is clamped to [-limit, limit].
struct ClampedSwiglu {
  double alpha = 1.702, limit = 7;
};

enum class Mlp {
  kGated,       // down(act(gate(x)) * up(x))
  kFusedGated,  // like kGated, with gate and up in one module, `up`
  kPlain,       // down(act(up(x)))
  kExperts,     // a mixture of experts (moe.h), each with the inner size expert_size
};

// Names of the modules of a dense MLP within a layer.
struct MlpNames {
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";

  // Returns gate_proj, up_proj and down_proj of this module.
  static MlpNames in(const std::string& module) {
    return {module + ".gate_proj", module + ".up_proj", module + ".down_proj"};
  }
};

// Sizes of DeepSeek's multi-head latent attention. A head's query and key have plain_dim dims without rope and
// rotary_dim dims with rope; its value has value_dim dims. Values, and the dims of keys without rope, are computed from
// one vector of key_rank elements per token.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries come from the hidden state
  int64_t key_rank = 0, plain_dim = 0, rotary_dim = 0, value_dim = 0;
};

// Sizes of linear attention by a gated delta net, and the layers that use it.
struct DeltaNet {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t width = 4;  // width of the convolution
  LayerSet layers = {};
  int64_t all = 0;  // number of layers of the model

  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * key_size() + value_size(); }
  LayerSet other_layers() const;
};

// Sizes of Mamba2, and the layers that have it. Mamba2 is a linear attention. The heads of a group share keys and
// queries.
struct Mamba2 {
  std::string module = "mamba";
  int64_t heads = 0, head_dim = 0, groups = 1, state = 0;  // state: elements of a key and of a query
  int64_t width = 4;                                       // width of the convolution
  bool conv_bias = true, in_bias = false, out_bias = false;
  bool normed = true;       // a norm over each group of heads, after the gate
  double least_step = 0;    // lower bound of the step size (time_step_limit)
  double largest_step = 0;  // upper bound of the step size; 0: none
  LayerSet layers = {};

  int64_t inner() const { return heads * head_dim; }
  int64_t channels() const { return inner() + 2 * groups * state; }   // channels of the convolution: x, B and C
  int64_t projected() const { return inner() + channels() + heads; }  // outputs of in_proj: gate, x, B, C and dt
};

// Sizes of LFM2's short convolutions, and the layers that have them.
struct Lfm2 {
  int64_t width = 3;
  bool bias = false;
  LayerSet layers = {};
};

// Settings of Llama 4 that only this family has.
struct Llama4 {
  bool qk_norm = true;  // norms without weights on each head of q and k, after rope, on the layers with rope
  // Queries of the layers without rope are multiplied by 1 + growth * log(1 + floor((position + 1) / unit)).
  double growth = 0, unit = 8192;
};

// The layers of Nemotron-H with attention and the layers with an MLP. The other layers have Mamba2 or experts.
struct NemotronH {
  LayerSet attention, mlp;
};

// Factors of Falcon-H1: on the inputs and results of attention and Mamba2, on the keys, on the parts of Mamba2's
// in_proj (gate, x, B, C, dt), and on the gate and the result of the MLP.
struct FalconH1 {
  double attention_in = 1, attention_out = 1, keys = 1, mamba_in = 1, mamba_out = 1;
  std::array<double, 5> mamba_parts{1, 1, 1, 1, 1};
  double mlp_gate = 1, mlp_out = 1;
};

// Settings of Gemma 4 that only this family has. Layers with a window have heads of head_dim; the other layers ("full")
// have heads of full_head_dim.
struct Gemma4 {
  int64_t full_head_dim = 512, full_key_heads = 0;
  RopeParameters full_rope;
  bool values_are_keys = false;  // full layers compute their values from the keys' projection
  // Number of layers at the end that compute no keys and values. Such a layer uses the keys and values of an earlier
  // layer: the last one of its kind (window or full) that computes them.
  int64_t shared_layers = 0;
  bool wide_mlp = false;  // the last shared_layers layers have an MLP of twice the size
  // Each token has a further vector of layer_size elements for each layer. A table has these vectors for layer_vocab
  // token ids. layer_size 0: no such vectors.
  int64_t layer_vocab = 0, layer_size = 0;
};

// Fields that change a classifier's head (ClassifierHead).
struct ClassifierFields {
  bool mean = false;  // the head reads the mean over a sequence's tokens, instead of the hidden state of one token
  std::string act = "tanh";  // the activation between two linear layers
  bool inner_bias = true;    // false: if ClassifierHead::bias is true, only the last linear layer has a bias
};

// Fields of all families; each family reads its own. Lengths are in tokens, sizes in elements.
struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  Norm norm = Norm::kRms;
  double norm_eps = 1e-6;  // rms_norm_eps, norm_epsilon, layer_norm_epsilon
  Mlp mlp = Mlp::kGated;
  MlpNames mlp_names;
  std::string hidden_act = "silu";
  std::optional<ClampedSwiglu> clamped_swiglu;  // activation of the experts, instead of hidden_act
  ExpertNames experts;
  int64_t expert_size = 0;   // inner size of one expert
  int64_t expert_width = 0;  // size of the vectors that experts read and return; 0: hidden_size
  bool expert_bias = false;  // biases on the router and on the experts' linear layers
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  Routing routing;
  std::optional<SharedExpert> shared_expert;
  // The layers with experts; nullopt: all. In most families, the other layers have a dense MLP.
  std::optional<LayerSet> expert_layers;
  double router_aux_loss_coef = 0;  // factor of the loss that balances the experts; 0: no such loss
  bool has_balancing_loss = false;  // whether Transformers has such a loss for this family
  std::optional<LatentAttention> latent;
  std::optional<DeltaNet> delta_net;  // sizes of the layers with linear attention
  std::optional<Mamba2> mamba2;       // sizes of the layers with Mamba2
  std::optional<NemotronH> nemotron_h;
  std::optional<FalconH1> falcon_h1;
  std::optional<Lfm2> lfm2;
  std::optional<Llama4> llama4;
  std::optional<Gemma4> gemma4;
  bool tie_word_embeddings = false;
  double embedding_scale = 1;
  bool rounds_embedding_scale = false;  // embedding_scale is rounded to the dtype of the products before it is used
  double residual_scale = 1;            // factor on the results that attention and MLP add to the residual stream
  double logit_scale = 1;               // factor on the token logits
  std::string attention_module = "self_attn";
  std::string fused_qkv;            // the module that computes q, k and v together ("qkv_proj"), or ""
  bool attention_bias = false;      // biases on q, k and v
  std::optional<bool> output_bias;  // a bias on the output projection; nullopt: the value of attention_bias
  bool qk_norm = false;             // norms on each head of q and k
  bool mlp_bias = false;
  bool head_bias = false;        // a bias on the head that gives the logits of tokens
  bool parallel_mlp = true;      // gpt_neox: attention and MLP read the same input (use_parallel_residual)
  bool alibi = false;            // ALiBi instead of rope: scores fall with the distance
  double attention_scale = 0;    // factor on q.k; 0: 1 / sqrt(head_dim)
  double query_growth = 0;       // ministral3's llama_4_scaling_beta; 0: queries do not grow with the position
  double attention_softcap = 0;  // scores become cap * tanh(score / cap); 0: no cap
  double logit_softcap = 0;      // like attention_softcap, for the logits
  bool normalised_head = false;  // the head's vector for each token is scaled to length 1 before use (baichuan 2)
  double initializer_range = 0.02;
  int64_t num_labels = 0;  // labels of a classifier; 0: a language model. Not read from config.json
  ClassifierFields classifier;
  int64_t type_vocab_size = 0;  // number of token types (encoders)
  int64_t first_position = 0;   // row for position 0 in the table of learned positions (roberta)
  RopeParameters rope;
  std::vector<bool> rotates;  // for each layer, whether it has rope; empty: all have
  // Layers with rope divide each document into chunks of this many positions. A query sees only the keys of its own
  // chunk. 0: no chunks.
  int64_t attention_chunk = 0;
  std::optional<RopeParameters> local_rope;  // rope of the layers with a window, if it differs from `rope`
  bool causal = true;                        // a query sees only keys at or before its position; false: encoders
  // The window of each layer: the number of keys that a query sees, including the key at its own position. 0: all keys
  // up to that position. If `causal` is false, the query also sees as many later keys as earlier keys, and 0 means all
  // keys. Empty: 0 for all layers.
  std::vector<int64_t> window;
  DType dtype = DType::kF32;                 // dtype of the checkpoint's weights (before quantisation)
  std::optional<Quantisation> quantisation;  // how the checkpoint stores the linear layers (bitsandbytes)
  std::vector<ModuleRule> in_floats;         // the modules that `quantisation` leaves out (llm_int8_skip_modules)
  bool mxfp4 = false;                        // the checkpoint stores the experts in MXFP4
  std::optional<GroupStorage> groups;        // how the checkpoint stores linear layers as integers with scales
  std::optional<Float8Storage> float8;       // how the checkpoint stores linear layers in 8-bit floats
  std::vector<int32_t> eos_token_id;
  std::optional<int32_t> bos_token_id, pad_token_id;
  std::vector<std::string> dropouts;  // fields of config.json that ask for dropout, which Fettle does not apply

  // Returns the size of the vectors that the experts read and return.
  int64_t expert_in() const { return expert_width > 0 ? expert_width : hidden_size; }
  // Returns the number of tokens above which a document uses other rope frequencies (longrope, dynamic). 0: all
  // documents use the same frequencies.
  int64_t rope_turn() const {
    const bool turns = rope.rope_type == "longrope" || rope.rope_type == "dynamic";
    return turns ? rope.original_max_position_embeddings : 0;
  }
  // Returns the fields of config.json that state a number of key heads, as names and values. Gemma 4 has two such
  // fields, all other families have one.
  std::vector<std::pair<const char*, int64_t>> key_heads() const;
  // Returns whether layers may read more than the residual stream, such as the keys and values of an earlier layer.
  bool links_layers() const { return gemma4.has_value(); }
  // Returns the window when all layers have the same one (0: no window), else nullopt.
  std::optional<int64_t> uniform_window() const;
};

// Returns the settings, by their names in config.json, in which two models of the same shapes compute differently.
// Looks at the settings that differ between published versions of a model: rope, norms, activations, scales, caps,
// windows.
std::vector<std::string> differing_settings(const ModelConfig& a, const ModelConfig& b);

// Returns the part of config.json that has the text model's fields: `text_config` if there is one, else all of it.
const nlohmann::json& text_level(const nlohmann::json& config);

// Returns vocab_size from the text model's fields (text_level). Returns nullopt when it is missing or not an integer.
std::optional<int64_t> vocab_size_of(const nlohmann::json& config);

// Returns the ids in eos_token_id of `file`, a config.json or generation_config.json: one id or a list. Returns nothing
// if the field is missing or null. Throws UserError, which names the file, for anything else than ids.
std::vector<int32_t> end_ids(const nlohmann::json& config, const std::string& file);

// Reads fields of config.json. Throws UserError on a field of a wrong type; the message names the file and the field.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  int64_t integer(const std::string& key) const;                     // > 0; throws UserError when missing
  int64_t integer(const std::string& key, int64_t otherwise) const;  // null counts as missing
  int64_t count(const std::string& key) const;                       // >= 0; throws UserError when missing
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::string> texts(const std::string& key) const;  // elements of a list; empty when missing
  std::vector<double> numbers(const std::string& key) const;     // elements of a list; empty when missing
  // Reads a list with one text for each layer. Returns {} when the field is missing or an empty list.
  std::vector<std::string> texts_by_layer(const std::string& key, int64_t layers) const;
  bool has(const std::string& key) const;    // present and not null
  bool given(const std::string& key) const;  // present, even if null, because a null may switch a default off
  // Throws UserError unless the field is absent, null or equal to `value`, which is the only implemented value.
  void refuse_unless(const std::string& key, const nlohmann::json& value) const;
  // Reads the fields that all families share: model_type, vocab_size, tie_word_embeddings, initializer_range, dtype,
  // ids of special tokens, and how the checkpoint is quantised.
  void read_common(ModelConfig& config, bool tied_by_default) const;
  // Reads rope_theta and rope_scaling (Transformers 4) or rope_parameters (Transformers 5). If rope_parameters has an
  // entry for each kind of layer, rope() returns the entry of full attention, and local_rope() returns the entry of
  // sliding attention, or nothing if there is no such entry.
  RopeParameters rope(double default_theta = 10000, double default_partial_factor = 1) const;
  std::optional<RopeParameters> local_rope(double default_theta = 10000) const;
  // Throws UserError if the config has neither rope_parameters nor rope_scaling. For some families, Transformers then
  // scales rope by default, and other programs do not.
  void require_rope() const;
  // Returns a reader of the object at `key`. Its messages say "FILE (KEY)". Throws UserError when the field is not an
  // object.
  ConfigReader inner(const std::string& key) const;
  // Returns ModelConfig::window: `window` for the layers with sliding attention, 0 for the others. layer_types names
  // the layers with sliding attention. If layer_types is missing, they are the layers for which slides(layer) is true.
  std::vector<int64_t> windows(int64_t layers, int64_t window, const std::function<bool(int64_t)>& slides) const;
  // Reads a list of 0 and 1 (or booleans) with at least one element for each layer, and ignores further elements.
  // Returns {} when the field is missing.
  std::vector<bool> flags_by_layer(const std::string& key, int64_t layers) const;
  // Sets the number of experts, and the inner size of an expert if it is not set yet. Reads the experts per token and
  // the coefficient of the balancing loss.
  void read_experts(ModelConfig& config, int64_t experts, int64_t per_token_by_default) const;
  // Sets config.expert_layers from mlp_only_layers and decoder_sparse_step. Throws UserError when no layer has experts.
  void read_sparse_layers(ModelConfig& config) const;
  // If the value of one of `keys` is not 0, adds this key to config.dropouts.
  void note_dropouts(ModelConfig& config, const std::vector<std::string>& keys) const;

  const std::string& file() const { return file_; }
  const nlohmann::json& json() const { return *json_; }

 private:
  const nlohmann::json* find(const std::string& key) const;
  // Throws UserError because the field is not a list with one element for each layer.
  [[noreturn]] void refuse_layers(const std::string& key, int64_t layers) const;
  void finish_yarn(const ConfigReader& settings, RopeParameters& rope) const;
  // Reads the rope fields of this reader's object. If rope_theta or partial_rotary_factor is missing, its value comes
  // from `defaults`.
  RopeParameters rope_settings(RopeParameters defaults) const;
  const nlohmann::json* json_;
  std::string file_;
};

}  // namespace fettle
