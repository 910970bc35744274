#include "kernels/kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cpu/attention_kernel.h"

namespace fettle {
namespace {

constexpr std::array kRows{
    KernelRow{cpu::kAttentionKernel, "attention", "cpu", cpu::attention_kernel, cpu::register_attention},
};

}  // namespace

std::span<const KernelRow> kernel_rows() {
  return kRows;
}

KernelSet select_kernels(std::string_view platform, const std::vector<std::string>& wanted) {
  if (wanted == std::vector<std::string>{"off"}) return {};
  const bool all = wanted == std::vector<std::string>{"auto"};
  if (!all)
    for (const std::string& name : wanted)
      if (std::none_of(kRows.begin(), kRows.end(), [&](const KernelRow& row) { return row.name() == name; })) {
        std::vector<std::string_view> known;
        for (const KernelRow& row : kRows) known.push_back(row.name());
        throw UserError("kernels: no kernel is called '{}'; there are {}, and the words auto and off", name,
                        fmt::join(known, ", "));
      }
  KernelSet out;
  for (const KernelRow& row : kRows)
    if (row.platform == platform && (all || std::find(wanted.begin(), wanted.end(), row.name()) != wanted.end()))
      out.push_back(&row);
  return out;
}

ChooseKernel choose_among(KernelSet kernels) {
  if (kernels.empty()) return {};
  return [kernels = std::move(kernels)](const CompositeSite& site) -> std::optional<Kernel> {
    for (const KernelRow* row : kernels)
      if (row->composite == site.name)
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
