// Defines the table row "cpu_dequantise": the composite "dequantise" (adapters/quantised.h) on the CPU through the FFI.
// The kernel looks up both codes of a byte at once. As ordinary ops, XLA selects among the 16 values, element by
// element.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Requires one device, and a weight in f32 or bf16.
std::optional<Kernel> dequantise_kernel(const CompositeSite& site);
// Returns whether the CPU has AVX2.
bool dequantise_pays(const CompositeSite& site);

inline constexpr const char* kDequantiseKernel = "cpu_dequantise/1";
// The handler's name. It includes a version, so that programs in the compile cache never call another version.
inline constexpr const char* kDequantiseTarget = "fettle_cpu_dequantise_1";
void register_dequantise(const Plugin& plugin);

}  // namespace fettle::cpu
