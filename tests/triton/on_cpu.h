// Defines triton_kernels_on_cpu, which lets the CPU plugin run the kernels that Fettle writes for GPUs, in the
// interpreter of their IR. So the tests can run whole programs with these kernels, with gradients, loops and several
// devices.
#pragma once

#include <functional>
#include <string>

#include "kernels/kernels.h"

namespace fettle {

// Returns the kernels for `platform` ("cuda" or "rocm"), for any shape that they support, and makes the plugin run
// them.
KernelSet triton_kernels_on_cpu(const Plugin& plugin, const std::string& platform);

// While a ChangedTriton exists, `change`(text) replaces the text of every kernel before it runs.
class ChangedTriton {
 public:
  explicit ChangedTriton(std::function<std::string(const std::string& text)> change);
  ~ChangedTriton();
  ChangedTriton(const ChangedTriton&) = delete;
  ChangedTriton& operator=(const ChangedTriton&) = delete;
};

}  // namespace fettle
