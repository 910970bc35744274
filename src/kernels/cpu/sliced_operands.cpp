#include "kernels/cpu/sliced_operands.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "graph/slices_in_place.h"
#include "kernels/cpu/ffi_operands.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {

SlicedFrame::SlicedFrame(const XLA_FFI_CallFrame& frame) : frame_(frame) {
  const XLA_FFI_Attrs& all = frame.attrs;
  const XLA_FFI_Array *read = nullptr, *written = nullptr;
  for (int64_t i = 0; i < all.size; ++i) {
    const std::string_view name(all.names[i]->ptr, all.names[i]->len);
    if (name == kSlicesAttribute || name == kWrittenSlicesAttribute) {
      (name == kSlicesAttribute ? read : written) = static_cast<const XLA_FFI_Array*>(all.attrs[i]);
      continue;
    }
    attribute_types_.push_back(all.types[i]);
    attribute_names_.push_back(all.names[i]);
    attributes_.push_back(all.attrs[i]);
  }
  if (read == nullptr && written == nullptr) return;
  frame_.attrs.size = static_cast<int64_t>(attributes_.size());
  frame_.attrs.types = attribute_types_.data();
  frame_.attrs.names = attribute_names_.data();
  frame_.attrs.attrs = attributes_.data();
  take_slices(read, written);
}

XLA_FFI_Buffer* SlicedFrame::slice_of(const void* buffer, int64_t number) {
  XLA_FFI_Buffer slice = *static_cast<const XLA_FFI_Buffer*>(buffer);
  const int64_t at = std::clamp<int64_t>(number, 0, slice.dims[0] - 1);
  const int64_t elements = std::accumulate(slice.dims + 1, slice.dims + slice.rank, int64_t{1}, std::multiplies<>());
  const auto bytes = static_cast<int64_t>(xla::ffi::ByteWidth(static_cast<xla::ffi::DataType>(slice.dtype)));
  slice.data = static_cast<char*>(slice.data) + at * elements * bytes;
  ++slice.dims;
  --slice.rank;
  slices_.push_back(slice);
  return &slices_.back();
}

void SlicedFrame::take_slices(const XLA_FFI_Array* read, const XLA_FFI_Array* written) {
  args_.assign(frame_.args.args, frame_.args.args + frame_.args.size);
  const int64_t number = *static_cast<const int32_t*>(static_cast<const XLA_FFI_Buffer*>(args_.back())->data);
  args_.pop_back();
  slices_.reserve((read != nullptr ? read->size / 2 : 0) + (written != nullptr ? written->size : 0));
  if (written != nullptr) {
    rets_.assign(frame_.rets.rets, frame_.rets.rets + frame_.rets.size);
    const auto* results = static_cast<const int64_t*>(written->data);
    for (size_t i = 0; i < written->size; ++i) {
      void*& result = rets_[static_cast<size_t>(results[i])];
      result = slice_of(result, number);
    }
    args_.resize(args_.size() - written->size);
    frame_.rets.rets = rets_.data();
  }
  if (read != nullptr) {
    const auto* pairs = static_cast<const int64_t*>(read->data);
    for (size_t i = 0; i + 1 < read->size; i += 2) {
      void*& operand = args_[static_cast<size_t>(pairs[i])];
      operand = slice_of(operand, pairs[i + 1] + number);
    }
  }
  frame_.args.size = static_cast<int64_t>(args_.size());
  frame_.args.args = args_.data();
}

namespace {

xla::ffi::Error write_nothing(int64_t /*loop*/, xla::ffi::RemainingArgs /*operands*/,
                              xla::ffi::RemainingRets /*results*/) {
  return xla::ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(unwritten_handler, write_nothing,
                              xla::ffi::Ffi::Bind().Attr<int64_t>("loop").RemainingArgs().RemainingRets());

}  // namespace

void register_unwritten(const Plugin& plugin) {
  register_ffi_handler<unwritten_handler>(plugin, kUnwrittenTarget);
}

}  // namespace fettle::cpu
