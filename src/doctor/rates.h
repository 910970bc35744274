// Defines measurements of the devices' speed: matrix products, memory, copies. Each measurement takes about half a
// second, after its program is compiled.
#pragma once

#include "base/arrays/shape.h"
#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Measures products of square matrices on all devices at the same time. Figures: flops_per_s of one device.
Finding measure_products(Devices& devices, DType dtype);
// Measures reading and writing a device's own memory. Figures: bytes_per_s of one device.
Finding measure_memory(Devices& devices);
// Measures copies from the host to one device and back. Figures: to_device_bytes_per_s, from_device_bytes_per_s.
Finding measure_host_copies(Devices& devices);
// Measures an all-gather: each device receives the parts of all others. Figures: the bytes_per_s that reach one device.
// The check is skipped when there is only one device.
Finding measure_device_copies(Devices& devices);

}  // namespace fettle
