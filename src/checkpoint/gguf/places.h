// Defines GgufPlaces: where a GGUF file has the tensors of a Hugging Face checkpoint. Reading and writing share it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf/families.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// The place of a tensor of a Hugging Face checkpoint.
struct GgufTarget {
  std::string tensor;             // "blk.3.ffn_up_exps.weight"
  std::optional<int64_t> expert;  // which of the tensor's first dim, when it has all experts
};

class GgufPlaces {
 public:
  // Keeps a reference to the family. `file` is for messages.
  GgufPlaces(const GgufFamily& family, int64_t heads, int64_t kv_heads, std::string file);

  // Adds the entries of the checkpoint that the file's tensor stores: one, or one for each expert. Their shapes, rows
  // and values are Hugging Face's; `encoding` and `strides` say how the file has them. Throws UserError for an unknown
  // tensor, and for a type that Fettle does not read.
  void add(const GgufTensor& tensor, std::vector<TensorEntry>& entries) const;

  // The other direction: the place of the tensor with this name; nullopt when the family's table does not have it.
  std::optional<GgufTarget> find(const std::string& hf) const;
  // The file's dims (of one expert's part) of a tensor with these dims.
  Dims stored_dims(const std::string& hf, const Dims& dims) const;

 private:
  TensorEntry place(const GgufTensor& tensor, const std::string& hf, const std::string& module,
                    const std::string& ending) const;
  bool transposes(const std::string& hf, const Dims& dims) const;
  RowSwap swap(const GgufTensor& tensor, int64_t heads, int64_t parts) const;
  RowSwap swap_parts(const GgufTensor& tensor) const;

  const GgufFamily& family_;
  std::string file_;
  int64_t heads_, kv_heads_;
  std::map<std::string, std::string> hf_, gguf_;  // the family's names by either side
};

// Whether the tensor is a table of rope's factors, which is no weight of the checkpoint.
bool is_table_of_rope(const std::string& gguf_tensor);

}  // namespace fettle
