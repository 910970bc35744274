// Defines Quantisation: a format in which frozen weights are stored in 4 or 8 bits.
//
// nf4, fp4 (bitsandbytes; Dettmers et al. 2023): the elements of a weight in row-major order form blocks of 64. A block
// stores its largest magnitude (absmax, f32) and one 4-bit code per element, which selects one of 16 values in [-1, 1].
// Nested ("double quantisation"): the absmax values, minus their mean, form blocks of 256 and are stored as 8-bit codes
// of a dynamic map (adapters/dynamic_map.h).
//
// int8 (bitsandbytes; the weights of LLM.int8): one absmax per output, and 8 bits per element in steps of absmax / 127.
//
// mxfp4 (OCP Microscaling Formats 1.0; GPT-OSS's experts): each output's inputs form blocks of 32, with one 4-bit float
// (e2m1) per element and one power of two per block.
//
// groups4, groups8 (group_storage.h): each output's inputs form groups, and each group has a zero and a scale. An
// element is (code - zero) * scale, with an integer code of 4 or 8 bits.
//
// float8 (float8_storage.h): an element is an 8-bit float (e4m3) times a factor. There is one factor for each block of
// rows and columns, for example 128 x 128, or one for each row.
#pragma once

#include <cstdint>
#include <string>

#include "base/arrays/shape.h"

namespace fettle {

struct Quantisation {
  enum class Type { kNf4, kFp4, kInt8, kMxfp4, kGroups4, kGroups8, kFloat8 };
  Type type = Type::kNf4;
  bool nested = true;  // only used for nf4 and fp4
  // Only used for groups4, groups8 and float8: the number of inputs in a group or block (0: all).
  int64_t group = 0;
  int64_t block_rows = 1;  // only used for float8: the number of outputs in a block
  // Only used for groups4 and groups8. any_order: whether an input may be in any group. scales: the dtype of the
  // scales; (code - zero) * scale is computed in this dtype.
  bool any_order = false;
  DType scales = DType::kF16;
  bool inputs_first = false;  // groups4 and groups8 of experts: the weight is [E, in, out..], as for mxfp4

  static constexpr int kBlock = 64, kNestedBlock = 256, kMxfp4Block = 32;
  bool four_bits() const { return type != Type::kInt8 && type != Type::kGroups8 && type != Type::kFloat8; }
  bool in_groups() const { return type == Type::kGroups4 || type == Type::kGroups8; }
  // Returns the bits per element, including an element's share of its block's scale and zero. A scale for a whole row
  // is not counted.
  double bits() const;
  std::string name() const;  // "nf4 with double quantization"
  bool operator==(const Quantisation&) const = default;
};

}  // namespace fettle
