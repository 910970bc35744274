// Defines the table row "cpu_lora": the composite "lora" (models/blocks/layers.h) on the CPU through the FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel for f32 and bf16 when the rows are split over the whole mesh, or when the mesh is one device;
// otherwise returns nullopt.
std::optional<Kernel> lora_kernel(const CompositeSite& site);

inline constexpr const char* kLoraKernel = "cpu_lora/6";
// The handlers' names. They include a version, so that programs in the compile cache never call another version.
inline constexpr const char* kLoraTarget = "fettle_cpu_lora_3";
inline constexpr const char* kLoraGradientTarget = "fettle_cpu_lora_gradient_3";
void register_lora(const Plugin& plugin);

}  // namespace fettle::cpu
