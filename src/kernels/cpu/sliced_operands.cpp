#include "kernels/cpu/sliced_operands.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "graph/slices_in_place.h"
#include "kernels/cpu/ffi_operands.h"

namespace fettle::cpu {

SlicedFrame::SlicedFrame(const XLA_FFI_CallFrame& frame) : frame_(frame) {
  const XLA_FFI_Attrs& all = frame.attrs;
  const XLA_FFI_Array* slices = nullptr;
  for (int64_t i = 0; i < all.size; ++i) {
    if (std::string_view(all.names[i]->ptr, all.names[i]->len) == kSlicesAttribute) {
      slices = static_cast<const XLA_FFI_Array*>(all.attrs[i]);
      continue;
    }
    attribute_types_.push_back(all.types[i]);
    attribute_names_.push_back(all.names[i]);
    attributes_.push_back(all.attrs[i]);
  }
  if (slices == nullptr) return;
  frame_.attrs.size = static_cast<int64_t>(attributes_.size());
  frame_.attrs.types = attribute_types_.data();
  frame_.attrs.names = attribute_names_.data();
  frame_.attrs.attrs = attributes_.data();
  take_slices(*slices);
}

void SlicedFrame::take_slices(const XLA_FFI_Array& slices) {
  args_.assign(frame_.args.args, frame_.args.args + frame_.args.size);
  const int64_t number = *static_cast<const int32_t*>(static_cast<const XLA_FFI_Buffer*>(args_.back())->data);
  args_.pop_back();
  slices_.reserve(slices.size / 2);
  const auto* pairs = static_cast<const int64_t*>(slices.data);
  for (size_t i = 0; i + 1 < slices.size; i += 2) {
    void*& operand = args_[static_cast<size_t>(pairs[i])];
    XLA_FFI_Buffer slice = *static_cast<const XLA_FFI_Buffer*>(operand);
    const int64_t at = std::clamp<int64_t>(pairs[i + 1] + number, 0, slice.dims[0] - 1);
    const int64_t elements = std::accumulate(slice.dims + 1, slice.dims + slice.rank, int64_t{1}, std::multiplies<>());
    const auto bytes = static_cast<int64_t>(xla::ffi::ByteWidth(static_cast<xla::ffi::DataType>(slice.dtype)));
    slice.data = static_cast<char*>(slice.data) + at * elements * bytes;
    ++slice.dims;
    --slice.rank;
    slices_.push_back(slice);
    operand = &slices_.back();
  }
  frame_.args.size = static_cast<int64_t>(args_.size());
  frame_.args.args = args_.data();
}

}  // namespace fettle::cpu
