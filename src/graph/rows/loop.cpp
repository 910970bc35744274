// Defines the op table's row for scan. Shapes, activity, liveness and FLOPs are computed from the scan's body. The
// gradient is in autodiff/scan_vjp.cpp.
#include <array>

#include "graph/autodiff/grad.h"
#include "graph/autodiff/scan_vjp.h"
#include "graph/prune.h"
#include "graph/rows/loop_text.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

Shape stacked(const Shape& slice, int64_t trips) {
  Shape out = slice;
  out.dims.insert(out.dims.begin(), trips);
  return out;
}

// Returns whether `whole` is a stack of slices of the shape `slice`, with enough slices for the loop.
bool is_read_by(const Loop& loop, const Shape& whole, const Shape& slice) {
  if (whole.rank() == 0 || whole != stacked(slice, whole.dims[0])) return false;
  return whole.dims[0] == loop.trips || whole.dims[0] >= loop.first + loop.trips;
}

std::vector<Shape> loop_shape(Shapes o, const Attributes& a) {
  const auto& loop = as<Loop>(a);
  const Block& body = *loop.body;
  check(body.inputs.size() == 1 + o.size() && static_cast<int64_t>(body.outputs.size()) >= loop.carries, "while_c1",
        "a body with {} inputs and {} outputs does not fit a scan with {} operands and {} carries", body.inputs.size(),
        body.outputs.size(), o.size(), loop.carries);
  for (size_t i = 0; i < o.size(); ++i) {
    const Shape& inside = body.inputs[1 + i].shape();
    const bool sliced = static_cast<int64_t>(i) >= loop.carries && static_cast<int64_t>(i) < loop.carries + loop.xs;
    check(sliced ? is_read_by(loop, o[i], inside) : o[i] == inside, "while_i1",
          "in a scan of {} trips from slice {}, the operand {} does not fit the body's input {}", loop.trips,
          loop.first, o[i].to_string(), inside.to_string());
  }
  std::vector<Shape> results;
  for (size_t r = 0; r < body.outputs.size(); ++r) {
    const Shape& shape = body.outputs[r].shape();
    if (static_cast<int64_t>(r) >= loop.carries) {
      results.push_back(stacked(shape, loop.trips));
      continue;
    }
    check(shape == o[r], "while_c2", "carry {} came in as {} and left as {}", r, o[r].to_string(), shape.to_string());
    results.push_back(shape);
  }
  return results;
}

double loop_flops(const Node& node) {
  return static_cast<double>(node.get<Loop>().trips) * count_flops(*node.get<Loop>().body);
}

// Says which parts of a loop are needed.
struct BodyNeeds {
  std::vector<bool> outputs;   // output i of the body, and result i of the node
  std::vector<bool> operands;  // operand i of the node, and input i + 1 of the body (input 0 is the index)
  LiveValues live;             // values of the body
};

// Returns what the body must keep if `results` of the node are read later. A carry that the body itself reads is also
// kept.
BodyNeeds body_needs(const Node& node, std::vector<bool> results) {
  const auto& loop = node.get<Loop>();
  const Block& body = *loop.body;
  if (loop.limited) results[0] = true;
  while (true) {
    LiveValues live = live_values(body, results);
    bool changed = false;
    for (int64_t c = 0; c < loop.carries; ++c) {
      const Tensor& input = body.inputs[1 + c];
      if (live[input.node()][input.result()] && !results[c]) results[c] = changed = true;
    }
    if (changed) continue;
    std::vector<bool> operands;
    for (size_t i = 1; i < body.inputs.size(); ++i)
      operands.push_back(live[body.inputs[i].node()][body.inputs[i].result()]);
    for (int64_t c = 0; c < loop.carries; ++c) operands[c] = operands[c] || results[c];
    return {results, operands, std::move(live)};
  }
}

std::vector<bool> loop_needs(const Node& node, const std::vector<bool>& live) {
  return body_needs(node, live).operands;
}

Shrunk loop_shrink(const Node& node, const std::vector<bool>& live) {
  const BodyNeeds needs = body_needs(node, live);
  Loop loop = node.get<Loop>();
  std::vector<bool> inputs{true};
  inputs.insert(inputs.end(), needs.operands.begin(), needs.operands.end());
  const int64_t carries = loop.carries, xs = loop.xs;
  loop.carries = loop.xs = 0;
  for (int64_t i = 0; i < carries + xs; ++i)
    if (needs.operands[i]) ++(i < carries ? loop.carries : loop.xs);
  loop.body = copy_live(*loop.body, needs.live, inputs, needs.outputs);
  return {needs.operands, needs.outputs, std::move(loop)};
}

std::vector<bool> loop_activity(const Node& node, const std::vector<bool>& active) {
  return scan_activity(node, active).results;
}

constexpr std::array kLoopRows{
    OpRow{.op = Op::kScan,
          .name = "while",
          .spell = loop_text,
          .shape = loop_shape,
          .vjp = scan_vjp,
          .flops = loop_flops,
          .needs = loop_needs,
          .saved = Saved::kAsProduct,
          .activity = loop_activity,
          .shrink = loop_shrink},
};

}  // namespace

std::span<const OpRow> loop() {
  return kLoopRows;
}

}  // namespace fettle::rows
