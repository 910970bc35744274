// Defines peak_flops, the speed that the reached FLOP/s are compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/kernels.h"
#include "programs/devices.h"

namespace fettle {

// Returns the FLOP/s of one GPU's matrix products, from the maker's data sheet. `kind` is DeviceInfo::kind. Returns 0
// when the figure is not known, and for dtypes other than bf16 and f16.
double data_sheet_flops(const std::string& kind, DType compute);

// Measures a few matrix products in dtype `compute` and in f32, and returns the highest FLOP/s. f32 is measured, too,
// because it is faster on a CPU without 16-bit arithmetic. `seconds_of` returns the seconds of an n x n x n product.
double best_product_flops(const std::function<double(int64_t n, DType dtype)>& seconds_of, DType compute);

// Returns the peak FLOP/s of all devices in use, for products in dtype `compute`. The figure of a GPU comes from the
// maker's data sheet. The figure of a CPU is best_product_flops, measured now (less than 1 s): each product by XLA and
// by the run's kernels, of which the faster one counts. Returns 0 when the figure is not known, and for a CPU run of
// several processes.
double peak_flops(const Devices& devices, const KernelSet& kernels, DType compute);

}  // namespace fettle
