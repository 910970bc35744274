// Defines BlockType, a format in which a GGUF file stores a tensor's elements. Also defines functions that decode and
// encode blocks.
//
// A block has consecutive elements of one row and, in quantised types, their scale. Source of the layouts:
// ggml-quants.c and gguf-py's quants.py of llama.cpp. The decoded values equal those of gguf-py bit for bit. The
// encoded blocks are equal, too, for the types that gguf-py encodes (block_encoders.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fettle {

struct BlockType {
  uint32_t number;                                   // the number of the type in GGUF files
  std::string_view name;                             // "Q4_K"
  int64_t elements;                                  // elements in a block
  int64_t bytes;                                     // bytes of a block
  void (*decode)(const uint8_t* block, float* out);  // decodes one block; null: Fettle does not read this type
  // Encodes one block of finite values; null: Fettle does not write this type.
  void (*encode)(const float* values, uint8_t* block) = nullptr;

  bool is_float() const { return elements == 1; }
};

// The types that Fettle reads, as messages list them.
inline constexpr const char* kReadTypes =
    "F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, Q5_1, Q5_0, Q4_1, Q4_0 or MXFP4";

// Returns the type with this number; nullptr when Fettle does not know it.
const BlockType* find_block_type(uint32_t number);
const BlockType* find_block_type(std::string_view name);

// Decodes the elements [first, first + count) of the blocks at `data` into `out`.
void decode_blocks(const BlockType& type, const std::byte* data, int64_t first, int64_t count, float* out);
// Encodes `count` values into `out`. `count` is a multiple of the type's block size.
void encode_blocks(const BlockType& type, const float* values, int64_t count, std::byte* out);

}  // namespace fettle
