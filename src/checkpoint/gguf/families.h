// Defines GgufFamily: how a GGUF file names and stores the weights of a model family, and how the file's metadata
// becomes config.json.
//
// Source: the conversion of Hugging Face's models in llama.cpp (conversion/, gguf-py/gguf/tensor_mapping.py).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/fields.h"
#include "checkpoint/gguf/write/config_metadata.h"

namespace fettle {

// How the dims or the values of a tensor in a GGUF file differ from those in Hugging Face's checkpoint. "[n, 1] instead
// of [n]" means that the GGUF file has [n, 1].
enum class GgufForm {
  kSame,
  kSqueezed,        // [channels, width] instead of [channels, 1, width]
  kNegative,        // Hugging Face has the logarithm of the negated value
  kColumn,          // [n, 1] instead of [n]
  kNegativeColumn,  // like kColumn; Hugging Face has the logarithm of the negated value
  // The file has two tensors, the keys [heads, rank, size of key] and the values [heads, size of value, rank]. Hugging
  // Face has one tensor [heads * (size of key + size of value), rank] (DeepSeek).
  kKeysOfHeads,
  kValuesOfHeads,
  // The file has three tensors, q, k and v, each [n, in]. Hugging Face has one tensor [3 * n, in] (Baichuan).
  kPackedQ,
  kPackedK,
  kPackedV,
  // The file has q, k, v of all key heads in one tensor, and z of all key heads in another. Hugging Face has one tensor
  // with q, k, v and z of each key head in turn.
  kQkv,
  kGate,
  // The file has two tensors, the gates and the up projections of all experts, each [experts, size, in]. Hugging Face
  // has one tensor [experts, 2 * size, in].
  kGatesOfExperts,
  kUpsOfExperts,
  kExperts,          // all experts in one tensor, as in the checkpoint
  kGateUpOfExperts,  // like kExperts: file and checkpoint have gates and up projections in one tensor
                     // [experts, 2 * size, in]
  // The file has two tensors, the gates and the up projections, each [size, in]. Hugging Face has one tensor
  // [2 * size, in].
  kGates,
  kUps,
  // The file has three tensors [experts, out, in]: the gates, the up projections and the down projections of all
  // experts. Hugging Face has two tensors [experts, in, out]: the down projections, and gate_up, which has the gates
  // and the up projections. In the `out` dim of gate_up, they are two halves (Llama 4), or they alternate (GPT-OSS,
  // "InTurns"). Biases are [experts, out].
  kGatesInColumns,
  kUpsInColumns,
  kGatesInTurns,
  kUpsInTurns,
  kDownInColumns,
  kGrouped,  // [groups of Mamba2, n / groups] instead of [n]
};

// The names of a module in the GGUF file and in Hugging Face's checkpoint, without ".weight" and ".bias":
// "blk.{}.attn_q" and "model.layers.{}.self_attn.q_proj". If the two sides have different endings, GgufName has full
// tensor names: "blk.{}.ssm_a" and "model.layers.{}.mamba.A_log". {} is the layer's number. A second {} in Hugging
// Face's name is the expert's number; a GGUF file has all experts in one tensor.
struct GgufName {
  std::string gguf, hf;
  GgufForm form = GgufForm::kSame;
};

// How the weights of a GGUF file differ from those of Hugging Face.
struct GgufStorage {
  bool pairs_rows = false;  // in q and k, the two rows that rope rotates together are neighbours
  // A fused q|k|v has all heads of q, then k, then v. Hugging Face has q, k and v of each head in turn.
  bool parts_first = false;
  bool adds_one = false;  // norms are stored as 1 + w
  // Linear attention: in the rows and columns of values, the value heads that belong to one key head are not
  // neighbours. First come the first value heads of all key heads, then the second ones, and so on.
  bool spreads_values = false;
  bool transposes = false;  // Hugging Face's linear weights are [in, out] (Conv1D)
};

struct GgufFamily {
  std::string_view architecture;  // the value of general.architecture
  std::string_view model_type;    // Hugging Face's model_type
  std::string_view class_name;
  std::vector<GgufName> names;
  // Adds the fields of config.json that not all families share.
  void (*config)(const GgufFields& fields, nlohmann::json& config);
  GgufStorage storage = {};
  SetMetadata metadata = no_metadata;  // the inverse of `config`
  // Which models the entry is for. true: only models with experts; false: only models without experts; nullopt: both.
  std::optional<bool> experts = {};
  std::optional<bool> mamba2 = {};  // true: only models with Mamba2 layers; false: only models without; nullopt: both
};

// All families. Several entries may have the same architecture or the same model_type. If two entries have the same
// architecture and the same model_type, they differ in `experts` or `mamba2`.
const std::vector<GgufFamily>& gguf_families();

// Returns the family for writing a model of this model_type with this config. Throws UserError, which lists the
// supported types, when there is none.
const GgufFamily& gguf_family_for(const std::string& model_type, const ModelConfig& config, const std::string& model);

// Returns the family of the file. Throws UserError, which names the supported architectures, when there is none.
const GgufFamily& gguf_family_of(const GgufFields& fields);

// Returns the config.json for the file. Throws UserError when a key is missing or wrong.
nlohmann::json gguf_config(const GgufFamily& family, const GgufFields& fields);

}  // namespace fettle
