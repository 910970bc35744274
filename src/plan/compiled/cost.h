// Defines Cost: what one instruction of a compiled program asks of its device.
#pragma once

#include <string>
#include <vector>

#include "plan/compiled/hlo.h"

namespace fettle {

struct Cost {
  // Two for each multiplication and addition of a matrix product or convolution, by the width of its factors; all other
  // arithmetic counts nothing, since the memory is what limits it.
  double flops_f32 = 0;     // factors of more than 16 bits
  double flops_bf16 = 0;    // of 16 bits
  double flops_f8 = 0;      // of floats of 8 bits
  double memory_bytes = 0;  // read and written once each
  bool counted = true;      // false: a vendor's kernel whose arithmetic is not known here

  double flops() const { return flops_f32 + flops_bf16 + flops_f8; }
};

// Of one execution; nothing for what only renames or carries (bitcast, tuple, parameter, ...), and for what calls other
// computations one after the other (while, call, conditional, async-start): their computations have their own costs.
// A fusion reads of a parameter what its slices take, and writes in place what a dynamic-update-slice changes.
Cost cost_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

// Bytes that one execution takes of its i-th operand: of a slice what it takes, of what is updated in place nothing.
double bytes_read(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction,
                  size_t i);
// Bytes that it writes: of an update in place what it changes.
double bytes_written(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

}  // namespace fettle
