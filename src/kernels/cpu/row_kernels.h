// Defines the table rows of kernels that compute rows of activations on the CPU through the FFI: "cpu_gated",
// "cpu_rms_norm" and "cpu_cross_entropy". They replace the composites gated, rms_norm (models/blocks/layers.h) and
// cross_entropy (models/blocks/loss.cpp).
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Each function returns the kernel for f32 and bf16, or nullopt if the kernel does not support the site.

// Supports the activations silu and gelu with tanh. The arrays may be split in any way.
std::optional<Kernel> gated_kernel(const CompositeSite& site);
// Requires that the mesh is one device, or that the rows are split over the whole mesh.
std::optional<Kernel> rms_norm_kernel(const CompositeSite& site);
// Requires that the mesh is one device, or that the rows are split over the whole mesh.
std::optional<Kernel> cross_entropy_kernel(const CompositeSite& site);

// Returns true if all rows of the batch together have 64 positions or more, and the CPU has AVX2. The number 64 is
// taken from many_rows_pay(); it was not measured for these kernels.
bool rows_pay(const CompositeSite& site);

inline constexpr const char* kGatedKernel = "cpu_gated/1";
inline constexpr const char* kRmsNormKernel = "cpu_rms_norm/1";
inline constexpr const char* kCrossEntropyKernel = "cpu_cross_entropy/1";
// The handlers' names. They include a version, so that programs in the compile cache never call another version.
inline constexpr const char* kGatedTarget = "fettle_cpu_gated_1";
inline constexpr const char* kGatedGradientTarget = "fettle_cpu_gated_gradient_1";
inline constexpr const char* kRmsNormTarget = "fettle_cpu_rms_norm_1";
inline constexpr const char* kRmsNormGradientTarget = "fettle_cpu_rms_norm_gradient_1";
inline constexpr const char* kCrossEntropyTarget = "fettle_cpu_cross_entropy_1";
void register_gated(const Plugin& plugin);
void register_rms_norm(const Plugin& plugin);
void register_cross_entropy(const Plugin& plugin);

}  // namespace fettle::cpu
