// Defines the table row "cpu_linear": the composite "linear" (models/blocks/layers.h) on the CPU through the FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel for f32 and bf16 when the rows are split over the whole mesh, or when the mesh is one device;
// otherwise returns nullopt.
std::optional<Kernel> linear_kernel(const CompositeSite& site);
// Returns true if all rows of the batch together have 64 positions or more, and the CPU has AVX2. Only 512 positions
// were measured (benchmarks/linear_202611.md).
bool many_rows_pay(const CompositeSite& site);
// Returns true if many_rows_pay(). Also returns true if each row has one position, as when a model generates the next
// token of up to 4 rows, the weight is stored as [out, in], and the CPU has AVX2. With 8 rows, the body is faster. This
// was measured in bf16 on a CPU with AMX (benchmarks/linear_202611.md).
bool linear_pays(const CompositeSite& site);

inline constexpr const char* kLinearKernel = "cpu_linear/7";
// The handler's name. It includes a version, so that programs in the compile cache never call another version.
inline constexpr const char* kProductTarget = "fettle_cpu_product_5";
void register_linear(const Plugin& plugin);

}  // namespace fettle::cpu
