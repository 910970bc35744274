// Defines Target: an accelerator that programs can be planned for without having one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Figures are the makers' data sheets for one device (of a card with two dies that appear as two devices: one die):
// dense products (no sparsity) that accumulate in f32, one direction for links. 1 GB is 1e9 bytes.
struct Target {
  std::string name;          // as users say it: "mi300x"
  std::string title;         // "AMD Instinct MI300X"
  std::string plugin;        // "rocm" or "cuda"
  int64_t memory_bytes = 0;  // what the driver reports, which is less than the number on the box
  double bf16_tflops = 0;    // also f16
  double f32_tflops = 0;     // true f32 (no TF32)
  double memory_gb_per_s = 0;
  double link_gb_per_s = 0;     // to the other devices of its host, all links together
  int link_peers = 0;           // devices that the links reach directly, each by its share; 0: a switch, any by all
  double network_gb_per_s = 0;  // to other hosts: this device's share of the host's network adapters
  std::string config;           // text of a stream_executor.GpuTargetConfigProto for Topology::create
};

// All targets, by vendor and age.
const std::vector<Target>& targets();
// Names are taken in any case, with or without '-', '_' and blanks ("A100-80GB" and "a100_80" are one).
// Throws UserError naming the known ones.
const Target& target_named(std::string_view name);

}  // namespace fettle
