// Defines Cost: the work of one instruction of a compiled program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/compiled/hlo.h"

namespace fettle {

struct Cost {
  // Floating-point operations of matrix products and convolutions, separated by the bits of the factors; a
  // multiplication and an addition count as two. Other arithmetic is not counted, because the memory's bandwidth limits
  // its time.
  double flops_f32 = 0;     // products of factors with more than 16 bits
  double flops_bf16 = 0;    // products of factors with 16 bits, and of integers with 8 bits or less
  double flops_f8 = 0;      // products of float factors with 8 bits
  double memory_bytes = 0;  // each read or write counts once
  bool counted = true;      // false: a custom call whose arithmetic is not known
  // For the call of a Fettle kernel: the share of the device's peak rate that the kernel states; 0 if it states none.
  // nullopt: not a Fettle kernel.
  std::optional<double> share;

  double flops() const { return flops_f32 + flops_bf16 + flops_f8; }
};

// Returns the cost of one execution. The cost is zero for instructions that only rename or forward values (bitcast,
// tuple, parameter, ...). It is also zero for instructions that call other computations in sequence (while, call,
// conditional, async-start), because the called computations have their own costs. A fusion that slices a parameter
// reads only these slices. A dynamic-update-slice writes only its update, in place.
Cost cost_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

// Returns how many bytes of the i-th operand one execution reads. A slice reads only its elements; an in-place update
// does not read the updated array.
double bytes_read(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction,
                  size_t i);
// Returns how many bytes one execution writes. An in-place update writes only the updated elements.
double bytes_written(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

}  // namespace fettle
