// Defines a wrapper for FFI handlers. The wrapped handler gets slices where the call passes whole stacks
// (graph/slices_in_place.h).
#pragma once

#include <vector>

#include "runtime/ffi.h"
#include "xla/ffi/api/c_api.h"

namespace fettle::cpu {

// A copy of a call's frame in which each stack is replaced by its slice. The copy leaves out the last operand, which
// states the slice's number, and the attribute that lists the stacks. A call without slices is not changed. A slice's
// number that is out of range is clamped to the nearest slice of the stack, as in dynamic_slice.
class SlicedFrame {
 public:
  // `frame` must outlive this object.
  explicit SlicedFrame(const XLA_FFI_CallFrame& frame);
  SlicedFrame(const SlicedFrame&) = delete;
  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  void take_slices(const XLA_FFI_Array& slices);

  XLA_FFI_CallFrame frame_;
  std::vector<XLA_FFI_Buffer> slices_;
  std::vector<void*> args_;
  std::vector<XLA_FFI_AttrType> attribute_types_;
  std::vector<XLA_FFI_ByteSpan*> attribute_names_;
  std::vector<void*> attributes_;
};

template <XLA_FFI_Handler* Handler>
XLA_FFI_Error* handler_of_slices(XLA_FFI_CallFrame* frame) {
  SlicedFrame sliced(*frame);
  XLA_FFI_Error* error = Handler(sliced.get());
  frame->future = sliced.get()->future;
  return error;
}

// Registers a handler that reads slices (CustomCall::reads_slices).
template <XLA_FFI_Handler* Handler>
void register_kernel(const Plugin& plugin, const char* target) {
  register_ffi_handler<handler_of_slices<Handler>>(plugin, target);
}

}  // namespace fettle::cpu
