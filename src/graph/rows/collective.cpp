// Defines the op table's row for collective_permute. The op is printed in sdy.manual_computation, so that the compiler
// moves the shards exactly as the op's pairs of source and target say.
#include <array>
#include <set>

#include "graph/custom_call.h"
#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

// Lists "[source, target]" for all devices. Devices are numbered row-major.
std::string pairs_text(const ShardMove& move, const MeshAxes& mesh) {
  const std::string& axis = move.partition.dims[move.dim][0];
  int64_t stride = mesh.size();
  for (const auto& [name, size] : mesh.axes) {
    stride /= size;
    if (name == axis) break;
  }
  const auto shards = static_cast<int64_t>(move.sources.size());
  std::vector<std::string> pairs;
  for (int64_t device = 0; device < mesh.size(); ++device) {
    const int64_t shard = device / stride % shards;
    pairs.push_back(fmt::format("[{}, {}]", device + (move.sources[shard] - shard) * stride, device));
  }
  return fmt::format("dense<[{}]> : tensor<{}x2xi64>", fmt::join(pairs, ", "), pairs.size());
}

// On one device there is one shard, and the result is the operand.
std::string permute_text(NodeText& n, Printer& printer) {
  if (!printer.sharded()) {
    printer.name_result(n, n.operands[0]);
    return "";
  }
  const auto& move = n.node.get<ShardMove>();
  const MeshAxes& mesh = printer.options().mesh;
  printer.name_results(n);
  const Shape& whole = n.node.results[0];
  const std::string sharding = mlir_sharding(move.partition, whole.rank());
  const std::string shard = mlir_type(shard_of(whole, move.partition, mesh));
  const std::string argument = printer.fresh(), moved = printer.fresh();
  return fmt::format(
      "sdy.manual_computation({0}) in_shardings=[{1}] out_shardings=[{1}] manual_axes={{{2}}} ({3}: {4}) {{\n"
      "{5}  {6} = \"stablehlo.collective_permute\"({3}) {{source_target_pairs = {7}, channel_handle = "
      "#stablehlo.channel_handle<handle = {8}, type = 1>}} : ({4}) -> {4} loc(\"{9}\")\n"
      "{5}  sdy.return {6} : {4}\n{5}}} : ({10}) -> ({10})",
      n.operands[0], sharding, printer.manual_axes(), argument, shard, printer.indent, moved, pairs_text(move, mesh),
      moved.substr(1), n.node.path, n.result());
}

std::vector<Shape> permute_shape(Shapes o, const Attributes& a) {
  check_count(o, 1, "collective_permute_i1");
  const auto& move = as<ShardMove>(a);
  const int64_t rank = o[0].rank();
  check(move.dim >= 0 && move.dim < rank && static_cast<int64_t>(move.partition.dims.size()) == rank &&
            move.partition.dims[move.dim].size() == 1,
        "collective_permute_i1", "{} must be split along dim {} by exactly one mesh axis", o[0].to_string(), move.dim);
  const std::set<int64_t> distinct(move.sources.begin(), move.sources.end());
  check(!distinct.empty() && distinct.size() == move.sources.size() && *distinct.begin() == 0 &&
            *distinct.rbegin() + 1 == static_cast<int64_t>(move.sources.size()),
        "collective_permute_c3", "the sources [{}] are not a permutation", fmt::join(move.sources, ", "));
  return {o[0]};
}

Tensors permute_vjp(const VjpArgs& a) {
  const auto& move = a.get<ShardMove>();
  std::vector<int64_t> back(move.sources.size());
  for (size_t i = 0; i < back.size(); ++i) back[move.sources[i]] = static_cast<int64_t>(i);
  return {collective_permute(ct(a), move.dim, back, move.partition)};
}

constexpr std::array kCollectiveRows{
    simple_row(Op::kCollectivePermute, "collective_permute", permute_text, permute_shape, permute_vjp),
};

}  // namespace

std::span<const OpRow> collective() {
  return kCollectiveRows;
}

}  // namespace fettle::rows
