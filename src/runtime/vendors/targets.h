// Defines Target: an accelerator for which programs can be planned on a machine without it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The properties of a chip that compilers need. The compilers choose tiles, launch shapes and instructions from them.
struct Chip {
  std::string capability;  // "gfx942:sramecc+:xnack-", "9.0a" (a: with instructions that only this generation has)
  int cores = 0;           // streaming multiprocessors (NVIDIA) or compute units (AMD)
  int fpus_per_core = 0;
  int threads_per_core = 0;
  int shared_memory_per_core = 0;   // bytes
  int shared_memory_per_block = 0;  // bytes that a kernel may request
  int64_t l2_bytes = 0;
  double clock_ghz = 0;
  int nvlinks = 0;
  int threads_per_warp = 32;
};

// One device with figures from the maker's data sheet. (If a card's two dies appear as two devices, each die is one
// device.) Rates are for dense products that accumulate in f32; link rates are for one direction. 1 GB is 1e9 bytes.
struct Target {
  std::string name;          // as users write it: "mi300x"
  std::string title;         // "AMD Instinct MI300X"
  std::string plugin;        // "rocm" or "cuda"
  int64_t memory_bytes = 0;  // as drivers report it to programs: less than the nominal size and nvidia-smi's figure
  double bf16_tflops = 0;    // the rate of f16, too
  double f32_tflops = 0;     // true f32 (no TF32)
  double memory_gb_per_s = 0;
  double link_gb_per_s = 0;     // rate to the other devices of the host or rack, over all links together
  int link_peers = 0;           // number of devices to which direct links lead; 0: all links lead to a switch
  double network_gb_per_s = 0;  // rate to other hosts: this device's share of the host's network adapters
  double host_gb_per_s = 32;  // rate between host memory and device, in one direction: PCIe x16 or the maker's own link
  Chip chip;
  // The number of devices in a rack, if links connect the hosts of the rack. 0: links connect only devices of one host.
  int domain_devices = 0;
  // The rate of 8-bit float products, for devices that have them (float8_of): all data sheets give twice the 16-bit
  // rate.
  double f8_tflops() const { return 2 * bf16_tflops; }
  // The rate of f32 products that may use TF32. Data sheets of NVIDIA from 8.0 on and of gfx942 give half of the 16-bit
  // rate. Other devices have no TF32, so this is the rate of f32.
  double tf32_tflops() const;
  std::string config;  // text of a stream_executor.GpuTargetConfigProto for Topology::create
};

// Computes the text of Target::config from the target's other members.
std::string config_text(const Target& target);

// Returns all targets, grouped by vendor and kind of card.
const std::vector<Target>& targets();
// Returns the target. Case, '-', '_' and blanks in the name do not matter ("A100-80GB" and "a100_80" are the same). If
// the name is unknown, throws UserError, which names the most similar target and all known targets.
const Target& target_named(std::string_view name);
// Returns the target whose name begins a word of `kind`, the plugin's name of a device ("NVIDIA H100 80GB HBM3"). If
// several targets have the same name with different memory sizes, returns the one whose memory is nearest to
// `memory_bytes`. Returns nullptr if no target's name is in `kind`. Also returns nullptr if `kind` names a variant with
// other rates and the table has no row for that variant. AMD's driver calls both MI250 and MI250X "MI250X/MI250"; this
// is the MI250, which has the lower rates.
const Target* target_of_kind(std::string_view kind, int64_t memory_bytes = 0);

}  // namespace fettle
