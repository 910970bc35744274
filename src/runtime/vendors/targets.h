// Defines Target: an accelerator that programs can be planned for without having one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The properties of a chip that compilers need. They decide tiles, launch shapes and instructions.
struct Chip {
  std::string capability;  // "9.0a" (a: with the instructions of this one generation), "gfx942:sramecc+:xnack-"
  int cores = 0;           // streaming multiprocessors, compute units
  int fpus_per_core = 0;
  int threads_per_core = 0;
  int shared_memory_per_core = 0;   // bytes
  int shared_memory_per_block = 0;  // bytes a kernel may ask for
  int64_t l2_bytes = 0;
  double clock_ghz = 0;
  int nvlinks = 0;
  int threads_per_warp = 32;
};

// Figures are the makers' data sheets for one device (of a card with two dies that appear as two devices: one die):
// dense products (no sparsity) that accumulate in f32, one direction for links. 1 GB is 1e9 bytes.
struct Target {
  std::string name;          // as users say it: "mi300x"
  std::string title;         // "AMD Instinct MI300X"
  std::string plugin;        // "rocm" or "cuda"
  int64_t memory_bytes = 0;  // what drivers report to programs: less than the number on the box, and than nvidia-smi's
  double bf16_tflops = 0;    // also f16
  double f32_tflops = 0;     // true f32 (no TF32)
  double memory_gb_per_s = 0;
  double link_gb_per_s = 0;     // to the other devices of its host, all links together
  int link_peers = 0;           // devices that the links reach directly, each by its share; 0: a switch, any by all
  double network_gb_per_s = 0;  // to other hosts: this device's share of the host's network adapters
  double host_gb_per_s = 32;    // to its host's memory and back, each way: PCIe x16, or what the maker has instead
  Chip chip;
  // Where there are products of 8-bit floats (float8_of): every maker's data sheets give them twice the rate.
  double f8_tflops() const { return 2 * bf16_tflops; }
  std::string config;  // text of a stream_executor.GpuTargetConfigProto for Topology::create
};

// The config that a target's figures and chip make.
std::string config_text(const Target& target);

// All targets, by vendor and age.
const std::vector<Target>& targets();
// Names are taken in any case, with or without '-', '_' and blanks ("A100-80GB" and "a100_80" are one).
// Throws UserError naming the nearest and all known ones.
const Target& target_named(std::string_view name);

}  // namespace fettle
