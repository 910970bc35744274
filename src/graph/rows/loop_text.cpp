// Prints scan as a while loop. The loop's state is the counter, the carries, the stacked results, and then the xs and
// the captured values, which do not change.
#include "graph/rows/loop_text.h"

namespace fettle::rows {
namespace {

// Returns the shape [1, ...] of one slice of a stacked value [trips, ...].
Shape row_of(const Shape& whole) {
  Shape out = whole;
  out.dims[0] = 1;
  return out;
}

class LoopText {
 public:
  LoopText(NodeText& n, Printer& printer)
      : n_(n), printer_(printer), loop_(n.node.get<Loop>()), body_(*loop_.body), pad_(printer.indent) {}

  void print() {
    state();
    const std::string name = fresh(), limit = fresh(), more = fresh(), step = fresh(), next = fresh();
    std::string& text = printer_.text;
    text += fmt::format("{}{}:{} = stablehlo.while({}) : {}\n", pad_, name, args_.size(), fmt::join(assigned_, ", "),
                        fmt::join(types_, ", "));
    text +=
        fmt::format("{}cond {{\n{}  {} = stablehlo.constant dense<{}> : tensor<i32>\n", pad_, pad_, limit, loop_.trips);
    text += fmt::format("{}  {} = stablehlo.compare LT, {}, {}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n",
                        pad_, more, args_[0], loop_.limited ? args_[1] : limit);
    text += fmt::format("{}  stablehlo.return {} : tensor<i1>\n{}}} do {{\n", pad_, more, pad_);
    printer_.indent += "  ";
    zero_ = fresh();
    line(zero_, "stablehlo.constant dense<0> : tensor<i32>");
    index_ = this_index();
    later_index_ = index_;
    if (loop_.first > 0) {
      const std::string first = fresh();
      later_index_ = fresh();
      line(first, fmt::format("stablehlo.constant dense<{}> : tensor<i32>", loop_.first));
      line(later_index_, fmt::format("stablehlo.add {}, {} : tensor<i32>", index_, first));
    }
    printer_.nodes(body_, names_, bind_inputs());
    printer_.indent = pad_ + "  ";
    std::vector<std::string> returned{next};
    for (int64_t c = 0; c < loop_.carries; ++c) returned.push_back(names_.at(id_of(body_.outputs[c])));
    for (int64_t r = loop_.carries; r < results(); ++r) returned.push_back(updated_stack(r));
    returned.insert(returned.end(), args_.begin() + 1 + results(), args_.end());
    line(step, "stablehlo.constant dense<1> : tensor<i32>");
    line(next, fmt::format("stablehlo.add {}, {} : tensor<i32>", args_[0], step));
    text += fmt::format("{}stablehlo.return {} : {}\n", printer_.indent, fmt::join(returned, ", "),
                        fmt::join(types_, ", "));
    printer_.indent = pad_;
    text += fmt::format("{}}} loc(\"{}\")\n", pad_, n_.node.path);
    for (int64_t r = 0; r < results(); ++r)
      n_.names[{n_.id, static_cast<int32_t>(r)}] = fmt::format("{}#{}", name, 1 + r);
  }

 private:
  int64_t results() const { return static_cast<int64_t>(n_.node.results.size()); }
  std::string fresh() { return printer_.fresh(); }
  void line(const std::string& name, const std::string& expression) { printer_.line(name, expression, n_.node); }

  // Sets the initial values, types and names of the loop's state. Stacked results begin as zeros.
  void state() {
    std::vector<std::string> init{fresh()};
    types_ = {"tensor<i32>"};
    line(init[0], "stablehlo.constant dense<0> : tensor<i32>");
    for (int64_t c = 0; c < loop_.carries; ++c) {
      init.push_back(n_.operands[c]);
      types_.push_back(mlir_type(n_.node.results[c]));
    }
    for (int64_t r = loop_.carries; r < results(); ++r) {
      const Shape& shape = n_.node.results[r];
      init.push_back(fresh());
      types_.push_back(mlir_type(shape));
      line(init.back(), fmt::format("stablehlo.constant dense<{}> : {}", mlir_element(0, shape.dtype), types_.back()));
    }
    for (size_t i = loop_.carries; i < n_.operands.size(); ++i) {
      init.push_back(n_.operands[i]);
      types_.push_back(n_.types[i]);
    }
    for (const std::string& value : init) {
      args_.push_back(fresh());
      assigned_.push_back(fmt::format("{} = {}", args_.back(), value));
    }
  }

  // Returns the name of this trip's slice index.
  std::string this_index() {
    if (!loop_.reverse) return args_[0];
    const std::string last = fresh(), index = fresh();
    if (loop_.limited) {
      const std::string one = fresh();
      line(one, "stablehlo.constant dense<1> : tensor<i32>");
      line(last, fmt::format("stablehlo.subtract {}, {} : tensor<i32>", args_[1], one));
    } else {
      line(last, fmt::format("stablehlo.constant dense<{}> : tensor<i32>", loop_.trips - 1));
    }
    line(index, fmt::format("stablehlo.subtract {}, {} : tensor<i32>", last, args_[0]));
    return index;
  }

  void bind(int64_t input, const std::string& name) { names_[id_of(body_.inputs[input])] = name; }

  // Names the body's inputs. A slice of a value in host memory is printed where the body reads it.
  Printer::Later bind_inputs() {
    Printer::Later later;
    bind(0, index_);
    for (int64_t c = 0; c < loop_.carries; ++c) bind(1 + c, args_[1 + c]);
    const int64_t stacks = results() - loop_.carries;
    for (int64_t i = loop_.carries; i < static_cast<int64_t>(n_.operands.size()); ++i) {
      const std::string& arg = args_[1 + stacks + i];
      const Tensor& input = body_.inputs[1 + i];
      if (i >= loop_.carries + loop_.xs)
        bind(1 + i, arg);
      else if (is_read_late(body_, input.node()))
        later[id_of(input)] = [this, i, arg] { slice(i, arg); };
      else
        slice(i, arg);
    }
    return later;
  }

  void slice(int64_t i, const std::string& arg) {
    const Shape whole = n_.node.operands[i].shape(), row = row_of(whole);
    const std::string slice = fresh(), value = fresh();
    const std::string& index = whole.dims[0] > loop_.trips ? later_index_ : index_;
    line(slice, fmt::format("stablehlo.dynamic_slice {}, {}, sizes = {} : ({}{}) -> {}", arg, starts(whole, index),
                            to_string(row.dims), mlir_type(whole), start_types(whole), mlir_type(row)));
    line(value, fmt::format("stablehlo.reshape {} : ({}) -> {}", slice, mlir_type(row),
                            mlir_type(body_.inputs[1 + i].shape())));
    bind(1 + i, value);
  }

  // Returns the stack of result `r` with this trip's slice written to it.
  std::string updated_stack(int64_t r) {
    const Tensor& output = body_.outputs[r];
    const Shape& whole = n_.node.results[r];
    const std::string row = fresh(), updated = fresh(), row_type = mlir_type(row_of(whole));
    line(row, fmt::format("stablehlo.reshape {} : ({}) -> {}", names_.at(id_of(output)), mlir_type(output.shape()),
                          row_type));
    line(updated, fmt::format("stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}{}) -> {}", args_[1 + r], row,
                              starts(whole, index_), mlir_type(whole), row_type, start_types(whole), mlir_type(whole)));
    return updated;
  }

  std::string starts(const Shape& whole, const std::string& index) const {
    std::string out = index;
    for (int64_t d = 1; d < whole.rank(); ++d) out += ", " + zero_;
    return out;
  }
  static std::string start_types(const Shape& whole) {
    std::string out;
    for (int64_t d = 0; d < whole.rank(); ++d) out += ", tensor<i32>";
    return out;
  }

  NodeText& n_;
  Printer& printer_;
  const Loop& loop_;
  const Block& body_;
  const std::string pad_;
  std::vector<std::string> types_, args_, assigned_;  // each has an entry for each value of the loop's state
  std::string zero_, index_, later_index_;            // later_index_: index_ + loop_.first
  ValueNames names_;                                  // names of the body's values
};

}  // namespace

std::string loop_text(NodeText& node, Printer& printer) {
  const auto& loop = node.node.get<Loop>();
  if (const int64_t size = printer.options().mesh.size_of(loop.axis); size > 1) {
    internal_check(size == loop.trips, "a scan of {} trips cannot use the {} devices of mesh axis {}", loop.trips, size,
                   loop.axis);
    return parallel_loop_text(node, printer);
  }
  LoopText(node, printer).print();
  return "";
}

}  // namespace fettle::rows
