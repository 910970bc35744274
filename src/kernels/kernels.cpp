#include "kernels/kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/attention/cached_attention_kernel.h"
#include "kernels/cpu/products/linear_kernel.h"
#include "kernels/cpu/products/lora_kernel.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/weights/adamw_kernel.h"
#include "kernels/cpu/weights/dequantise_kernel.h"
#include "kernels/gpu/attention_kernel.h"
#include "kernels/gpu/cudnn_attention.h"

namespace fettle {
namespace {

constexpr std::array kRows{
    KernelRow{cpu::kAttentionKernel, "attention", "cpu", cpu::attention_kernel, cpu::attention_pays,
              cpu::register_attention},
    KernelRow{cpu::kCachedAttentionKernel, "cached_attention", "cpu", cpu::cached_attention_kernel,
              cpu::cached_attention_pays, cpu::register_cached_attention},
    KernelRow{cpu::kLinearKernel, "linear", "cpu", cpu::linear_kernel, cpu::linear_pays, cpu::register_linear},
    KernelRow{cpu::kLoraKernel, "lora", "cpu", cpu::lora_kernel, cpu::many_rows_pay, cpu::register_lora},
    KernelRow{cpu::kGatedKernel, "gated", "cpu", cpu::gated_kernel, cpu::rows_pay, cpu::register_gated},
    KernelRow{cpu::kRmsNormKernel, "rms_norm", "cpu", cpu::rms_norm_kernel, cpu::rows_pay, cpu::register_rms_norm},
    KernelRow{cpu::kCrossEntropyKernel, "cross_entropy", "cpu", cpu::cross_entropy_kernel, cpu::rows_pay,
              cpu::register_cross_entropy},
    KernelRow{cpu::kAdamwKernel, "optimizer_update", "cpu", cpu::adamw_kernel, cpu::adamw_pays, cpu::register_adamw},
    KernelRow{cpu::kDequantiseKernel, "dequantise", "cpu", cpu::dequantise_kernel, cpu::dequantise_pays,
              cpu::register_dequantise},
    KernelRow{.id = gpu::kCudnnAttention,
              .composite = "attention",
              .platform = "cuda",
              .build = gpu::cudnn_attention,
              .pays = nullptr,
              .register_handlers = nullptr,
              .every_width = true,
              .automatic_on = kNoDevice},
    // Measured on an H100 (benchmarks/2026-11-26-h100.md), whose capability is 9.0.
    KernelRow{.id = gpu::kCudaAttention,
              .composite = "attention",
              .platform = "cuda",
              .build = gpu::cuda_attention,
              .pays = gpu::attention_pays,
              .register_handlers = nullptr,
              .every_width = true,
              .automatic_on = "9.0"},
    KernelRow{.id = gpu::kRocmAttention,
              .composite = "attention",
              .platform = "rocm",
              .build = gpu::rocm_attention,
              .pays = gpu::attention_pays,
              .register_handlers = nullptr,
              .every_width = true,
              .automatic_on = kNoDevice},
};

}  // namespace

std::span<const KernelRow> kernel_rows() {
  return kRows;
}

namespace {

bool is_word(const std::vector<std::string>& wanted, std::string_view word) {
  return wanted.size() == 1 && wanted[0] == word;
}

}  // namespace

void require_kernel_names(const std::vector<std::string>& wanted, std::string_view where) {
  if (is_word(wanted, "auto") || is_word(wanted, "off")) return;
  std::vector<std::string_view> known;
  for (const KernelRow& row : kRows) known.push_back(row.name());
  for (const std::string& name : wanted)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError("{}: kernels: no kernel is called '{}'; wanted auto, off, or names from: {}", where, name,
                      fmt::join(known, ", "));
}

KernelSet select_kernels(std::string_view platform, const std::vector<std::string>& wanted,
                         std::string_view capability) {
  const bool all = is_word(wanted, "auto");
  KernelSet out;
  for (const KernelRow& row : kRows)
    if (row.platform == platform &&
        ((all && row.automatic(capability)) || std::find(wanted.begin(), wanted.end(), row.name()) != wanted.end()))
      out.push_back(&row);
  return out;
}

ChooseKernel choose_among(KernelSet kernels) {
  if (kernels.empty()) return {};
  return [kernels = std::move(kernels)](const CompositeSite& site) -> std::optional<Kernel> {
    for (const KernelRow* row : kernels)
      if (row->composite == site.name && (row->pays == nullptr || row->pays(site)))
        if (std::optional<Kernel> kernel = row->build(site)) return kernel;
    return std::nullopt;
  };
}

std::vector<std::string> kernel_ids(const KernelSet& kernels) {
  std::vector<std::string> out;
  for (const KernelRow* row : kernels) out.emplace_back(row->id);
  return out;
}

void register_handlers(const KernelSet& kernels, const Plugin& plugin) {
  for (const KernelRow* row : kernels)
    if (row->register_handlers != nullptr) row->register_handlers(plugin);
}

}  // namespace fettle
