// Defines the op table's row for custom calls.
#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "graph/custom_call.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

const CustomCall& call_of(const Attributes& attributes) {
  return *as<std::shared_ptr<const CustomCall>>(attributes);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    out += plain ? std::string(1, c) : fmt::format("\\{:02X}", static_cast<unsigned char>(c));
  }
  return out + '"';
}

// Formats a symbol name, which follows an '@'. A name that is not an identifier gets quotes.
std::string symbol(const std::string& name) {
  const bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '$'; });
  return plain && std::isdigit(static_cast<unsigned char>(name[0])) == 0 ? name : quoted(name);
}

std::string attribute_text(const AttributeValue& value) {
  auto array = [](const char* type, const auto& values) {
    return values.empty() ? fmt::format("array<{}>", type)
                          : fmt::format("array<{}: {}>", type, fmt::join(values, ", "));
  };
  return std::visit(
      [&]<typename T>(const T& x) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return x ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int32_t>) {
          return fmt::format("{} : i32", x);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return fmt::format("{} : i64", x);
        } else if constexpr (std::is_same_v<T, float>) {
          return mlir_element(x, DType::kF32) + " : f32";
        } else if constexpr (std::is_same_v<T, double>) {
          return mlir_element(x, DType::kF64) + " : f64";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return quoted(x);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return array("i64", x);
        } else {
          std::vector<std::string> elements;
          for (const float f : x) elements.push_back(mlir_element(f, DType::kF32));
          return array("f32", elements);
        }
      },
      value);
}

std::string one_or_tuple(const std::vector<std::string>& types) {
  return types.size() == 1 ? types[0] : fmt::format("({})", fmt::join(types, ", "));
}

// Formats the cost of one device's call, which is 1 / `shards` of the whole cost. `fettle plan` reads this text from
// the compiled program.
std::string cost_text(const CustomCall& call, int64_t shards) {
  if (call.cost.flops == 0 && call.cost.bytes == 0) return "";
  std::vector<std::string> parts{fmt::format("fettle_kernel = \"{}\"", call.kernel)};
  if (call.cost.flops > 0) parts.push_back(fmt::format("fettle_flops = \"{}\"", call.cost.flops / shards));
  if (call.cost.bytes > 0) parts.push_back(fmt::format("fettle_bytes = \"{}\"", call.cost.bytes / shards));
  if (call.cost.percent > 0) parts.push_back(fmt::format("fettle_percent = \"{}\"", call.cost.percent));
  return fmt::format(", mhlo.frontend_attributes = {{{}}}", fmt::join(parts, ", "));
}

// Returns how many devices compute different parts. Devices along an axis that no partition names do the same work.
int64_t shards_of(const CustomCall& call, const MeshAxes& mesh) {
  std::set<std::string> axes;
  for (const std::vector<Partition>& side : {call.in, call.out})
    for (const Partition& partition : side)
      for (const std::vector<std::string>& dim : partition.dims) axes.insert(dim.begin(), dim.end());
  int64_t shards = 1;
  for (const std::string& axis : axes) shards *= mesh.size_of(axis);
  return shards;
}

// Formats the layouts of arrays: `minor_to_major`, or row-major when it is empty. The called function reads memory in
// this order. Without stated layouts, the compiler could choose others.
std::string layouts_text(const std::vector<Shape>& shapes, const std::vector<Dims>& minor_to_major = {}) {
  std::vector<std::string> out;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Dims dims;
    for (int64_t d = shapes[i].rank(); d-- > 0;) dims.push_back(d);
    if (!minor_to_major.empty()) dims = minor_to_major.at(i);
    out.push_back(dims.empty() ? "dense<> : tensor<0xindex>"
                               : fmt::format("dense<[{}]> : tensor<{}xindex>", fmt::join(dims, ", "), dims.size()));
  }
  return fmt::format("[{}]", fmt::join(out, ", "));
}

// Formats the results that have the memory of operands; "" if there are none.
std::string aliases_text(const CustomCall& call) {
  if (call.aliases.empty()) return "";
  std::vector<std::string> out;
  for (const auto& [result, operand] : call.aliases)
    out.push_back(fmt::format(
        "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, operand_tuple_indices = []>",
        call.results.size() == 1 ? "" : std::to_string(result), operand));
  return fmt::format(", output_operand_aliases = [{}]", fmt::join(out, ", "));
}

std::vector<std::string> types_of(const std::vector<Shape>& shapes) {
  std::vector<std::string> out;
  for (const Shape& shape : shapes) out.push_back(mlir_type(shape));
  return out;
}

// Formats the call itself. `operands` are the names of the operands; `inputs` and `results` are their shapes on one
// device.
std::string plain_call(const CustomCall& call, int64_t shards, const std::vector<std::string>& operands,
                       const std::vector<Shape>& inputs, const std::vector<Shape>& results) {
  std::vector<std::string> attributes;
  for (const auto& [name, value] : call.attributes)
    attributes.push_back(fmt::format("{} = {}", name, attribute_text(value)));
  const std::string config =
      call.config.empty() ? fmt::format("api_version = 4 : i32, backend_config = {{{}}}", fmt::join(attributes, ", "))
                          : fmt::format("backend_config = {}", quoted(call.config));
  return fmt::format("stablehlo.custom_call @{}({}) {{{}{}{}, operand_layouts = {}, result_layouts = {}}} : ({}) -> {}",
                     symbol(call.target), fmt::join(operands, ", "), config, aliases_text(call),
                     cost_text(call, shards), layouts_text(inputs), layouts_text(results, call.result_layouts),
                     fmt::join(types_of(inputs), ", "), one_or_tuple(types_of(results)));
}

// On one device, formats the call itself. On a mesh, formats an sdy.manual_computation in which every device makes the
// call with its own shards.
std::string call_text(NodeText& n, Printer& printer) {
  const CustomCall& call = call_of(n.node.attributes);
  const std::vector<std::string> results = types_of(n.node.results);
  std::vector<Shape> inputs;
  for (const Tensor& operand : n.node.operands) inputs.push_back(operand.shape());
  if (!printer.sharded()) return plain_call(call, 1, n.operands, inputs, n.node.results);

  const MeshAxes& mesh = printer.options().mesh;
  printer.name_results(n);
  std::vector<std::string> in, out, arguments, declared, returned;
  std::vector<Shape> local, local_results;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    in.push_back(mlir_sharding(call.in[i], inputs[i].rank()));
    arguments.push_back(printer.fresh());
    local.push_back(shard_of(inputs[i], call.in[i], mesh));
    declared.push_back(fmt::format("{}: {}", arguments[i], mlir_type(local[i])));
  }
  const std::string name = printer.fresh();
  const size_t count = results.size();
  for (size_t r = 0; r < count; ++r) {
    out.push_back(mlir_sharding(call.out[r], n.node.results[r].rank()));
    local_results.push_back(shard_of(n.node.results[r], call.out[r], mesh));
    returned.push_back(count == 1 ? name : fmt::format("{}#{}", name, r));
  }
  std::string text =
      fmt::format("sdy.manual_computation({}) in_shardings=[{}] out_shardings=[{}] manual_axes={{{}}} ({}) {{\n",
                  fmt::join(n.operands, ", "), fmt::join(in, ", "), fmt::join(out, ", "), printer.manual_axes(),
                  fmt::join(declared, ", "));
  text +=
      fmt::format("{}  {} = {} loc(\"{}\")\n", printer.indent, count == 1 ? name : fmt::format("{}:{}", name, count),
                  plain_call(call, shards_of(call, mesh), arguments, local, local_results), n.node.path);
  text += fmt::format("{}  sdy.return {} : {}\n", printer.indent, fmt::join(returned, ", "),
                      fmt::join(types_of(local_results), ", "));
  return text + fmt::format("{}}} : ({}) -> ({})", printer.indent, fmt::join(n.types, ", "), fmt::join(results, ", "));
}

std::vector<Shape> call_shape(Shapes o, const Attributes& a) {
  const CustomCall& call = call_of(a);
  check(!call.target.empty(), "custom_call_i2", "{} has no target", call.kernel);
  check(call.in.size() == o.size(), "custom_call_i3",
        "found {} operands but {} partitions of operands in the call of {}", o.size(), call.in.size(), call.target);
  check(call.out.size() == call.results.size(), "custom_call_i3",
        "found {} results but {} partitions of results in the call of {}", call.results.size(), call.out.size(),
        call.target);
  return call.results;
}

Tensors call_vjp(const VjpArgs& a) {
  const CustomCall& call = call_of(a.block.node(a.id).attributes);
  internal_check(static_cast<bool>(call.gradient),
                 "{} has no gradient; call stop_gradient on its operands, or set CustomCall::gradient",
                 call.kernel.empty() ? call.target : call.kernel);
  return call.gradient(a);
}

double call_flops(const Node& node) {
  return static_cast<double>(call_of(node.attributes).cost.flops);
}

// An elementwise call is as cheap as the ops that it replaces.
Saved call_saved(const Node& node) {
  return call_of(node.attributes).elementwise ? Saved::kAsValue : Saved::kAsProduct;
}

constexpr std::array kCallRows{
    OpRow{.op = Op::kCustomCall,
          .name = "custom_call",
          .spell = call_text,
          .shape = call_shape,
          .vjp = call_vjp,
          .flops = call_flops,
          .needs = all_operands,
          .saved = call_saved},
};

}  // namespace

std::span<const OpRow> call() {
  return kCallRows;
}

}  // namespace fettle::rows
