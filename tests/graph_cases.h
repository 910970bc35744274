// Declares the cases that every row of the op table must have (tests/correct/graph_op_table_test.cpp runs them).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/op_table.h"
#include "graph_run.h"

namespace fettle {

using Build = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

// A call of an op with its results. `expected` has the elements of each result, computed without the graph.
struct ForwardCase {
  Op op;
  std::string name;
  std::vector<Value> arguments;
  Build build;
  std::vector<std::vector<double>> expected;
  double tolerance = 2e-6;  // relative; absolute for values below 1
};

// A function whose derivative is tested. Its derivative with respect to the float arguments, along a direction, is
// compared with a central difference.
struct VjpCase {
  Op op;
  std::string name;
  std::vector<Value> arguments;
  Build build;
  double h = 1e-5;  // step of the central difference
  double tolerance = 1e-6;
};

// A call that must throw InternalError with "[label]" in its message.
struct BadShapeCase {
  Op op;
  std::string label;
  std::function<void()> build;
};

// A node of `op` whose FLOPs for one execution are known.
struct FlopsCase {
  Op op;
  std::function<Tensor()> build;  // returns a result of the node
  int64_t expected;
};

// A node of `op` with only some results read, and the operands that are needed to compute those results.
struct LivenessCase {
  Op op;
  std::string name;
  std::function<Tensor()> build;  // returns a result of the node
  std::vector<bool> live;         // for each result
  std::vector<bool> expected;     // for each operand
};

std::vector<ForwardCase> elementwise_forward_cases();
std::vector<ForwardCase> structure_forward_cases();
std::vector<VjpCase> vjp_cases();
std::vector<BadShapeCase> bad_shape_cases();
std::vector<FlopsCase> flops_cases();
std::vector<LivenessCase> liveness_cases();

}  // namespace fettle
