// Defines how a quantised weight lies in a program: its parts as parameters, and the computation of the weight from
// them.
#pragma once

#include <vector>

#include "models/model.h"
#include "models/quantisation.h"

namespace fettle {

// A linear layer's frozen weight. Names of its parts within a layer:
//   <base>                codes: u8 [out.., in / 2], two elements a byte, the first in the high bits;
//                         int8: i8 [out.., in]
//   <base>.absmax         f32 [out.., in / 64], u8 when nested; int8: f32 [out..]
//   <base>.nested_absmax  f32 [blocks of 256 absmax], when nested
//   <base>.nested_offset  f32 [1]: the mean, when nested
// The parts are split over devices like the base. When rows are not whole blocks of 64, codes and absmax are
// one-dimensional, and every device stores all of them.
struct QuantisedWeight {
  Param base;
  Quantisation format;
  std::vector<Param> parts;  // in the order above

  bool by_rows() const { return !format.four_bits() || base.dims.back() % Quantisation::kBlock == 0; }
};

// Returns the parts of `base`. A last dim whose blocks do not divide over the devices is not split.
QuantisedWeight quantised_weight(const Param& base, const Quantisation& format, const ShardingRules& rules);

// Computes the weight of one layer from its parts: f32 with the base's dims.
Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts);

// Returns the function for Forward::unpack, which computes the layer's weights in dtype `held`. Devices that split the
// batch gather the codes and dequantise afterwards: a quarter of the traffic of bf16 weights.
std::function<void(Layer&)> unpack_quantised(const std::vector<QuantisedWeight>& weights, const std::string& prefix,
                                             DType held, const ShardingRules& rules);

}  // namespace fettle
