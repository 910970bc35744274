#include "graph/print.h"

#include <bit>
#include <cmath>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "graph/op_table.h"

namespace fettle {

std::string NodeText::name() const {
  return fmt::format("stablehlo.{}", op_row(node.op).name);
}
std::string NodeText::result() const {
  return mlir_type(node.results[0]);
}
std::string NodeText::signature() const {
  return fmt::format("({}) -> {}", fmt::join(types, ", "), result());
}

void Printer::nodes(const Block& block, ValueNames& names, Later later) {
  auto need = [&](const ValueId& value) {
    const auto at = later.find(value);
    if (at == later.end()) return;
    const std::function<void()> print = std::move(at->second);
    later.erase(at);
    print();
  };
  auto print_node = [&](int32_t id) {
    for (const Tensor& operand : block.node(id).operands) need(id_of(operand));
    node(block.node(id), id, names);
  };
  for (int32_t id = 0; id < block.size(); ++id) {
    const Node& node = block.node(id);
    if (node.op == Op::kParameter) continue;
    const Late late = op_row(node.op).late;
    if (late != nullptr && late(node, later.contains(id_of(node.operands[0]))))
      later[{id, 0}] = [&print_node, id] { print_node(id); };
    else
      print_node(id);
  }
  while (!later.empty()) need(later.begin()->first);
}

void Printer::node(const Node& node, int32_t id, ValueNames& names) {
  const Spell spell = op_row(node.op).spell;
  internal_check(spell != nullptr, "{} is a marker for differentiation and cannot be printed; prune the block first",
                 op_row(node.op).name);
  NodeText described{node, id, {}, {}, names};
  for (const Tensor& operand : node.operands) {
    described.operands.push_back(names.at(id_of(operand)));
    described.types.push_back(mlir_type(operand.shape()));
  }
  const std::string expression = spell(described, *this);
  if (!expression.empty()) line(name_results(described), expression, node);
}

std::string Printer::manual_axes() const {
  std::vector<std::string> axes;
  for (const auto& [axis, size] : options_.mesh.axes)
    if (axis != manual_axis) axes.push_back('"' + axis + '"');
  return fmt::format("{}", fmt::join(axes, ", "));
}

std::string Printer::fresh() {
  return fmt::format("%{}", next_++);
}

std::string Printer::name_results(NodeText& n) {
  const size_t count = n.node.results.size();
  if (!n.names.contains({n.id, 0})) {
    const std::string name = fresh();
    for (size_t r = 0; r < count; ++r)
      n.names[{n.id, static_cast<int32_t>(r)}] = count == 1 ? name : fmt::format("{}#{}", name, r);
  }
  const std::string& first = n.names.at({n.id, 0});
  return count == 1 ? first : fmt::format("{}:{}", first.substr(0, first.find('#')), count);
}

void Printer::line(const std::string& name, const std::string& expression, const Node& node) {
  text += fmt::format("{}{} = {} loc(\"{}\")\n", indent, name, expression, node.path);
}

bool is_read_late(const Block& block, int32_t value) {
  for (int32_t id = value + 1; id < block.size(); ++id) {
    const Node& node = block.node(id);
    const Late late = op_row(node.op).late;
    if (late == nullptr || node.operands[0].node() != value) continue;
    if (late(node, false) || (late(node, true) && is_read_late(block, id))) return true;
  }
  return false;
}

std::string mlir_type(const Shape& shape) {
  std::string out = "tensor<";
  for (int64_t d : shape.dims) out += fmt::format("{}x", d);
  return out + std::string(stablehlo_name(shape.dtype)) + ">";
}

std::string mlir_element(double value, DType dtype) {
  if (dtype == DType::kPred) return value != 0 ? "true" : "false";
  if (!is_float(dtype)) return fmt::format("{}", static_cast<int64_t>(value));
  if (std::isfinite(value)) return fmt::format("{:.17e}", value);
  const auto f = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32: return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(f));
    case DType::kBF16: return fmt::format("0x{:04X}", f32_to_bf16(f));
    case DType::kF16: return fmt::format("0x{:04X}", f32_to_f16(f));
    default: return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(value));
  }
}

std::string mlir_sharding(const Partition& partition, int64_t rank) {
  std::vector<std::string> dims;
  for (int64_t i = 0; i < rank; ++i) {
    std::vector<std::string> axes;
    if (i < static_cast<int64_t>(partition.dims.size()))
      for (const std::string& axis : partition.dims[i]) axes.push_back('"' + axis + '"');
    dims.push_back(fmt::format("{{{}}}", fmt::join(axes, ", ")));
  }
  return fmt::format("<@mesh, [{}]>", fmt::join(dims, ", "));
}

std::string print_body(const Block& block, const PrintOptions& options) {
  Printer printer(options);
  ValueNames names;
  for (size_t i = 0; i < block.inputs.size(); ++i) names[id_of(block.inputs[i])] = fmt::format("%arg{}", i);
  printer.nodes(block, names);
  std::vector<std::string> returned, types;
  for (const Tensor& output : block.outputs) {
    returned.push_back(names.at(id_of(output)));
    types.push_back(mlir_type(output.shape()));
  }
  return printer.text + fmt::format("    return {} : {}\n", fmt::join(returned, ", "), fmt::join(types, ", "));
}

}  // namespace fettle
