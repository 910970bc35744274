// Defines the table of kernels: which composite each replaces, for which platform, dtypes and shapes, and at what cost.
//
// A kernel is a custom call with its own gradient (graph/custom_call.h). A composite's body is always there: it is what
// runs when no row takes the composite, and what each kernel is compared with (kernels/check.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle {

struct KernelRow {
  std::string_view id;         // name and version, as CustomCall::kernel: "cpu_attention/1"
  std::string_view composite;  // that it replaces: "attention"
  std::string_view platform;   // Vendor::name: "cpu"
  // Gives the kernel for dtypes, shapes and partitions that it takes; nothing for others.
  std::optional<Kernel> (*build)(const CompositeSite& site);
  // Whether it is faster than the body at these shapes, as benchmarks/ has measured. Null: always. Checks run the
  // kernel at any shape.
  bool (*pays)(const CompositeSite& site);
  // Makes its custom calls known to the plugin. Null: the plugin has them.
  void (*register_handlers)(const Plugin& plugin);

  std::string_view name() const { return id.substr(0, id.find('/')); }  // as recipes and messages say it
};

std::span<const KernelRow> kernel_rows();

// A set of kernels to choose from, in the table's order.
using KernelSet = std::vector<const KernelRow*>;

// Throws UserError when `wanted` is neither {"auto"} nor {"off"} and has a name that no row has. `where` is the place
// of the recipe's key `kernels`: "recipe.yaml:12".
void require_kernel_names(const std::vector<std::string>& wanted, std::string_view where);

// The rows for `platform` (a Vendor::name) that a recipe's `kernels` names: {"auto"} all, {"off"} none, else by name.
// Rows for other platforms are left out.
KernelSet select_kernels(std::string_view platform, const std::vector<std::string>& wanted);

// Chooses the first row that pays at a composite's shapes and takes it. Empty for an empty set.
ChooseKernel choose_among(KernelSet kernels);

// Names and versions, as a checkpoint records them: "cpu_attention/1".
std::vector<std::string> kernel_ids(const KernelSet& kernels);

// Before compiling a program that calls them. The same set again is no-op.
void register_handlers(const KernelSet& kernels, const Plugin& plugin);

}  // namespace fettle
