// Defines the printing of a pruned block as the text of StableHLO operations.
//
// The spelling of each op stands in its row (rows/); Printer gives names, prints lines and keeps their order.
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
  MeshAxes mesh;  // of one device: sharding constraints are dropped
  bool tf32 = false;
};

std::string mlir_type(const Shape& shape);            // "tensor<2x64xbf16>"
std::string mlir_element(double value, DType dtype);  // "5.00000000000000000e-01", "0x7F800000", "true"
// "<@mesh, [{\"fsdp\"}, {}]>" with one entry per dim of a value of `rank` dims.
std::string mlir_sharding(const Partition& partition, int64_t rank);

// The body: one line per node, then the return of `block`'s outputs. Input i is called %arg<i>.
std::string print_body(const Block& block, const PrintOptions& options);

using ValueId = std::pair<int32_t, int32_t>;  // node, result
inline ValueId id_of(const Tensor& t) {
  return {t.node(), t.result()};
}
using ValueNames = std::map<ValueId, std::string>;

// A node on its way to text.
struct NodeText {
  const Node& node;
  int32_t id;
  std::vector<std::string> operands;  // names
  std::vector<std::string> types;     // of the operands
  ValueNames& names;                  // of the block's values

  std::string name() const;       // "stablehlo.tanh"
  std::string result() const;     // type of the first result
  std::string signature() const;  // "(tensor<2xf32>) -> tensor<2xbf16>"
};

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  // Values whose printing is put off until they are first used.
  using Later = std::map<ValueId, std::function<void()>>;

  // Prints the nodes of `block`, and what is `later` where it is used. `names` holds the inputs' names; the names of
  // the nodes' results are added.
  void nodes(const Block& block, ValueNames& names, Later later = {});

  std::string fresh();  // a new name: "%7"
  // Names the node's results, if they have no names yet, and gives what stands before " = ": "%7", "%7:2". A row calls
  // it when it prints lines of its own after the results have taken their name.
  std::string name_results(NodeText& node);
  void name_result(NodeText& node, const std::string& name) { node.names[{node.id, 0}] = name; }
  // A line of its own.
  void line(const std::string& name, const std::string& expression, const Node& node);

  bool sharded() const { return options_.mesh.size() > 1; }
  const PrintOptions& options() const { return options_; }

  std::string text;
  std::string indent = "    ";

 private:
  void node(const Node& node, int32_t id, ValueNames& names);

  const PrintOptions& options_;
  int64_t next_ = 0;
};

// True when a node of `block` that is printed late reads `value`, so that a slice that gives it is printed late, too.
bool is_read_late(const Block& block, int32_t value);

}  // namespace fettle
