// Defines GgufFileType, which determines the type of each tensor in a GGUF file.
//
// Source: llama.cpp, which calls it ftype (llama.h) and chooses the tensors' types in convert_hf_to_gguf.py and
// llama-quant.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/arrays/shape.h"
#include "checkpoint/gguf/block_types.h"

namespace fettle {

struct GgufFileType {
  std::string_view key;   // the value of export_gguf: "q4_k_m"
  std::string_view name;  // the name of the type in names of files: "Q4_K_M"
  int64_t number;         // the value of general.file_type
  std::string_view type;  // the type of most tensors: "Q4_K"
};

// Returns the type with this key; null when there is none.
const GgufFileType* find_gguf_file_type(std::string_view key);

// Properties of a model that determine the types of its tensors.
struct GgufSizes {
  int64_t layers = 0;
  int64_t experts = 0;          // number of experts; 0: none
  bool tied = false;            // token_embd is also the head
  bool is_70b = false;          // 80 layers, and either Qwen 2 or a Llama with grouped queries
  int64_t queries_per_key = 1;  // query heads per key head in the first layer; 0: no attention
  // value_layers: the layers with the tensor attn_v or attn_qkv. down_layers: those with ffn_down. Empty: all layers.
  std::vector<int64_t> value_layers = {}, down_layers = {};
};

// Returns the type of the tensor with this name and these dims (row-major). Vectors, norms, routers, convolutions and
// tables of positions are F32 in all files. A tensor whose rows are not whole blocks gets a type with smaller blocks,
// or F16.
const BlockType& type_in_file(const GgufFileType& file, const std::string& tensor, const Dims& dims,
                              const GgufSizes& sizes);

}  // namespace fettle
