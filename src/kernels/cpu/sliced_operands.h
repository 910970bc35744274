// Defines a wrapper for FFI handlers. The wrapped handler reads and writes slices where the call passes whole stacks
// (graph/slices_in_place.h).
#pragma once

#include <vector>

#include "runtime/ffi.h"
#include "xla/ffi/api/c_api.h"

namespace fettle::cpu {

// A copy of a call's frame in which each stack is replaced by its slice. The copy leaves out the last operand, which
// states the slice's number, the operands that share their memory with results, and the attributes that list the
// stacks. A call without slices is not changed. A slice's number that is out of range is clamped to the nearest slice
// of the stack, as in dynamic_slice and dynamic_update_slice.
class SlicedFrame {
 public:
  // `frame` must outlive this object.
  explicit SlicedFrame(const XLA_FFI_CallFrame& frame);
  SlicedFrame(const SlicedFrame&) = delete;
  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  // `read` and `written` are the attributes that list the stacks; at most one is null.
  void take_slices(const XLA_FFI_Array* read, const XLA_FFI_Array* written);
  // Returns slice `number` of the stack `buffer`.
  XLA_FFI_Buffer* slice_of(const void* buffer, int64_t number);

  XLA_FFI_CallFrame frame_;
  std::vector<XLA_FFI_Buffer> slices_;
  std::vector<void*> args_, rets_;
  std::vector<XLA_FFI_AttrType> attribute_types_;
  std::vector<XLA_FFI_ByteSpan*> attribute_names_;
  std::vector<void*> attributes_;
};

// Registers the handler of kUnwrittenTarget, which writes nothing.
void register_unwritten(const Plugin& plugin);

template <XLA_FFI_Handler* Handler>
XLA_FFI_Error* handler_of_slices(XLA_FFI_CallFrame* frame) {
  SlicedFrame sliced(*frame);
  XLA_FFI_Error* error = Handler(sliced.get());
  frame->future = sliced.get()->future;
  return error;
}

// Registers a handler that takes slices (CustomCall::takes_slices), and the one of kUnwrittenTarget.
template <XLA_FFI_Handler* Handler>
void register_kernel(const Plugin& plugin, const char* target) {
  register_ffi_handler<handler_of_slices<Handler>>(plugin, target);
  register_unwritten(plugin);
}

}  // namespace fettle::cpu
