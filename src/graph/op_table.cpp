#include "graph/op_table.h"

#include <algorithm>

#include "base/error.h"
#include "graph/rows/rows.h"

namespace fettle {
namespace {

std::vector<OpRow> all_rows() {
  std::vector<OpRow> table;
  for (const std::span<const OpRow> group :
       {rows::values(), rows::elementwise(), rows::shape(), rows::dot(), rows::gather(), rows::structure(),
        rows::collective(), rows::call(), rows::loop()})
    table.insert(table.end(), group.begin(), group.end());
  std::ranges::sort(table, {}, &OpRow::op);
  internal_check(table.size() == static_cast<size_t>(Op::kCount), "the op table has {} rows for {} ops", table.size(),
                 static_cast<size_t>(Op::kCount));
  for (size_t i = 0; i < table.size(); ++i)
    internal_check(table[i].op == static_cast<Op>(i), "the op table is out of order at {}: an op has two rows or none",
                   table[i].name);
  return table;
}

}  // namespace

std::span<const OpRow> op_table() {
  static const std::vector<OpRow> table = all_rows();
  return table;
}

const OpRow& op_row(Op op) {
  return op_table()[static_cast<size_t>(op)];
}

std::vector<Shape> infer_shapes(Op op, std::span<const Shape> operands, const Attributes& attributes) {
  try {
    return op_row(op).shape(operands, attributes);
  } catch (const InternalError& error) {
    throw InternalError("{} (at {})", error.what(), PathScope::path());
  }
}

Tensor make_node(Op op, std::vector<Tensor> operands, Attributes attributes) {
  Block& block = Block::current();
  std::vector<Shape> shapes;
  for (Tensor& operand : operands) {
    operand = block.use(operand);
    shapes.push_back(operand.shape());
  }
  std::vector<Shape> results = infer_shapes(op, shapes, attributes);
  return block.append({op, std::move(operands), std::move(attributes), std::move(results), {}});
}

std::vector<Tensor> all_results(const Tensor& first) {
  std::vector<Tensor> out;
  for (size_t r = 0; r < first.block()->node(first.node()).results.size(); ++r)
    out.push_back(first.block()->tensor(first.node(), static_cast<int32_t>(r)));
  return out;
}

double count_flops(const Block& block) {
  double total = 0;
  for (int32_t id = 0; id < block.size(); ++id)
    if (const Flops flops = op_row(block.node(id).op).flops; flops != nullptr) total += flops(block.node(id));
  return total;
}

}  // namespace fettle
