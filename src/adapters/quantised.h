// Defines how a program stores a quantised weight as several parameters, which are called the weight's parts (codes,
// scales, ...), and how it computes the weight from its parts.
#pragma once

#include <optional>
#include <vector>

#include "models/model.h"
#include "models/quantisation.h"

namespace fettle {

// A frozen weight of a linear layer, or of all experts of a layer. `base` names the weight within its layer. The names,
// dtypes and shapes of its parts are, for each format:
// nf4, fp4:
//   <base>                u8 [out.., in / 2], two elements a byte, the first in the high bits
//   <base>.absmax         f32 [out.., in / 64], u8 when nested
//   <base>.nested_absmax  f32 [number of blocks of 256 absmax], when nested; of experts: [E, ..]
//   <base>.nested_offset  f32 [1]: the mean, when nested; of experts: [E]
// int8:
//   <base>                i8 [out.., in]
//   <base>.absmax         f32 [out..]
// mxfp4, of experts [E, in, out..]:
//   <base>                u8 [E, out.., in / 2], two elements a byte, the first in the low bits
//   <base>.scales         u8 [E, out.., in / 32]
// groups4, groups8 (group_storage.h); `out..` includes the number of the expert:
//   <base>                u8 [out.., in / 2], two elements a byte, the first in the low bits; groups8: u8 [out.., in]
//   <base>.scales         [out.., groups], in the format's dtype
//   <base>.zeros          u8 [out.., groups]
//   <base>.order          i32 [in], each input's group, if any_order; of experts: [E, in]
// float8; `out..` includes the number of the expert, `blocks..` has the number of blocks along each dim of `out..`:
//   <base>                u8 [out.., in]: codes e4m3
//   <base>.factors        f32 [blocks.., blocks of in]. A block may be smaller than in the checkpoint. Each dim, and
//                         each device's part of the dim, consists of whole blocks. A block may span a whole dim. If a
//                         block spans all rows, and the rows are split over devices, each device has all factors
// Codes, absmax, scales, zeros and factors are split over devices like the base. When rows of nf4 or fp4 are not whole
// blocks of 64, codes and absmax are one-dimensional, and every device stores all of them.
struct QuantisedWeight {
  Param base;
  Quantisation format;
  std::vector<Param> parts;  // in the order in which the comment above lists them

  // Returns the dims of the base. Joins the last two dims if they are one dim in the checkpoint.
  Dims rows() const;
  bool by_rows() const { return !format.four_bits() || rows().back() % Quantisation::kBlock == 0; }
};

// Returns whether a frozen weight of this parameter is stored in the format (nf4, fp4 or int8). This is true for the
// linear layers inside the model's layers. It is also true for experts if the format has 4 bits, their rows consist of
// whole blocks, and the checkpoint does not store codes itself (`stored` is false).
bool is_quantised(const Param& param, const Quantisation& format, bool stored);

// `format` is how the checkpoint stores the model's linear layers: groups4, groups8 or float8. Returns the format in
// which the program keeps this parameter. Returns nullopt if the program cannot keep it in few bits.
std::optional<Quantisation> kept_format(const Model& model, const Param& param, Quantisation format);

// Returns the parts of `base`. A dim whose blocks cannot be divided evenly over the devices is not split.
QuantisedWeight quantised_weight(const Param& base, const Quantisation& format, const ShardingRules& rules);

// Computes the weight of one layer from its parts, with the base's dims. All arithmetic is in f32, and the result is
// rounded to `dtype` once. For nf4 and fp4, this is the composite "dequantise": its inputs are the codes and the f32
// absmax, its attribute `values` has the values of the 16 codes. No inputs are stated as split, so a kernel must not
// replace it on several devices.
Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype = DType::kF32);

// Returns the function for Forward::unpack, which computes the layer's weights in dtype `held`. If the devices that
// share the batch each store a part of a weight, the devices gather the codes before they dequantise them. With 4 bits,
// this needs a quarter of the traffic of bf16 weights. Experts stay on their devices; the function adds their parts to
// Layer::packed.
std::function<void(Layer&, Tensor*)> unpack_quantised(const std::vector<QuantisedWeight>& weights,
                                                      const std::string& prefix, DType held,
                                                      const ShardingRules& rules);

}  // namespace fettle
