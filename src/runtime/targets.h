// Defines Target: an accelerator that programs can be planned for without having one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Figures are the makers' data sheets for one device (of a card with two dies that appear as two devices: one die):
// dense products (no sparsity), one direction for links.
struct Target {
  std::string name;      // as users say it: "mi300x"
  std::string title;     // "AMD Instinct MI300X"
  std::string plugin;    // "rocm" or "cuda"
  int64_t memory_bytes;  // what the driver reports, which is less than the number on the box
  double bf16_tflops;
  double memory_gb_per_s;
  double link_gb_per_s;  // to the other devices of its host, all links together
  std::string config;    // text of a stream_executor.GpuTargetConfigProto for Topology::create
};

// All targets, by vendor and age.
const std::vector<Target>& targets();
// Names are taken in any case, with or without '-', '_' and blanks ("A100-80GB" and "a100_80" are one).
// Throws UserError naming the known ones.
const Target& target_named(std::string_view name);

}  // namespace fettle
