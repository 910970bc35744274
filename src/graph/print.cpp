#include "graph/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "graph/custom_call.h"
#include "graph/op_table.h"

namespace fettle {
namespace {

std::string list(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string element(double value, DType dtype) {
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

std::string dense(const Node& node) {
  const Shape& shape = node.results[0];
  if (node.attributes.values == nullptr) return element(node.attributes.splat, shape.dtype);
  size_t next = 0;
  auto nested = [&](auto& self, int64_t dim) -> std::string {
    if (dim == shape.rank()) return element((*node.attributes.values)[next++], shape.dtype);
    std::vector<std::string> parts;
    for (int64_t i = 0; i < shape.dims[dim]; ++i) parts.push_back(self(self, dim + 1));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
  return nested(nested, 0);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    out += plain ? std::string(1, c) : fmt::format("\\{:02X}", static_cast<unsigned char>(c));
  }
  return out + '"';
}

// A name after '@': in quotes unless it is an identifier.
std::string symbol(const std::string& name) {
  const bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '$'; });
  return plain && (std::isdigit(static_cast<unsigned char>(name[0])) == 0) ? name : quoted(name);
}

std::string attribute(const AttributeValue& value) {
  auto array = [](const char* type, const auto& values) {
    return values.empty() ? fmt::format("array<{}>", type)
                          : fmt::format("array<{}: {}>", type, fmt::join(values, ", "));
  };
  return std::visit(
      [&]<typename T>(const T& x) -> std::string {
        if constexpr (std::is_same_v<T, bool>)
          return x ? "true" : "false";
        else if constexpr (std::is_same_v<T, int32_t>)
          return fmt::format("{} : i32", x);
        else if constexpr (std::is_same_v<T, int64_t>)
          return fmt::format("{} : i64", x);
        else if constexpr (std::is_same_v<T, float>)
          return element(x, DType::kF32) + " : f32";
        else if constexpr (std::is_same_v<T, double>)
          return element(x, DType::kF64) + " : f64";
        else if constexpr (std::is_same_v<T, std::string>)
          return quoted(x);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          return array("i64", x);
        else {
          std::vector<std::string> elements;
          for (const float f : x) elements.push_back(element(f, DType::kF32));
          return array("f32", elements);
        }
      },
      value);
}

std::string dictionary(const NamedAttributes& attributes) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : attributes) parts.push_back(fmt::format("{} = {}", name, attribute(value)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  using Names = std::map<std::pair<int32_t, int32_t>, std::string>;

  // Prints something that is put off until it is needed.
  using Later = std::map<std::pair<int32_t, int32_t>, std::function<void()>>;

  // Lines of the block's nodes; `names` holds the inputs' names and gains the results'. What comes from the host's
  // memory (inputs that are `later`, too) stands where it is first used: its copies are begun in the order of the text.
  void nodes(const Block& block, Names& names, Later later = {}) {
    auto need = [&](const std::pair<int32_t, int32_t>& value) {
      const auto at = later.find(value);
      if (at == later.end()) return;
      const std::function<void()> print = std::move(at->second);
      later.erase(at);
      print();
    };
    auto print_node = [&](int32_t id) {
      for (const Tensor& operand : block.node(id).operands) need({operand.node(), operand.result()});
      this->node(block.node(id), id, names);
    };
    for (int32_t id = 0; id < block.size(); ++id) {
      const Node& node = block.node(id);
      if (node.op == Op::kParameter) continue;
      const bool fetches = node.op == Op::kPlace && node.attributes.memory == Memory::kDevice;
      const bool of_fetched =
          node.op == Op::kShardingConstraint && later.contains({node.operands[0].node(), node.operands[0].result()});
      if (fetches || of_fetched)
        later[{id, 0}] = [&print_node, id] { print_node(id); };
      else
        print_node(id);
    }
    while (!later.empty()) need(later.begin()->first);
  }

  std::string text;

 private:
  void node(const Node& node, int32_t id, Names& names) {
    std::vector<std::string> operands, types;
    for (const Tensor& operand : node.operands) {
      operands.push_back(names.at({operand.node(), operand.result()}));
      types.push_back(mlir_type(operand.shape()));
    }
    if (node.op == Op::kShardingConstraint && !sharded()) {
      names[{id, 0}] = operands[0];
      return;
    }
    if (node.op == Op::kScan) return scan(node, id, operands, names);
    const std::string name = fresh();
    const size_t results = node.results.size();
    for (size_t r = 0; r < results; ++r)
      names[{id, static_cast<int32_t>(r)}] = results == 1 ? name : fmt::format("{}#{}", name, r);
    const std::string text = expression(node, operands, types);
    line(results == 1 ? name : fmt::format("{}:{}", name, results), text, node);
  }

  std::string fresh() { return fmt::format("%{}", next_++); }

  void line(const std::string& name, const std::string& expression, const Node& node) {
    text += fmt::format("{}{} = {} loc(\"{}\")\n", indent_, name, expression, node.path);
  }

  std::string signature(const Node& node, const std::vector<std::string>& types) {
    return fmt::format("({}) -> {}", fmt::join(types, ", "), mlir_type(node.results[0]));
  }

  std::string expression(const Node& node, const std::vector<std::string>& o, const std::vector<std::string>& types) {
    const Attributes& a = node.attributes;
    const std::string name = fmt::format("stablehlo.{}", op_row(node.op).name);
    const std::string result = mlir_type(node.results[0]), sig = signature(node, types);
    switch (node.op) {
      case Op::kConstant: return fmt::format("stablehlo.constant dense<{}> : {}", dense(node), result);
      case Op::kIota: return fmt::format("stablehlo.iota dim = {} : {}", a.dims[0], result);
      case Op::kCompare: {
        const DType dtype = node.operands[0].dtype();
        const char* kind = is_float(dtype)                                            ? "FLOAT"
                           : dtype == DType::kPred || stablehlo_name(dtype)[0] == 'u' ? "UNSIGNED"
                                                                                      : "SIGNED";
        return fmt::format("{} {}, {}, {}, {} : {}", name, a.text, o[0], o[1], kind, sig);
      }
      case Op::kSelect: return fmt::format("{} {}, {}, {} : {}, {}", name, o[0], o[1], o[2], types[0], types[1]);
      case Op::kErf: return fmt::format("chlo.erf {} : {} -> {}", o[0], result, result);  // StableHLO has none
      case Op::kIsFinite:
      case Op::kConvert:
      case Op::kBitcastConvert:
      case Op::kReshape: return fmt::format("{} {} : {}", name, o[0], sig);
      case Op::kBroadcastInDim:
      case Op::kTranspose: return fmt::format("{} {}, dims = {} : {}", name, o[0], list(a.dims), sig);
      case Op::kConcatenate: return fmt::format("{} {}, dim = {} : {}", name, fmt::join(o, ", "), a.dims[0], sig);
      case Op::kDynamicSlice: return fmt::format("{} {}, sizes = {} : {}", name, fmt::join(o, ", "), list(a.high), sig);
      case Op::kDynamicUpdateSlice: return fmt::format("{} {} : {}", name, fmt::join(o, ", "), sig);
      case Op::kPad:
        return fmt::format("{} {}, {}, low = {}, high = {}, interior = {} : {}", name, o[0], o[1], list(a.low),
                           list(a.high), list(a.strides), sig);
      case Op::kSlice: {
        std::vector<std::string> ranges;
        for (size_t i = 0; i < a.low.size(); ++i)
          ranges.push_back(fmt::format("{}:{}:{}", a.low[i], a.high[i], a.strides[i]));
        return fmt::format("{} {} [{}] : {}", name, o[0], fmt::join(ranges, ", "), sig);
      }
      case Op::kDotGeneral: return dot(node, o, sig);
      case Op::kReduce: return reduce(node, o, types);
      case Op::kTake: {
        const int64_t rank = node.operands[1].rank(), columns = node.results[0].dims.back();
        const int64_t batch = node.operands[0].rank() - 2;
        return fmt::format(
            "\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{}], "
            "collapsed_slice_dims = [{}], {}start_index_map = [{}], index_vector_dim = {}>, indices_are_sorted = "
            "false, "
            "slice_sizes = array<i64: {}1, {}>}}> : {}",
            o[0], o[1], rank, batch, batching("operand_batching_dims", "start_indices_batching_dims", batch), batch,
            rank, repeated("1, ", batch), columns, sig);
      }
      case Op::kTakeTranspose: return scatter(node, o, types);
      case Op::kCustomCall: return call(node, o, types);
      case Op::kPlace:
        return fmt::format(
            "stablehlo.custom_call @annotate_device_placement({}) {{backend_config = \"\", has_side_effect = true, "
            "mhlo.frontend_attributes = {{_xla_buffer_placement = \"{}\"}}}} : {}",
            o[0], memory_kind(a.memory), sig);
      case Op::kOptimizationBarrier: return fmt::format("{} {} : {}", name, fmt::join(o, ", "), fmt::join(types, ", "));
      case Op::kShardingConstraint:
        return fmt::format("sdy.sharding_constraint {} {} : {}", o[0],
                           mlir_sharding(a.partition, node.results[0].rank()), result);
      default:
        internal_check(node.results.size() == 1 && !o.empty(), "no spelling for {}", name);
        return fmt::format("{} {} : {}", name, fmt::join(o, ", "), result);
    }
  }

  bool sharded() const { return options_.mesh.size() > 1; }

  // The call itself, or a region in which every device calls it with its own shards.
  std::string call(const Node& node, const std::vector<std::string>& o, const std::vector<std::string>& types) {
    const CustomCall& call = *node.attributes.call;
    std::vector<std::string> results;
    for (const Shape& shape : node.results) results.push_back(mlir_type(shape));
    if (!sharded()) return call_expression(call, o, types, results);
    std::vector<std::string> in, out, axes, arguments, declared, local, local_results, returned;
    for (size_t i = 0; i < o.size(); ++i) {
      const Shape& shape = node.operands[i].shape();
      in.push_back(mlir_sharding(call.in[i], shape.rank()));
      arguments.push_back(fresh());
      local.push_back(mlir_type(shard_of(shape, call.in[i], options_.mesh)));
      declared.push_back(fmt::format("{}: {}", arguments[i], local[i]));
    }
    const std::string name = fresh();
    for (size_t r = 0; r < node.results.size(); ++r) {
      out.push_back(mlir_sharding(call.out[r], node.results[r].rank()));
      local_results.push_back(mlir_type(shard_of(node.results[r], call.out[r], options_.mesh)));
      returned.push_back(node.results.size() == 1 ? name : fmt::format("{}#{}", name, r));
    }
    for (const auto& [axis, size] : options_.mesh.axes) axes.push_back('"' + axis + '"');
    std::string text =
        fmt::format("sdy.manual_computation({}) in_shardings=[{}] out_shardings=[{}] manual_axes={{{}}} ({}) {{\n",
                    fmt::join(o, ", "), fmt::join(in, ", "), fmt::join(out, ", "), fmt::join(axes, ", "),
                    fmt::join(declared, ", "));
    text += fmt::format("{}  {} = {} loc(\"{}\")\n", indent_,
                        node.results.size() == 1 ? name : fmt::format("{}:{}", name, node.results.size()),
                        call_expression(call, arguments, local, local_results), node.path);
    text += fmt::format("{}  sdy.return {} : {}\n", indent_, fmt::join(returned, ", "), fmt::join(local_results, ", "));
    return text + fmt::format("{}}} : ({}) -> ({})", indent_, fmt::join(types, ", "), fmt::join(results, ", "));
  }

  static std::string call_expression(const CustomCall& call, const std::vector<std::string>& o,
                                     const std::vector<std::string>& types, const std::vector<std::string>& results) {
    return fmt::format("stablehlo.custom_call @{}({}) {{api_version = 4 : i32, backend_config = {{{}}}}} : ({}) -> {}",
                       symbol(call.target), fmt::join(o, ", "), dictionary(call.attributes), fmt::join(types, ", "),
                       results.size() == 1 ? results[0] : fmt::format("({})", fmt::join(results, ", ")));
  }

  std::string dot(const Node& node, const std::vector<std::string>& o, const std::string& sig) {
    const DotDims& d = node.attributes.dot;
    std::string text = fmt::format("stablehlo.dot_general {}, {},", o[0], o[1]);
    if (!d.lhs_batching.empty())
      text += fmt::format(" batching_dims = {} x {},", list(d.lhs_batching), list(d.rhs_batching));
    text += fmt::format(" contracting_dims = {} x {}", list(d.lhs_contracting), list(d.rhs_contracting));
    if (node.operands[0].dtype() == DType::kF32 && !options_.tf32) text += ", precision = [HIGHEST, HIGHEST]";
    return text + " : " + sig;
  }

  std::string reduce(const Node& node, const std::vector<std::string>& o, const std::vector<std::string>& types) {
    const Shape scalar{node.results[0].dtype, {}};
    const std::string& kind = node.attributes.text;
    std::string init = kind == "and" ? "true" : kind == "or" ? "false" : element(0, scalar.dtype);
    if (kind == "maximum" || kind == "minimum") init = element(kind == "maximum" ? -INFINITY : INFINITY, scalar.dtype);
    const std::string name = fresh();
    line(name, fmt::format("stablehlo.constant dense<{}> : {}", init, mlir_type(scalar)), node);
    return fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {} : ({}, {}) -> {}",
                       o[0], name, kind, list(node.attributes.dims), types[0], mlir_type(scalar),
                       mlir_type(node.results[0]));
  }

  std::string scatter(const Node& node, const std::vector<std::string>& o, const std::vector<std::string>& types) {
    const std::string table = mlir_type(node.results[0]), scalar = mlir_type({node.results[0].dtype, {}});
    const int64_t rank = node.operands[1].rank(), batch = node.results[0].rank() - 2;
    std::string onto = o.size() > 2 ? o[2] : fresh();
    const std::string a = fresh(), b = fresh(), sum = fresh();
    if (o.size() == 2)
      line(onto, fmt::format("stablehlo.constant dense<{}> : {}", element(0, node.results[0].dtype), table), node);
    return fmt::format(
        "\"stablehlo.scatter\"({}, {}, {}) <{{indices_are_sorted = false, scatter_dimension_numbers = "
        "#stablehlo.scatter<update_window_dims = [{}], inserted_window_dims = [{}], {}scatter_dims_to_operand_dims = "
        "[{}], index_vector_dim = {}>, unique_indices = false}}> ({{ ^bb0({}: {}, {}: {}): {} = stablehlo.add {}, {} : "
        "{} stablehlo.return {} : {} }}) : ({}, {}, {}) -> {}",
        onto, o[1], o[0], rank, batch, batching("input_batching_dims", "scatter_indices_batching_dims", batch), batch,
        rank, a, scalar, b, scalar, sum, a, b, scalar, sum, scalar, table, types[1], types[0], table);
  }

  // A while whose state is: counter, carries, stacked ys, then xs and captures unchanged.
  void scan(const Node& node, int32_t id, const std::vector<std::string>& operands, Names& names) {
    const Attributes& at = node.attributes;
    const Block& body = *at.body;
    std::vector<std::string> init{fresh()}, types{"tensor<i32>"}, args;
    line(init[0], "stablehlo.constant dense<0> : tensor<i32>", node);
    for (int64_t c = 0; c < at.carries; ++c) {
      init.push_back(operands[c]);
      types.push_back(mlir_type(node.results[c]));
    }
    for (size_t r = at.carries; r < node.results.size(); ++r) {
      const Shape& shape = node.results[r];
      init.push_back(fresh());
      types.push_back(mlir_type(shape));
      line(init.back(), fmt::format("stablehlo.constant dense<{}> : {}", element(0, shape.dtype), types.back()), node);
    }
    for (size_t i = at.carries; i < operands.size(); ++i) {
      init.push_back(operands[i]);
      types.push_back(mlir_type(node.operands[i].shape()));
    }
    std::vector<std::string> assigned;
    for (size_t i = 0; i < init.size(); ++i) {
      args.push_back(fresh());
      assigned.push_back(fmt::format("{} = {}", args[i], init[i]));
    }
    const std::string name = fresh(), limit = fresh(), more = fresh(), step = fresh(), next = fresh();
    const std::string pad = indent_;
    text += fmt::format("{}{}:{} = stablehlo.while({}) : {}\n", pad, name, init.size(), fmt::join(assigned, ", "),
                        fmt::join(types, ", "));
    text += fmt::format("{}cond {{\n{}  {} = stablehlo.constant dense<{}> : tensor<i32>\n", pad, pad, limit, at.trips);
    text += fmt::format("{}  {} = stablehlo.compare LT, {}, {}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n",
                        pad, more, args[0], at.limited ? args[1] : limit);
    text += fmt::format("{}  stablehlo.return {} : tensor<i1>\n{}}} do {{\n", pad, more, pad);
    indent_ += "  ";
    const std::string zero = fresh();
    line(zero, "stablehlo.constant dense<0> : tensor<i32>", node);
    std::string index = args[0];
    if (at.reverse) {
      const std::string last = fresh();
      index = fresh();
      if (at.limited) {
        const std::string one = fresh();
        line(one, "stablehlo.constant dense<1> : tensor<i32>", node);
        line(last, fmt::format("stablehlo.subtract {}, {} : tensor<i32>", args[1], one), node);
      } else {
        line(last, fmt::format("stablehlo.constant dense<{}> : tensor<i32>", at.trips - 1), node);
      }
      line(index, fmt::format("stablehlo.subtract {}, {} : tensor<i32>", last, args[0]), node);
    }
    const int64_t ys = static_cast<int64_t>(node.results.size()) - at.carries;
    Names inner;
    auto bind = [&](size_t input, const std::string& value) {
      inner[{body.inputs[input].node(), body.inputs[input].result()}] = value;
    };
    Later later;
    bind(0, index);
    for (int64_t c = 0; c < at.carries; ++c) bind(1 + c, args[1 + c]);
    for (size_t i = at.carries; i < operands.size(); ++i) {
      const std::string& arg = args[1 + ys + i];
      if (static_cast<int64_t>(i) >= at.carries + at.xs) {
        bind(1 + i, arg);
        continue;
      }
      auto print_slice = [&, i, arg] {
        const Shape whole = node.operands[i].shape(), part = body.inputs[1 + i].shape();
        Dims sizes = whole.dims;
        sizes[0] = 1;
        const std::string slice = fresh(), value = fresh();
        line(slice,
             fmt::format("stablehlo.dynamic_slice {}, {}, sizes = {} : ({}{}) -> {}", arg,
                         indices(index, zero, whole.rank()), list(sizes), mlir_type(whole),
                         repeated(", tensor<i32>", whole.rank()), mlir_type({whole.dtype, sizes})),
             node);
        line(value,
             fmt::format("stablehlo.reshape {} : ({}) -> {}", slice, mlir_type({whole.dtype, sizes}), mlir_type(part)),
             node);
        bind(1 + i, value);
      };
      const Tensor& input = body.inputs[1 + i];
      if (is_fetched(body, input.node()))
        later[{input.node(), input.result()}] = print_slice;
      else
        print_slice();
    }
    nodes(body, inner, std::move(later));
    indent_ = pad + "  ";
    std::vector<std::string> returned{next};
    for (int64_t c = 0; c < at.carries; ++c)
      returned.push_back(inner.at({body.outputs[c].node(), body.outputs[c].result()}));
    for (int64_t y = 0; y < ys; ++y) {
      const Tensor& output = body.outputs[at.carries + y];
      const Shape& whole = node.results[at.carries + y];
      Dims sizes = whole.dims;
      sizes[0] = 1;
      const std::string row = fresh(), updated = fresh();
      line(row,
           fmt::format("stablehlo.reshape {} : ({}) -> {}", inner.at({output.node(), output.result()}),
                       mlir_type(output.shape()), mlir_type({whole.dtype, sizes})),
           node);
      line(updated,
           fmt::format("stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}{}) -> {}", args[1 + at.carries + y], row,
                       indices(index, zero, whole.rank()), mlir_type(whole), mlir_type({whole.dtype, sizes}),
                       repeated(", tensor<i32>", whole.rank()), mlir_type(whole)),
           node);
      returned.push_back(updated);
    }
    for (size_t i = at.carries; i < operands.size(); ++i) returned.push_back(args[1 + ys + i]);
    line(step, "stablehlo.constant dense<1> : tensor<i32>", node);
    line(next, fmt::format("stablehlo.add {}, {} : tensor<i32>", args[0], step), node);
    text += fmt::format("{}stablehlo.return {} : {}\n", indent_, fmt::join(returned, ", "), fmt::join(types, ", "));
    indent_ = pad;
    text += fmt::format("{}}} loc(\"{}\")\n", indent_, node.path);
    for (size_t r = 0; r < node.results.size(); ++r)
      names[{id, static_cast<int32_t>(r)}] = fmt::format("{}#{}", name, 1 + r);
  }

  // The node lies in the host's memory: the block places it on the device.
  static bool is_fetched(const Block& block, int32_t value) {
    for (int32_t id = value + 1; id < block.size(); ++id) {
      const Node& node = block.node(id);
      if (node.operands.empty() || node.operands[0].node() != value) continue;
      if (node.op == Op::kPlace && node.attributes.memory == Memory::kDevice) return true;
      if (node.op == Op::kShardingConstraint && is_fetched(block, id)) return true;
    }
    return false;
  }

  // The leading `batch` dims of a table and its ids, which go together.
  static std::string batching(const char* of_table, const char* of_ids, int64_t batch) {
    Dims dims;
    for (int64_t d = 0; d < batch; ++d) dims.push_back(d);
    return batch == 0 ? "" : fmt::format("{} = {}, {} = {}, ", of_table, list(dims), of_ids, list(dims));
  }
  static std::string repeated(const std::string& part, int64_t times) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += part;
    return out;
  }
  static std::string indices(const std::string& first, const std::string& zero, int64_t rank) {
    return first + repeated(", " + zero, rank - 1);
  }

  const PrintOptions& options_;
  std::string indent_ = "    ";
  int64_t next_ = 0;
};

}  // namespace

std::string mlir_type(const Shape& shape) {
  std::string out = "tensor<";
  for (int64_t d : shape.dims) out += fmt::format("{}x", d);
  return out + std::string(stablehlo_name(shape.dtype)) + ">";
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
  Printer::Names names;
  for (size_t i = 0; i < block.inputs.size(); ++i)
    names[{block.inputs[i].node(), block.inputs[i].result()}] = fmt::format("%arg{}", i);
  printer.nodes(block, names);
  std::vector<std::string> returned, types;
  for (const Tensor& output : block.outputs) {
    returned.push_back(names.at({output.node(), output.result()}));
    types.push_back(mlir_type(output.shape()));
  }
  return printer.text + fmt::format("    return {} : {}\n", fmt::join(returned, ", "), fmt::join(types, ", "));
}

}  // namespace fettle
