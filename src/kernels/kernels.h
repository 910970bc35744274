// Defines the table of kernels. Each table row states the composite that the kernel replaces, the platform, the dtypes
// and shapes that the kernel supports, and the shapes at which the kernel is faster than the composite's body.
//
// A kernel is a custom call with its own gradient (graph/custom_call.h). Every composite also has a body. The body runs
// when no table row applies. Each kernel is compared with the body (kernels/check.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle {

inline constexpr std::string_view kAnyDevice = "", kNoDevice = "none";

struct KernelRow {
  std::string_view id;         // name and version, as CustomCall::kernel: "cpu_attention/1"
  std::string_view composite;  // the composite that the kernel replaces: "attention"
  std::string_view platform;   // Vendor::name: "cpu"
  // Returns the kernel if it supports the site's dtypes, shapes and partitions; else nullopt.
  std::optional<Kernel> (*build)(const CompositeSite& site);
  // Returns whether the kernel is faster than the body at these shapes, according to measurements in benchmarks/. A
  // function without measurements says so in its comment. Null: the kernel is always faster. Checks (kernels/check.h)
  // do not call this function: they run the kernel at all shapes.
  bool (*pays)(const CompositeSite& site);
  // Registers the kernel's custom calls with the plugin. Null: the plugin itself provides them.
  void (*register_handlers)(const Plugin& plugin);
  // True: the kernel has a program for each shape, and the compiler may accept one program and refuse another. So the
  // check also tries the widths and options that models have.
  bool every_width = false;
  // `kernels: auto` uses the kernel only on devices whose capability (DeviceInfo::capability) begins with this text. On
  // other devices, a run uses the kernel only if the recipe names it, because the kernel was not measured there or is
  // not deterministic.
  std::string_view automatic_on = kAnyDevice;

  bool automatic(std::string_view capability) const { return capability.starts_with(automatic_on); }
  std::string_view name() const { return id.substr(0, id.find('/')); }  // the name in recipes and messages
};

std::span<const KernelRow> kernel_rows();

// A set of kernels to choose from, in the order of the table.
using KernelSet = std::vector<const KernelRow*>;

// Throws UserError when a name in `wanted` is not the name of a table row. {"auto"} and {"off"} are accepted. `where`
// is the position of the recipe's key `kernels`: "recipe.yaml:12".
void require_kernel_names(const std::vector<std::string>& wanted, std::string_view where);

// Returns the table rows for `platform` (a Vendor::name) that a recipe's `kernels` selects: {"auto"} selects all rows
// that are automatic for devices of `capability`. {"off"} selects none. A list of names selects the kernels with these
// names. Rows for other platforms are left out.
KernelSet select_kernels(std::string_view platform, const std::vector<std::string>& wanted,
                         std::string_view capability = "");

// Returns a chooser. The chooser takes the first table row whose kernel supports a composite's shapes and is faster
// than the composite's body at these shapes. The chooser is empty if `kernels` is empty.
ChooseKernel choose_among(KernelSet kernels);

// Returns the kernels' names and versions, such as "cpu_attention/1", which a checkpoint records.
std::vector<std::string> kernel_ids(const KernelSet& kernels);

// Registers the handlers of the kernels. Call it before compiling a program that uses the kernels. A second
// registration does nothing.
void register_handlers(const KernelSet& kernels, const Plugin& plugin);

}  // namespace fettle
