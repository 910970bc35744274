// Defines how a quantised weight lies in a program: the parameters that it is made of, and the weight made of them
// again.
#pragma once

#include <vector>

#include "models/model.h"
#include "models/quantisation.h"

namespace fettle {

// A linear layer's frozen weight. Parts by name, of a layer:
//   <base>                codes: u8 [out.., in / 2], two elements a byte, the first in the high bits;
//                         int8: i8 [out.., in]
//   <base>.absmax         f32 [out.., in / 64], u8 when nested; int8: f32 [out..]
//   <base>.nested_absmax  f32 [blocks of 256 absmax], when nested
//   <base>.nested_offset  f32 [1]: the mean, when nested
// They are split over devices as the base is. Where blocks of 64 do not fill rows, codes and absmax are one run and
// whole on every device.
struct QuantisedWeight {
  Param base;
  Quantisation format;
  std::vector<Param> parts;  // in the order above

  bool by_rows() const { return !format.four_bits() || base.dims.back() % Quantisation::kBlock == 0; }
};

// The parts of `base`. A last dim whose blocks do not divide over the devices stays whole on them.
QuantisedWeight quantised_weight(const Param& base, const Quantisation& format, const ShardingRules& rules);

// The weight of one layer's parts: f32 with the base's dims.
Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts);

// What Forward::unpack calls: each weight of the layer as `held` would have it. Codes are brought together from the
// devices that split the batch before they are dequantised: a quarter of the traffic.
std::function<void(Layer&)> unpack_quantised(const std::vector<QuantisedWeight>& weights, const std::string& prefix,
                                             DType held, const ShardingRules& rules);

}  // namespace fettle
