#include "adapters/formats/weight_format.h"

#include "base/error.h"
#include "graph/ops.h"

namespace fettle {

const WeightFormat& weight_format(Quantisation::Type type) {
  using Type = Quantisation::Type;
  switch (type) {
    case Type::kNf4:
    case Type::kFp4: return kFourBitBlocks;
    case Type::kInt8: return kInt8Rows;
    case Type::kMxfp4: return kMxfp4Blocks;
    case Type::kGroups4:
    case Type::kGroups8: return kIntegerGroups;
    case Type::kFloat8: return kFloat8Blocks;
  }
  throw InternalError("a format of few bits that is not known");
}

void PartList::add(const std::string& suffix, Dims dims, LogicalAxes axes, DType dtype) {
  parts_.push_back({.hf_name = base_.hf_name + suffix,
                    .dims = std::move(dims),
                    .axes = std::move(axes),
                    .role = Role::kQuantisedParts,
                    .layers = base_.layers,
                    .dtype = dtype});
}

Tensor inputs_second(const Tensor& weight) {
  Dims order{0, weight.rank() - 1};
  for (int64_t d = 1; d + 1 < weight.rank(); ++d) order.push_back(d);
  return transpose(weight, order);
}

}  // namespace fettle
