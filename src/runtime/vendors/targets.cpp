#include "runtime/vendors/targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "config/nearest.h"

namespace fettle {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Columns: capability, cores, FPUs and threads per core, shared memory per core and per block, L2, GHz, NVLinks, warp
// size
const Chip kA100{"8.0", 108, 64, 2048, 167936, 166912, 40 * kMiB, 1.41, 12};
const Chip kH100{"9.0a", 132, 128, 2048, 233472, 232448, 50 * kMiB, 1.98, 18};
const Chip kH100Pcie{"9.0a", 114, 128, 2048, 233472, 232448, 50 * kMiB, 1.755, 0};
const Chip kB200{"10.0a", 148, 128, 2048, 233472, 232448, 132644864, 1.965, 18};
const Chip kGB200{"10.0a", 152, 128, 2048, 233472, 232448, 135528448, 2.062, 18};
const Chip kB300{"10.3a", 148, 128, 2048, 233472, 232448, 135528448, 1.965, 18};
const Chip kGB300{"10.3a", 152, 128, 2048, 233472, 232448, 135528448, 2.07, 18};
const Chip kL4{"8.9", 58, 128, 1536, 102400, 101376, 48 * kMiB, 2.04, 0};
const Chip kL40{"8.9", 142, 128, 1536, 102400, 101376, 96 * kMiB, 2.49, 0};
const Chip kL40S{"8.9", 142, 128, 1536, 102400, 101376, 96 * kMiB, 2.52, 0};
const Chip kA6000{"8.6", 84, 128, 1536, 102400, 101376, 6 * kMiB, 1.8, 0};
const Chip kRTX6000Ada{"8.9", 142, 128, 1536, 102400, 101376, 96 * kMiB, 2.505, 0};
const Chip kRTXPro6000{"12.0a", 188, 128, 1536, 102400, 101376, 128 * kMiB, 2.6, 0};
const Chip kRTX3090{"8.6", 82, 128, 1536, 102400, 101376, 6 * kMiB, 1.695, 0};
const Chip kRTX4090{"8.9", 128, 128, 1536, 102400, 101376, 72 * kMiB, 2.52, 0};
const Chip kRTX5080{"12.0a", 84, 128, 1536, 102400, 101376, 64 * kMiB, 2.617, 0};
const Chip kRTX5090{"12.0a", 170, 128, 1536, 102400, 101376, 96 * kMiB, 2.407, 0};
const Chip kMI200{"gfx90a:sramecc+:xnack-", 104, 128, 2048, 65536, 65536, 8 * kMiB, 1.7, 0, 64};
const Chip kMI300X{"gfx942:sramecc+:xnack-", 304, 128, 2048, 65536, 65536, 4 * kMiB, 2.1, 0, 64};
const Chip kMI350X{"gfx950:sramecc+:xnack-", 256, 128, 2048, 163840, 163840, 4 * kMiB, 2.2, 0, 64};
const Chip kMI355X{"gfx950:sramecc+:xnack-", 256, 128, 2048, 163840, 163840, 4 * kMiB, 2.4, 0, 64};
const Chip kRX7800XT{"gfx1101", 60, 128, 1024, 65536, 65536, 4 * kMiB, 2.43, 0};
const Chip kRX7900XTX{"gfx1100", 96, 128, 1024, 65536, 65536, 6 * kMiB, 2.5, 0};
const Chip kRX9070XT{"gfx1201", 64, 128, 1024, 65536, 65536, 8 * kMiB, 2.97, 0};

// Returns the first number of NVIDIA's capability: 9 for "9.0a".
int major_of(const Chip& chip) {
  int major = 0;
  std::from_chars(chip.capability.data(), chip.capability.data() + chip.capability.size(), major);
  return major;
}

std::string cuda_capability(std::string_view text) {
  const bool own_generation = text.back() == 'a';
  if (own_generation) text.remove_suffix(1);
  const size_t dot = text.find('.');
  return fmt::format("  cuda_compute_capability {{ major: {} minor: {}{} }}\n", text.substr(0, dot),
                     text.substr(dot + 1), own_generation ? " feature_extension: ACCELERATED_FEATURES" : "");
}

}  // namespace

double Target::tf32_tflops() const {
  const bool amd = chip.capability.starts_with("gfx");
  const bool has_tf32 = amd ? chip.capability.starts_with("gfx942") : major_of(chip) >= 8;
  return has_tf32 ? bf16_tflops / 2 : f32_tflops;
}

std::string config_text(const Target& target) {
  const Chip& chip = target.chip;
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
      chip.threads_per_warp, std::min(chip.shared_memory_per_block, cuda ? 49152 : 65536), chip.shared_memory_per_block,
      chip.shared_memory_per_core, chip.threads_per_core, chip.cores, chip.fpus_per_core, cuda ? 65535 : 65536,
      cuda ? 65535 : 65536, static_cast<int64_t>(target.memory_gb_per_s * 1e9), chip.l2_bytes, chip.clock_ghz,
      target.memory_bytes, registers, registers);
  if (cuda) {
    text += cuda_capability(chip.capability);
    text += "  driver_version: \"13.0.0\"\n  runtime_version: \"13.0.0\"\n  dnn_version: \"9.12.0\"\n";
    if (chip.nvlinks > 0) text += fmt::format("  device_interconnect_info {{ active_links: {} }}\n", chip.nvlinks);
  } else {
    text += fmt::format("  rocm_compute_capability {{ gcn_arch_name: \"{}\" }}\n", chip.capability);
  }
  text += fmt::format("}}\nplatform_name: \"{}\"\n", cuda ? "CUDA" : "ROCM");
  if (!cuda) text += "dnn_version_info {}\n";
  return text + fmt::format("device_description_str: \"{}\"\n", target.title);
}

namespace {

// Converts GiB, the unit in drivers' logs, to bytes. Rounds down to whole MiB.
constexpr int64_t gib(double count) {
  return static_cast<int64_t>(count * 1024) * kMiB;
}

// If public reports show several memory sizes for a device, the table has the smallest (sources: docs/targets.md).
// Columns: name, title, plugin, memory, bf16 and f32 TFLOP/s, memory GB/s, link GB/s, link peers, network GB/s, host
// GB/s, chip, domain_devices
std::vector<Target> table() {
  std::vector<Target> rows = {
      {"mi210", "AMD Instinct MI210", "rocm", 65520 * kMiB, 181, 45.3, 1638.4, 150, 3, 12.5, 32, kMI200},
      {"mi250", "AMD Instinct MI250 (one die)", "rocm", 65520 * kMiB, 181, 45.3, 1638.4, 150, 3, 12.5, 32, kMI200},
      {"mi300x", "AMD Instinct MI300X", "rocm", 196288 * kMiB, 1307.4, 163.4, 5300, 448, 7, 50, 64, kMI300X},
      {"mi325x", "AMD Instinct MI325X", "rocm", 261824 * kMiB, 1307.4, 163.4, 6000, 448, 7, 50, 64, kMI300X},
      {"mi350x", "AMD Instinct MI350X", "rocm", 294592 * kMiB, 2306.9, 144.2, 8000, 537.6, 7, 50, 64, kMI350X},
      {"mi355x", "AMD Instinct MI355X", "rocm", 294896 * kMiB, 2516.6, 157.3, 8000, 537.6, 7, 50, 64, kMI355X},
      {"rx7800xt", "AMD Radeon RX 7800 XT", "rocm", 16368 * kMiB, 74.6, 37.3, 624.1, 32, 0, 12.5, 32, kRX7800XT},
      {"rx7900xtx", "AMD Radeon RX 7900 XTX", "rocm", 24560 * kMiB, 122.8, 61.4, 960, 32, 0, 12.5, 32, kRX7900XTX},
      {"w7900", "AMD Radeon PRO W7900", "rocm", gib(44.98), 122.6, 61.3, 864, 32, 0, 12.5, 32, kRX7900XTX},
      {"rx9070xt", "AMD Radeon RX 9070 XT", "rocm", 16304 * kMiB, 194.6, 48.7, 640, 64, 0, 12.5, 64, kRX9070XT},
      {"r9700", "AMD Radeon AI PRO R9700", "rocm", 32624 * kMiB, 191.4, 47.8, 640, 64, 0, 12.5, 64, kRX9070XT},
      {"a100-40", "NVIDIA A100 SXM 40GB", "cuda", 40326 * kMiB, 312, 19.5, 1555.2, 300, 0, 25, 32, kA100},
      {"a100-80", "NVIDIA A100 SXM 80GB", "cuda", gib(79.15), 312, 19.5, 2039, 300, 0, 25, 32, kA100},
      {"h100", "NVIDIA H100 SXM 80GB", "cuda", gib(79.10), 989.4, 66.9, 3352.3, 450, 0, 50, 64, kH100},
      {"h100-pcie", "NVIDIA H100 PCIe", "cuda", 84942979072, 756.4, 51.2, 2039, 64, 0, 25, 64, kH100Pcie},
      {"h200", "NVIDIA H200 141GB", "cuda", 143072 * kMiB, 989.4, 66.9, 4800, 450, 0, 50, 64, kH100},
      {"b200", "NVIDIA B200", "cuda", gib(178.35), 2250, 75, 7672.3, 900, 0, 50, 64, kB200},
      {"gb200", "NVIDIA GB200", "cuda", 188730 * kMiB, 2500, 80, 7928, 900, 0, 50, 225, kGB200, 72},
      {"b300", "NVIDIA B300", "cuda", 274113 * kMiB, 2250, 75, 7936, 900, 0, 100, 128, kB300},
      {"gb300", "NVIDIA GB300", "cuda", gib(276.50), 2500, 80, 7928, 900, 0, 100, 225, kGB300, 72},
      {"l4", "NVIDIA L4", "cuda", 22478 * kMiB, 121, 30.3, 300, 32, 0, 12.5, 32, kL4},
      {"l40", "NVIDIA L40", "cuda", gib(44.40), 181, 90.5, 864, 32, 0, 12.5, 32, kL40},
      {"l40s", "NVIDIA L40S", "cuda", 45372 * kMiB, 362, 91.6, 864, 32, 0, 12.5, 32, kL40S},
      {"a6000", "NVIDIA RTX A6000", "cuda", gib(47.40), 154.8, 38.7, 768.1, 32, 0, 12.5, 32, kA6000},
      {"rtx6000ada", "NVIDIA RTX 6000 Ada", "cuda", gib(47.37), 364.2, 91.1, 960, 32, 0, 12.5, 32, kRTX6000Ada},
      {"rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", "cuda", gib(94.96), 503.8, 125.9, 1792, 64, 0, 12.5, 64,
       kRTXPro6000},
      {"rtx3090", "NVIDIA GeForce RTX 3090", "cuda", 24126 * kMiB, 71.2, 35.6, 936.2, 32, 0, 12.5, 32, kRTX3090},
      {"rtx4090", "NVIDIA GeForce RTX 4090", "cuda", 24091 * kMiB, 165.2, 82.6, 1008, 32, 0, 12.5, 32, kRTX4090},
      {"rtx5080", "NVIDIA GeForce RTX 5080", "cuda", gib(15.45), 112.6, 56.3, 960, 64, 0, 12.5, 64, kRTX5080},
      {"rtx5090", "NVIDIA GeForce RTX 5090", "cuda", 32109 * kMiB, 209.5, 104.8, 1792, 64, 0, 12.5, 64, kRTX5090},
  };
  for (Target& target : rows) target.config = config_text(target);
  return rows;
}

// Returns the name in lower case without '-', '_', blanks and a final "gb".
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
  static const std::vector<Target> rows = table();
  return rows;
}

const Target& target_named(std::string_view name) {
  const std::string wanted = plain(name);
  std::vector<std::string> spellings, known, meant;
  for (const Target& target : targets()) {
    if (plain(target.name) == wanted) return target;
    spellings.push_back(plain(target.name));
    known.push_back(target.name);
  }
  // Suggests the names that begin with the text ("a100" begins two names), or else the most similar name (for
  // "mi300y").
  const auto close = nearest(wanted, {spellings.begin(), spellings.end()});
  for (size_t i = 0; i < known.size(); ++i)
    if (!wanted.empty() && spellings[i].starts_with(wanted)) meant.push_back(known[i]);
  for (size_t i = 0; meant.empty() && close && i < known.size(); ++i)
    if (spellings[i] == *close) meant.push_back(known[i]);
  throw UserError(
      "target: \"{}\" is not known{} Known targets: {}. For several devices, add \":\" and their number: mi300x:8. A "
      "file can describe other targets: see docs/targets.md",
      name, meant.empty() ? "." : fmt::format("; did you mean {}?", fmt::join(meant, " or ")), fmt::join(known, ", "));
}

namespace {

bool starts_word(std::string_view text, size_t at) {
  return at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1]));
}

bool ends_word(std::string_view text, size_t at) {
  return at == text.size() || !std::isalnum(static_cast<unsigned char>(text[at]));
}

// Returns whether the word that follows position `at` makes the name before it another device: "RTX 3090 Ti".
bool changes_name(std::string_view text, size_t at) {
  while (at < text.size() && ends_word(text, at)) ++at;
  size_t end = at;
  while (!ends_word(text, end)) ++end;
  const std::string word = plain(text.substr(at, end - at));
  return word == "ti" || word == "d" || word == "super";
}

// Returns whether words of `kind` are the name, which is plain. "GH200" does not name an H200, "RTX A1000" no A100,
// "MI250X" no MI250, and "RTX 3090 Ti" no RTX 3090.
bool names_device(std::string_view kind, const std::string& name) {
  for (size_t at = 0; at < kind.size(); ++at) {
    if (!starts_word(kind, at) || !plain(kind.substr(at)).starts_with(name)) continue;
    size_t length = name.size();
    while (plain(kind.substr(at, length)).size() < name.size()) ++length;
    const size_t end = at + length;
    if (ends_word(kind, end) && !changes_name(kind, end)) return true;
  }
  return false;
}

}  // namespace

const Target* target_of_kind(std::string_view kind, int64_t memory_bytes) {
  const std::string device = plain(kind);
  // Each of these words in a GPU's name stands for a variant with other rates. Such a GPU matches a target only if the
  // target's name has the word, too.
  const auto is_variant_of = [&](const std::string& name) {
    return std::ranges::any_of(std::initializer_list<const char*>{"pcie", "nvl", "laptop", "mig", "maxq"},
                               [&](const char* word) {
                                 return device.find(word) != std::string::npos && name.find(word) == std::string::npos;
                               });
  };
  const Target* best = nullptr;
  size_t length = 0;
  for (const Target& target : targets()) {
    // Devices do not always name their memory size, so "a100-80" counts as "a100".
    const size_t dash = target.name.find('-');
    const bool has_size = dash != std::string::npos && std::isdigit(target.name[dash + 1]);
    const std::string name = plain(has_size ? target.name.substr(0, dash) : target.name);
    if (!names_device(kind, name) || is_variant_of(name) || name.size() < length) continue;
    const bool nearer =
        best != nullptr && std::abs(target.memory_bytes - memory_bytes) < std::abs(best->memory_bytes - memory_bytes);
    if (name.size() > length || nearer) best = &target;
    length = name.size();
  }
  return best;
}

}  // namespace fettle
