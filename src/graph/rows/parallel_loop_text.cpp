// Prints a scan over the devices of a mesh axis as an sdy.manual_computation in which only this axis is manual: each
// device along the axis computes the body once, for its own slices [1, ...] of the index, of the xs and of the results.
// The partitioner decides how the other mesh axes split the values.
#include "graph/rows/loop_text.h"

namespace fettle::rows {
namespace {

Shape slice_of(const Shape& whole) {
  Shape out = whole;
  out.dims[0] = 1;
  return out;
}

}  // namespace

std::string parallel_loop_text(NodeText& n, Printer& printer) {
  const auto& loop = n.node.get<Loop>();
  const Block& body = *loop.body;
  printer.name_results(n);
  ValueNames names;
  std::vector<std::string> operands{printer.fresh()}, types{mlir_type({DType::kI32, {loop.trips}})};
  printer.line(operands[0], fmt::format("stablehlo.iota dim = 0 : {}", types[0]), n.node);
  operands.insert(operands.end(), n.operands.begin(), n.operands.end());
  types.insert(types.end(), n.types.begin(), n.types.end());
  // Dims that are not split over the axis are open: the partitioner chooses how the other axes split them.
  auto sharding = [&](int64_t rank, bool sliced) {
    std::vector<std::string> dims(rank, "{?}");
    if (sliced) dims[0] = fmt::format("{{\"{}\", ?}}", loop.axis);
    return fmt::format("<@mesh, [{}]>", fmt::join(dims, ", "));
  };

  std::vector<std::string> in, arguments, declared, out, results, returned, returned_types;
  const auto sliced = static_cast<size_t>(1 + loop.xs);  // the index and the xs
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape whole = i == 0 ? Shape{DType::kI32, {loop.trips}} : n.node.operands[i - 1].shape();
    in.push_back(sharding(whole.rank(), i < sliced));
    arguments.push_back(printer.fresh());
    declared.push_back(fmt::format("{}: {}", arguments[i], mlir_type(i < sliced ? slice_of(whole) : whole)));
  }
  for (const Shape& result : n.node.results) {
    out.push_back(sharding(result.rank(), true));
    results.push_back(mlir_type(result));
    returned_types.push_back(mlir_type(slice_of(result)));
  }
  std::string& text = printer.text;
  text += fmt::format(
      "{}{} = sdy.manual_computation({}) in_shardings=[{}] out_shardings=[{}] manual_axes={{\"{}\"}} ({}) {{\n",
      printer.indent, printer.name_results(n), fmt::join(operands, ", "), fmt::join(in, ", "), fmt::join(out, ", "),
      loop.axis, fmt::join(declared, ", "));
  const std::string pad = printer.indent;
  printer.indent += "  ";
  printer.manual_axis = loop.axis;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& input = body.inputs[i];
    if (i >= sliced) {
      names[id_of(input)] = arguments[i];
      continue;
    }
    const std::string name = names[id_of(input)] = printer.fresh();
    Shape one = input.shape();
    one.dims.insert(one.dims.begin(), 1);
    printer.line(
        name, fmt::format("stablehlo.reshape {} : ({}) -> {}", arguments[i], mlir_type(one), mlir_type(input.shape())),
        n.node);
  }
  printer.nodes(body, names);
  for (size_t r = 0; r < body.outputs.size(); ++r) {
    returned.push_back(printer.fresh());
    printer.line(returned[r],
                 fmt::format("stablehlo.reshape {} : ({}) -> {}", names.at(id_of(body.outputs[r])),
                             mlir_type(body.outputs[r].shape()), returned_types[r]),
                 n.node);
  }
  text +=
      fmt::format("{}sdy.return {} : {}\n", printer.indent, fmt::join(returned, ", "), fmt::join(returned_types, ", "));
  printer.manual_axis.clear();
  printer.indent = pad;
  text += fmt::format("{}}} : ({}) -> ({}) loc(\"{}\")\n", pad, fmt::join(types, ", "), fmt::join(results, ", "),
                      n.node.path);
  return "";
}

}  // namespace fettle::rows
