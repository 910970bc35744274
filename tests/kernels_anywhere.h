// Defines kernels_anywhere: the kernels of the CPU, also at shapes that are too small for them to pay.
#pragma once

#include "kernels/kernels.h"

namespace fettle {

// Registers their handlers on the plugin.
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

}  // namespace fettle
