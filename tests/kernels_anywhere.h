// Defines kernels_anywhere, which returns the CPU's kernels for use at any shape, even at shapes at which they are not
// faster than the bodies of their composites, and chooser, which uses them in programs.
#pragma once

#include "graph_run.h"
#include "kernels/kernels.h"

namespace fettle {

// Also registers the kernels' handlers with the plugin.
inline KernelSet kernels_anywhere(const Plugin& plugin) {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> out;
    for (const KernelRow* row : select_kernels("cpu", {"auto"})) {
      out.push_back(*row);
      out.back().pays = nullptr;
    }
    return out;
  }();
  KernelSet out;
  for (const KernelRow& row : rows) out.push_back(&row);
  register_handlers(out, plugin);
  return out;
}

// Returns what chooses these kernels for a program on the CPU's devices.
inline ChooseKernel chooser(int64_t devices) {
  return choose_among(kernels_anywhere(cpu_devices(devices).client().plugin()));
}

}  // namespace fettle
