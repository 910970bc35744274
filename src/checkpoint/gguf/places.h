// Defines GgufPlaces, which maps the tensors of a Hugging Face checkpoint to those of a GGUF file, for reading and
// writing.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf/families.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// The rows [first, first + count) of a checkpoint's tensor. A GGUF file stores these rows together. All dims before the
// last one count as rows. `position` is the place of the piece among all pieces of the checkpoint's tensor.
//
// If `step` is not 0, the checkpoint's tensor is [experts, in, out] (a bias: [experts, out]), and the piece has every
// step-th output of an expert, `count` outputs in all. `first` is then expert * out + the first output.
struct GgufPiece {
  int64_t first, count, position;
  int64_t step = 0;
};

// The tensor of a GGUF file that stores a tensor of a Hugging Face checkpoint.
struct GgufTarget {
  std::string tensor;             // "blk.3.ffn_up_exps.weight"
  std::optional<int64_t> expert;  // the index in the file's first dim, if the checkpoint has one tensor per expert
  std::vector<GgufPiece> pieces;  // in the file's order; empty: both tensors have the same rows
};

// The sizes of a model that determine the row order or the dims of some tensors.
struct GgufHeads {
  int64_t heads = 0, kv_heads = 0;
  int64_t groups = 1;                                    // Mamba2: groups; linear attention: key heads
  int64_t values = 1, key_dim = 0;                       // linear attention: number of value heads, size of a key head
  int64_t plain_dim = 0;                                 // DeepSeek: dims of a key without rope
  int64_t value_dim = 0;                                 // DeepSeek and linear attention: dims of a value
  int64_t experts = 0, expert_size = 0, width = 0;       // set if the checkpoint has all experts in one tensor
  int64_t shared_size = 0;                               // Granite 4: inner size of the shared MLP
  int64_t head_dim = 0;                                  // Baichuan
  int64_t layers = std::numeric_limits<int64_t>::max();  // tensors of this and all later layers are left out
};

class GgufPlaces {
 public:
  // Keeps a reference to the family. `file` is for messages.
  GgufPlaces(const GgufFamily& family, const GgufHeads& heads, std::string file);

  // Adds the checkpoint's entries that the file's tensor stores: one, or one for each expert or piece. Adds none for a
  // table of rope's factors, and none for a layer that is left out. Shapes, row order and values are those of Hugging
  // Face; `encoding` and `strides` describe the file. Throws UserError for an unknown tensor, and for a type that
  // Fettle does not read.
  void add(const GgufTensor& tensor, std::vector<TensorEntry>& entries) const;

  // Returns the file's tensors for the checkpoint's tensor `hf`: one, or several that divide its rows. Returns none
  // when the family's table lacks `hf`.
  std::vector<GgufTarget> find(const std::string& hf) const;
  // Returns the target's dims in the file. `dims` are the dims of the checkpoint's tensor `hf`. If the target is an
  // expert, returns the dims of this expert's part of the file's tensor.
  Dims stored_dims(const GgufTarget& target, const std::string& hf, const Dims& dims) const;

 private:
  bool of_experts(GgufForm form) const;
  const GgufName* find_gguf(const std::string& module, std::string& ending) const;
  std::vector<const GgufName*> find_hf(const std::string& pattern, std::string& ending) const;
  std::vector<GgufPiece> pieces_of(GgufForm form) const;
  void add_pieces(const GgufTensor& tensor, GgufForm form, TensorEntry entry, std::vector<TensorEntry>& entries) const;
  TensorEntry place(const GgufTensor& tensor, const GgufName& name, const std::string& hf,
                    const std::string& ending) const;
  bool transposes(const std::string& hf, const Dims& dims) const;
  RowSwap swap(const GgufTensor& tensor, int64_t heads, int64_t parts) const;
  RowSwap swap_values(const GgufTensor& tensor, int64_t begin, int64_t size) const;
  RowSwap swap_parts(const GgufTensor& tensor) const;

  const GgufFamily& family_;
  std::string file_;
  GgufHeads heads_;
  std::map<std::string, const GgufName*> by_gguf_;
  std::map<std::string, std::vector<const GgufName*>> by_hf_;
};

// The name of an entry that is a piece (GgufPiece). ModelRepository joins the pieces.
struct PieceName {
  std::string whole;      // the name of the checkpoint's tensor
  int64_t experts = 0;    // number of experts in that tensor; 0: it has no experts
  bool columns = false;   // the tensor is [experts, in, out]; a piece has outputs of one expert
  bool in_turns = false;  // output i of an expert is in piece i % n of the expert's n pieces
};

// Returns nullopt when the entry with this name is a whole tensor.
std::optional<PieceName> piece_of_name(const std::string& name);

// Returns whether the family's checkpoints have the weights of all experts in one tensor. If they do, GgufHeads needs
// the experts' sizes.
bool has_experts_in_one(const GgufFamily& family);
// Returns whether the family's checkpoints have the shared MLP's gates and up projections in one tensor (Granite 4). If
// they do, GgufHeads needs that MLP's size.
bool has_gates_and_ups_in_one(const GgufFamily& family);

// Returns whether the tensor is a table of rope's factors. A Hugging Face checkpoint has no such tensor.
bool is_table_of_rope(const std::string& gguf_tensor);

}  // namespace fettle
