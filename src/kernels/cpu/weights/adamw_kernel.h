// Defines the table row "cpu_adamw": the composite "optimizer_update" (optim/update.h) for the rule adamw_torch, on the
// CPU through the FFI. The kernel reads and writes each array once, in place. As ordinary ops, XLA computes m and v
// twice, once to store them and once for the weight, and copies the old ones first.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Requires that the weight, its gradient and m and v are f32 and split alike over the devices.
std::optional<Kernel> adamw_kernel(const CompositeSite& site);
// Returns true for weights of 4,096 elements and more, if the CPU has AVX2. The number was not measured.
bool adamw_pays(const CompositeSite& site);

inline constexpr const char* kAdamwKernel = "cpu_adamw/1";
// The handler's name. It includes a version, so that programs in the compile cache never call another version.
inline constexpr const char* kAdamwTarget = "fettle_cpu_adamw_1";
void register_adamw(const Plugin& plugin);

}  // namespace fettle::cpu
