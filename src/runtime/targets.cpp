#include "runtime/targets.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace fettle {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

// What the compilers ask about a chip: it decides tiles, launch shapes and which instructions there are.
struct Chip {
  const char* capability;  // "9.0a" (a: with the instructions of this one generation) or "gfx942:sramecc+:xnack-"
  int cores;               // streaming multiprocessors, compute units
  int fpus_per_core;
  int threads_per_core;
  int shared_memory_per_core;   // bytes
  int shared_memory_per_block;  // bytes a kernel may ask for
  int64_t l2_bytes;
  double clock_ghz;
  int links;  // NVLinks in use
};

constexpr Chip kA100{"8.0", 108, 64, 2048, 167936, 166912, 40 * kMiB, 1.41, 12};
constexpr Chip kH100{"9.0a", 132, 128, 2048, 233472, 232448, 50 * kMiB, 1.98, 18};
constexpr Chip kB200{"10.0a", 148, 128, 2048, 233472, 232448, 132644864, 1.965, 18};
constexpr Chip kGB200{"10.0a", 152, 128, 2048, 233472, 232448, 135528448, 2.062, 18};
constexpr Chip kB300{"10.3a", 148, 128, 2048, 233472, 232448, 135528448, 1.965, 18};
constexpr Chip kGB300{"10.3a", 152, 128, 2048, 233472, 232448, 135528448, 2.07, 18};
constexpr Chip kL40S{"8.9", 142, 128, 1536, 102400, 101376, 96 * kMiB, 2.52, 0};
constexpr Chip kRTX4090{"8.9", 128, 128, 1536, 102400, 101376, 72 * kMiB, 2.52, 0};
constexpr Chip kRTX5090{"12.0a", 170, 128, 1536, 102400, 101376, 96 * kMiB, 2.407, 0};
constexpr Chip kMI250{"gfx90a:sramecc+:xnack-", 104, 128, 2048, 65536, 65536, 8 * kMiB, 1.7, 0};
constexpr Chip kMI300X{"gfx942:sramecc+:xnack-", 304, 128, 2048, 65536, 65536, 4 * kMiB, 2.1, 0};
constexpr Chip kMI350X{"gfx950:sramecc+:xnack-", 256, 128, 2048, 163840, 163840, 4 * kMiB, 2.2, 0};
constexpr Chip kMI355X{"gfx950:sramecc+:xnack-", 256, 128, 2048, 163840, 163840, 4 * kMiB, 2.4, 0};

std::string cuda_capability(std::string_view text) {
  const bool own_generation = text.back() == 'a';
  if (own_generation) text.remove_suffix(1);
  const size_t dot = text.find('.');
  return fmt::format("  cuda_compute_capability {{ major: {} minor: {}{} }}\n", text.substr(0, dot),
                     text.substr(dot + 1), own_generation ? " feature_extension: ACCELERATED_FEATURES" : "");
}

std::string config_text(const Target& target, const Chip& chip) {
  const bool cuda = target.plugin == "cuda";
  const int registers = cuda ? 65536 : 131072;
  std::string text = fmt::format(
      "gpu_device_info {{\n"
      "  threads_per_block_limit: 1024\n"
      "  threads_per_warp: {}\n"
      "  shared_memory_per_block: {}\n"
      "  shared_memory_per_block_optin: {}\n"
      "  shared_memory_per_core: {}\n"
      "  threads_per_core_limit: {}\n"
      "  core_count: {}\n"
      "  fpus_per_core: {}\n"
      "  block_dim_limit_x: 2147483647\n"
      "  block_dim_limit_y: {}\n"
      "  block_dim_limit_z: {}\n"
      "  memory_bandwidth: {}\n"
      "  l2_cache_size: {}\n"
      "  clock_rate_ghz: {}\n"
      "  device_memory_size: {}\n"
      "  registers_per_core_limit: {}\n"
      "  registers_per_block_limit: {}\n",
      cuda ? 32 : 64, std::min(chip.shared_memory_per_block, cuda ? 49152 : 65536), chip.shared_memory_per_block,
      chip.shared_memory_per_core, chip.threads_per_core, chip.cores, chip.fpus_per_core, cuda ? 65535 : 65536,
      cuda ? 65535 : 65536, static_cast<int64_t>(target.memory_gb_per_s * 1e9), chip.l2_bytes, chip.clock_ghz,
      target.memory_bytes, registers, registers);
  if (cuda) {
    text += cuda_capability(chip.capability);
    text += "  driver_version: \"13.0.0\"\n  runtime_version: \"13.0.0\"\n  dnn_version: \"9.12.0\"\n";
    if (chip.links > 0) text += fmt::format("  device_interconnect_info {{ active_links: {} }}\n", chip.links);
  } else {
    text += fmt::format("  rocm_compute_capability {{ gcn_arch_name: \"{}\" }}\n", chip.capability);
  }
  text += fmt::format("}}\nplatform_name: \"{}\"\n", cuda ? "CUDA" : "ROCM");
  if (!cuda) text += "dnn_version_info {}\n";
  return text + fmt::format("device_description_str: \"{}\"\n", target.title);
}

Target make(Target target, const Chip& chip) {
  target.config = config_text(target, chip);
  return target;
}

// name, title, plugin, memory, bf16 and f32 TFLOP/s, memory GB/s, link GB/s, link peers, network GB/s
const std::vector<Target>& table() {
  static const std::vector<Target> rows = {
      make({"mi250", "AMD Instinct MI250 (one die)", "rocm", 64 * kGiB, 181.0, 45.3, 1638.4, 150, 3, 12.5, {}}, kMI250),
      make({"mi300x", "AMD Instinct MI300X", "rocm", 192 * kGiB, 1307.4, 163.4, 5300, 448, 7, 50, {}}, kMI300X),
      make({"mi325x", "AMD Instinct MI325X", "rocm", 256 * kGiB, 1307.4, 163.4, 6000, 448, 7, 50, {}}, kMI300X),
      make({"mi350x", "AMD Instinct MI350X", "rocm", 288 * kGiB, 2306.9, 144.2, 8000, 537.6, 7, 50, {}}, kMI350X),
      make({"mi355x", "AMD Instinct MI355X", "rocm", 288 * kGiB, 2516.6, 157.3, 8000, 537.6, 7, 50, {}}, kMI355X),
      make({"a100-40", "NVIDIA A100 SXM 40GB", "cuda", 42331013120, 312, 19.5, 1555.2, 300, 0, 25, {}}, kA100),
      make({"a100-80", "NVIDIA A100 SXM 80GB", "cuda", 85100068864, 312, 19.5, 2039, 300, 0, 25, {}}, kA100),
      make({"h100", "NVIDIA H100 SXM 80GB", "cuda", 84942979072, 989.4, 66.9, 3352.3, 450, 0, 50, {}}, kH100),
      make({"h200", "NVIDIA H200 141GB", "cuda", 151397597184, 989.4, 66.9, 4800, 450, 0, 50, {}}, kH100),
      make({"b200", "NVIDIA B200", "cuda", 191514411008, 2250, 75, 7672.3, 900, 0, 50, {}}, kB200),
      make({"gb200", "NVIDIA GB200", "cuda", 197897748480, 2500, 80, 7928, 900, 0, 50, {}}, kGB200),
      make({"b300", "NVIDIA B300", "cuda", 297021865984, 2250, 75, 7936, 900, 0, 100, {}}, kB300),
      make({"gb300", "NVIDIA GB300", "cuda", 297021079552, 2500, 80, 7928, 900, 0, 100, {}}, kGB300),
      make({"l40s", "NVIDIA L40S", "cuda", 45458 * kMiB, 362, 91.6, 864, 32, 0, 12.5, {}}, kL40S),
      make({"rtx4090", "NVIDIA GeForce RTX 4090", "cuda", 24208 * kMiB, 165.2, 82.6, 1008, 32, 0, 12.5, {}}, kRTX4090),
      make({"rtx5090", "NVIDIA GeForce RTX 5090", "cuda", 32109 * kMiB, 209.5, 104.8, 1792, 64, 0, 12.5, {}}, kRTX5090),
  };
  return rows;
}

// Lower case without '-', '_', blanks and a final "gb".
std::string plain(std::string_view name) {
  std::string text;
  for (unsigned char c : name) {
    if (c != '-' && c != '_' && c != ' ') text += static_cast<char>(std::tolower(c));
  }
  if (text.size() > 2 && text.ends_with("gb")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

const std::vector<Target>& targets() {
  return table();
}

const Target& target_named(std::string_view name) {
  std::string known;
  for (const Target& target : targets()) {
    if (plain(target.name) == plain(name)) return target;
    known += (known.empty() ? "" : ", ") + target.name;
  }
  throw UserError("target: \"{}\" is not known; wanted one of {}, with \":\" and the number of devices as in mi300x:8",
                  name, known);
}

}  // namespace fettle
