// Defines WeightFormat: how a program stores a weight in one format of few bits, and how it computes the weight from
// what is stored. Each format has a file of its own in this folder. models/quantisation.h describes the formats.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "adapters/quantised.h"

namespace fettle {

struct WeightFormat {
  // Returns the parts of weight.base, in the order in which quantised.h lists them. `weight` has no parts yet.
  std::vector<Param> (*parts)(const QuantisedWeight& weight, const ShardingRules& rules);
  // Returns the weight of one layer in `dtype`, with the base's dims. Computes in f32 and rounds once.
  Tensor (*dequantise)(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype);
};

// Returns the row for this format.
const WeightFormat& weight_format(Quantisation::Type type);

// The rows, each in its own file.
extern const WeightFormat kFourBitBlocks;  // nf4, fp4
extern const WeightFormat kInt8Rows;
extern const WeightFormat kMxfp4Blocks;
extern const WeightFormat kIntegerGroups;  // groups4, groups8
extern const WeightFormat kFloat8Blocks;

// Collects the parts of a weight.
class PartList {
 public:
  explicit PartList(const Param& base) : base_(base) {}
  // `suffix` follows the base's name. Dims and axes are those of one layer.
  void add(const std::string& suffix, Dims dims, LogicalAxes axes, DType dtype);
  std::vector<Param> take() { return std::move(parts_); }

 private:
  const Param& base_;
  std::vector<Param> parts_;
};

// Returns how many blocks hold these elements. The last block may be shorter.
inline int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

// Returns the dims or axes [E, in, out..] in the order [E, out.., in].
template <typename List>
List inputs_last(List list) {
  std::rotate(list.begin() + 1, list.begin() + 2, list.end());
  return list;
}

// Returns the weight [E, out.., in] as [E, in, out..].
Tensor inputs_second(const Tensor& weight);

}  // namespace fettle
