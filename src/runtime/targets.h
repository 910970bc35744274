// Defines Target: an accelerator that programs can be planned for without having one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Figures are the makers' data sheets: dense (no sparsity), one device, one direction for links.
struct Target {
  std::string name;      // as users say it: "mi300x"
  std::string title;     // "AMD Instinct MI300X"
  std::string plugin;    // "rocm" or "cuda"
  int64_t memory_bytes;  // real memory of one device
  double bf16_tflops;
  double memory_gb_per_s;
  double link_gb_per_s;  // to the other devices of its host, all links together, one direction
  std::string config;    // text of a GpuTargetConfigProto for Topology::create
};

const std::vector<Target>& targets();
// Throws UserError naming the known ones.
const Target& target_named(std::string_view name);

}  // namespace fettle
