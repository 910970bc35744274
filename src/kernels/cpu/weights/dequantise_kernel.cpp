#include "kernels/cpu/weights/dequantise_kernel.h"

#include <algorithm>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/each_range.h"
#include "kernels/cpu/ffi_operands.h"
#include "kernels/cpu/sliced_operands.h"
#include "kernels/cpu/split_rows.h"
#include "models/quantisation.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;

constexpr int64_t kBlock = Quantisation::kBlock, kCodes = 16;

int64_t blocks_in(int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

ffi::Error dequantise_call(ffi::Span<const float> values, ffi::ThreadPool pool, ffi::Buffer<ffi::U8> codes,
                           ffi::Buffer<ffi::F32> absmax, ffi::Result<ffi::AnyBuffer> weight) {
  const int64_t elements = elements_of(*weight), blocks = blocks_in(elements);
  if (values.size() != kCodes || !is_known(weight->element_type()) || elements_of(codes) < (elements + 1) / 2 ||
      elements_of(absmax) < blocks)
    return wrong_operands("cpu_dequantise");
  const DType dtype = dtype_of(weight->element_type());
  CodePairs pairs;
  for (size_t byte = 0; byte < 256; ++byte)
    pairs.of[byte][0] = values.begin()[byte / kCodes], pairs.of[byte][1] = values.begin()[byte % kCodes];
  const auto dequantise = block_ops(DType::kBF16).rows.dequantise;
  each_range(pool, blocks, kBlock, [&](int64_t first, int64_t count) {
    dequantise(dtype, std::min(count * kBlock, elements - first * kBlock), codes.typed_data() + first * kBlock / 2,
               absmax.typed_data() + first, pairs,
               static_cast<char*>(weight->untyped_data()) + first * kBlock * byte_size(dtype));
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(dequantise_handler, dequantise_call,
                              ffi::Ffi::Bind()
                                  .Attr<ffi::Span<const float>>("values")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::AnyBuffer>());

}  // namespace

bool dequantise_pays(const CompositeSite& /*site*/) {
  return has_fast_ops(DType::kBF16);
}

std::optional<Kernel> dequantise_kernel(const CompositeSite& site) {
  const Shape &codes = site.inputs[0], &absmax = site.inputs[1], &weight = site.results[0];
  if (site.mesh.size() > 1 || !is_cpu_float(weight)) return std::nullopt;
  CustomCall call{.kernel = kDequantiseKernel,
                  .target = kDequantiseTarget,
                  .attributes = {{"values", site.attributes.at("values")}},
                  .results = {weight},
                  .cost = {.flops = weight.elements(), .bytes = codes.bytes() + absmax.bytes() + weight.bytes()},
                  .takes_slices = true,
                  .elementwise = true};
  return [call = std::move(call)](const std::vector<Tensor>& inputs) { return custom_call(call, inputs); };
}

void register_dequantise(const Plugin& plugin) {
  register_kernel<dequantise_handler>(plugin, kDequantiseTarget);
}

}  // namespace fettle::cpu
