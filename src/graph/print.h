// Defines the printing of a pruned block as the text of StableHLO operations.
//
// The table row of each op (rows/) says how the op is spelled. Printer assigns names, prints lines and keeps their
// order.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/block.h"

namespace fettle {

struct PrintOptions {
  MeshAxes mesh;  // with one device, sharding constraints are not printed
  bool tf32 = false;
};

std::string mlir_type(const Shape& shape);            // "tensor<2x64xbf16>"
std::string mlir_element(double value, DType dtype);  // "5.00000000000000000e-01", "0x7F800000", "true"
// Returns "<@mesh, [{\"fsdp\"}, {}]>", with one entry per dim of a value of `rank` dims.
std::string mlir_sharding(const Partition& partition, int64_t rank);

// Returns the body: the text of its nodes, then the return of `block`'s outputs. Input i is called %arg<i>.
std::string print_body(const Block& block, const PrintOptions& options);

using ValueId = std::pair<int32_t, int32_t>;  // number of the node, number of its result
inline ValueId id_of(const Tensor& t) {
  return {t.node(), t.result()};
}
using ValueNames = std::map<ValueId, std::string>;

// A node that is about to be printed.
struct NodeText {
  const Node& node;
  int32_t id;
  std::vector<std::string> operands;  // names of the operands
  std::vector<std::string> types;     // types of the operands
  ValueNames& names;                  // the names of the block's values

  std::string name() const;       // "stablehlo.tanh"
  std::string result() const;     // type of the first result
  std::string signature() const;  // "(tensor<2xf32>) -> tensor<2xbf16>"
};

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  // Values that are printed only where they are first used.
  using Later = std::map<ValueId, std::function<void()>>;

  // Prints the nodes of `block`, and each entry of `later` before its first use. `names` has the names of the block's
  // inputs; this function adds the names of the nodes' results.
  void nodes(const Block& block, ValueNames& names, Later later = {});

  std::string fresh();  // returns a new name: "%7"
  // Names the node's results, if they have no names yet, and returns the text before " = ": "%7", "%7:2". A Spell
  // function (op_table.h) that names further values calls this first, so that the results get the lower numbers.
  std::string name_results(NodeText& node);
  void name_result(NodeText& node, const std::string& name) { node.names[{node.id, 0}] = name; }
  // Prints one line.
  void line(const std::string& name, const std::string& expression, const Node& node);

  // Returns the list for manual_axes of an sdy.manual_computation that is printed now, such as "\"fsdp\", \"tp\"".
  // These are all axes of the mesh except `manual_axis`, which is manual already.
  std::string manual_axes() const;
  bool sharded() const { return options_.mesh.size() > 1; }
  const PrintOptions& options() const { return options_; }

  std::string text;
  std::string indent = "    ";
  std::string manual_axis;  // the mesh axis of the scan (Loop::axis) whose body is printed now; "": none

 private:
  void node(const Node& node, int32_t id, ValueNames& names);

  const PrintOptions& options_;
  int64_t next_ = 0;
};

// Returns whether a result of node number `value` is the first operand of a node that is printed late (Late in
// op_table.h). If the node is an input of a loop's body and stands for a slice of one of the xs, the op that cuts out
// the slice is then printed late, too.
bool is_read_late(const Block& block, int32_t value);

}  // namespace fettle
