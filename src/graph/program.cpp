#include "graph/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/op_table.h"
#include "graph/print.h"
#include "graph/prune.h"
#include "graph/slices_in_place.h"

namespace fettle {

namespace {

void add_calls(const Block& block, int64_t times, std::map<std::string, KernelUse>& uses) {
  for (int32_t id = 0; id < block.size(); ++id) {
    const Node& node = block.node(id);
    if (const Loop* loop = node.loop()) add_calls(*loop->body, times * loop->trips, uses);
    if (node.op != Op::kCustomCall) continue;
    const CustomCall& call = *node.get<std::shared_ptr<const CustomCall>>();
    KernelUse& use = uses[call.kernel];
    use.kernel = call.kernel;
    use.calls += times;
    use.cost.flops += times * call.cost.flops;
    use.cost.bytes += times * call.cost.bytes;
    use.cost.workspace = std::max(use.cost.workspace, call.cost.workspace);
  }
}

}  // namespace

Program::Program(MeshAxes mesh, ChooseKernel choose)
    : mesh_(std::move(mesh)),
      block_(std::make_shared<Block>(std::make_shared<const Lowering>(Lowering{mesh_, std::move(choose)}))) {}

Tensor Program::input(const std::string& name, const Shape& shape, const Partition& partition, Memory memory) {
  inputs_.push_back({name, shape, partition, -1, memory});
  return block_->parameter(shape);
}

void Program::output(const std::string& name, const Tensor& value, const Partition& partition,
                     const std::string& donate_input, Memory memory) {
  block_->outputs.push_back(block_->use(value));
  outputs_.push_back({name, value.shape(), partition, memory});
  if (donate_input.empty()) return;
  for (ProgramInput& input : inputs_) {
    if (input.name != donate_input) continue;
    internal_check(
        input.shape == value.shape() && input.partition == partition && input.memory == memory,
        "output {} cannot reuse the memory of input {}: their shapes ({} and {}), partitions or memories differ", name,
        donate_input, value.shape().to_string(), input.shape.to_string());
    input.donated_to = static_cast<int64_t>(outputs_.size()) - 1;
    return;
  }
  throw InternalError("output {} cannot reuse the memory of input {}, which does not exist", name, donate_input);
}

bool Program::uses_host_memory() const {
  return std::ranges::any_of(inputs_, [](const ProgramInput& input) { return input.memory == Memory::kHost; });
}

std::string Program::text(bool tf32) const {
  std::shared_ptr<Block> pruned = prune(*block_);
  const bool sharded = mesh_.size() > 1;
  if (!sharded) pruned = prune(*use_slices_in_place(*pruned));
  auto sharding = [&](const Partition& partition, const Shape& shape) {
    return sharded ? "sdy.sharding = #sdy.sharding" + mlir_sharding(partition, shape.rank()) : std::string();
  };
  // Formats the attributes of an argument or result. Memory is named only when it is not the device's.
  auto described = [&](const auto& one) {
    std::vector<std::string> attributes;
    if (const std::string s = sharding(one.partition, one.shape); !s.empty()) attributes.push_back(s);
    if (one.memory != Memory::kDevice)
      attributes.push_back(fmt::format("mhlo.memory_kind = \"{}\"", memory_kind(one.memory)));
    return attributes;
  };
  std::vector<std::string> arguments, results;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::vector<std::string> attributes = described(inputs_[i]);
    if (inputs_[i].donated_to >= 0)
      attributes.push_back(fmt::format("tf.aliasing_output = {} : i32", inputs_[i].donated_to));
    arguments.push_back(fmt::format("%arg{}: {} {{{}}} loc(\"{}\")", i, mlir_type(inputs_[i].shape),
                                    fmt::join(attributes, ", "), inputs_[i].name));
  }
  for (const ProgramOutput& output : outputs_)
    results.push_back(fmt::format("{} {{{}}}", mlir_type(output.shape), fmt::join(described(output), ", ")));

  std::string text = fmt::format(
      "module @fettle attributes {{mhlo.num_partitions = {} : i32, mhlo.num_replicas = 1 : i32}} {{\n", mesh_.size());
  if (sharded) {
    std::vector<std::string> axes;
    for (const auto& [name, size] : mesh_.axes) axes.push_back(fmt::format("\"{}\"={}", name, size));
    text += fmt::format("  sdy.mesh @mesh = <[{}]>\n", fmt::join(axes, ", "));
  }
  text +=
      fmt::format("  func.func public @main({}) -> ({}) {{\n", fmt::join(arguments, ", "), fmt::join(results, ", "));
  text += print_body(*pruned, {.mesh = mesh_, .tf32 = tf32});
  return text + "  }\n}\n";
}

double Program::flops() const {
  return count_flops(*prune(*block_));
}

std::vector<KernelUse> Program::kernels() const {
  std::map<std::string, KernelUse> uses;
  add_calls(*prune(*block_), 1, uses);
  std::vector<KernelUse> out;
  for (const auto& [name, use] : uses) out.push_back(use);
  return out;
}

}  // namespace fettle
