#include "kernels/gpu/triton.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace fettle::gpu {
namespace {

const char* const kI32 = "i32";

// Broadcasts `x` to `dims`: repeats a scalar, or the dims of `x` that have size 1.
TritonValue repeat(const TritonValue& x, const Dims& dims) {
  if (x.type.dims == dims) return x;
  const TritonType type{x.type.element, dims};
  if (x.type.dims.empty())
    return x.ir->append(fmt::format("tt.splat {} : {} -> {}", x.name, x.type.text(), type.text()), type);
  internal_check(x.type.dims.size() == dims.size(), "triton: {} cannot become {}", x.type.text(), type.text());
  return x.ir->append(fmt::format("tt.broadcast {} : {} -> {}", x.name, x.type.text(), type.text()), type);
}

Dims common_dims(const TritonValue& x, const TritonValue& y) {
  if (x.type.dims.empty()) return y.type.dims;
  if (y.type.dims.empty()) return x.type.dims;
  internal_check(x.type.dims.size() == y.type.dims.size(), "triton: {} and {} differ in rank", x.type.text(),
                 y.type.text());
  Dims out = x.type.dims;
  for (size_t d = 0; d < out.size(); ++d) {
    out[d] = std::max(out[d], y.type.dims[d]);
    internal_check(
        (x.type.dims[d] == out[d] || x.type.dims[d] == 1) && (y.type.dims[d] == out[d] || y.type.dims[d] == 1),
        "triton: {} and {} do not broadcast to each other", x.type.text(), y.type.text());
  }
  return out;
}

TritonValue binary(const char* floats, const char* integers, const TritonValue& x, const TritonValue& y) {
  internal_check(x.type.element == y.type.element, "triton: {} and {} have different element types", x.type.text(),
                 y.type.text());
  const char* op = x.type.floating() ? floats : integers;
  internal_check(op != nullptr, "triton: no such operation on {}", x.type.text());
  const Dims dims = common_dims(x, y);
  const TritonValue a = repeat(x, dims), b = repeat(y, dims);
  return x.ir->append(fmt::format("{} {}, {} : {}", op, a.name, b.name, a.type.text()), a.type);
}

TritonValue unary(const char* op, const TritonValue& x) {
  return x.ir->append(fmt::format("{} {} : {}", op, x.name, x.type.text()), x.type);
}

TritonValue number(double value, const TritonValue& like) {
  return like.ir->constant(value, like.type.element);
}

TritonValue reduce(const char* op, const TritonValue& x) {
  TritonType type = x.type;
  type.dims.pop_back();
  const std::string& e = x.type.element;
  return x.ir->append(
      fmt::format("\"tt.reduce\"({}) <{{axis = {} : i32}}> ({{ ^bb0(%a: {}, %b: {}): %c = {} %a, %b : {} "
                  "tt.reduce.return %c : {} }}) : ({}) -> {}",
                  x.name, type.dims.size(), e, e, op, e, e, x.type.text(), type.text()),
      type);
}

}  // namespace

std::string TritonType::text() const {
  return dims.empty() ? element : fmt::format("tensor<{}x{}>", fmt::join(dims, "x"), element);
}

std::string triton_element(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI32: return "i32";
    default: throw InternalError("triton: dtype {} is not supported", stablehlo_name(dtype));
  }
}

TritonValue operator+(const TritonValue& x, const TritonValue& y) {
  return binary("arith.addf", "arith.addi", x, y);
}
TritonValue operator-(const TritonValue& x, const TritonValue& y) {
  return binary("arith.subf", "arith.subi", x, y);
}
TritonValue operator*(const TritonValue& x, const TritonValue& y) {
  return binary("arith.mulf", "arith.muli", x, y);
}
TritonValue operator/(const TritonValue& x, const TritonValue& y) {
  return binary("arith.divf", "arith.divsi", x, y);
}
TritonValue operator%(const TritonValue& x, const TritonValue& y) {
  return binary(nullptr, "arith.remsi", x, y);
}
TritonValue operator&(const TritonValue& x, const TritonValue& y) {
  return binary(nullptr, "arith.andi", x, y);
}
TritonValue operator+(const TritonValue& x, double y) {
  return x + number(y, x);
}
TritonValue operator-(const TritonValue& x, double y) {
  return x - number(y, x);
}
TritonValue operator-(double x, const TritonValue& y) {
  return number(x, y) - y;
}
TritonValue operator*(const TritonValue& x, double y) {
  return x * number(y, x);
}
TritonValue maximum(const TritonValue& x, const TritonValue& y) {
  return binary("arith.maxnumf", "arith.maxsi", x, y);
}

TritonValue compare(const TritonValue& x, const char* direction, const TritonValue& y) {
  internal_check(x.type.element == y.type.element && !x.type.floating(),
                 "triton: found {} and {} to compare, wanted equal integer types", x.type.text(), y.type.text());
  const Dims dims = common_dims(x, y);
  const TritonValue a = repeat(x, dims), b = repeat(y, dims);
  return x.ir->append(fmt::format("arith.cmpi {}, {}, {} : {}", direction, a.name, b.name, a.type.text()),
                      {"i1", dims});
}

TritonValue select(const TritonValue& pred, const TritonValue& on_true, const TritonValue& on_false) {
  const Dims dims = common_dims(pred, common_dims(on_true, on_false) == on_true.type.dims ? on_true : on_false);
  const TritonValue p = repeat(pred, dims), a = repeat(on_true, dims), b = repeat(on_false, dims);
  const std::string types = dims.empty() ? a.type.text() : p.type.text() + ", " + a.type.text();
  return pred.ir->append(fmt::format("arith.select {}, {}, {} : {}", p.name, a.name, b.name, types), a.type);
}

TritonValue select(const TritonValue& pred, const TritonValue& on_true, double on_false) {
  return select(pred, on_true, number(on_false, on_true));
}

TritonValue exp2(const TritonValue& x) {
  return unary("math.exp2", x);
}
TritonValue log2(const TritonValue& x) {
  return unary("math.log2", x);
}

TritonValue convert(const TritonValue& x, const std::string& element) {
  if (x.type.element == element) return x;
  const TritonType type{element, x.type.dims};
  const bool wider = element == "f32" || element == "i64";
  const char* op = !type.floating()     ? (wider ? "arith.extsi" : "arith.trunci")
                   : !x.type.floating() ? "arith.sitofp"
                                        : (wider ? "arith.extf" : "arith.truncf");
  return x.ir->append(fmt::format("{} {} : {} to {}", op, x.name, x.type.text(), type.text()), type);
}

TritonValue expand(const TritonValue& x, int64_t dim) {
  TritonType type = x.type;
  type.dims.insert(type.dims.begin() + dim, 1);
  return x.ir->append(
      fmt::format("tt.expand_dims {} {{axis = {} : i32}} : {} -> {}", x.name, dim, x.type.text(), type.text()), type);
}

TritonValue transpose(const TritonValue& x) {
  const TritonType type{x.type.element, {x.type.dims.at(1), x.type.dims.at(0)}};
  return x.ir->append(
      fmt::format("tt.trans {} {{order = array<i32: 1, 0>}} : {} -> {}", x.name, x.type.text(), type.text()), type);
}

TritonValue row_max(const TritonValue& x) {
  return reduce("arith.maxnumf", x);
}
TritonValue row_sum(const TritonValue& x) {
  return reduce("arith.addf", x);
}

TritonValue dot(const TritonValue& x, const TritonValue& y, const TritonValue& sum) {
  internal_check(x.type.element == y.type.element && x.type.dims.at(1) == y.type.dims.at(0) &&
                     sum.type == TritonType{"f32", {x.type.dims[0], y.type.dims.at(1)}},
                 "triton: the product of {} and {} does not fit the sum {}", x.type.text(), y.type.text(),
                 sum.type.text());
  return x.ir->append(fmt::format("tt.dot {}, {}, {} : {} * {} -> {}", x.name, y.name, sum.name, x.type.text(),
                                  y.type.text(), sum.type.text()),
                      sum.type);
}

TritonIr::TritonIr(std::string name, const std::vector<std::string>& pointers) {
  std::vector<std::string> declared;
  for (const std::string& element : pointers) {
    arguments_.push_back({this, fmt::format("%arg{}", arguments_.size()), {fmt::format("!tt.ptr<{}>", element), {}}});
    declared.push_back(
        fmt::format("{}: {} {{tt.divisibility = 16 : i32}}", arguments_.back().name, arguments_.back().type.text()));
  }
  head_ = fmt::format("module {{\n  tt.func public @{}({}) {{\n", name, fmt::join(declared, ", "));
}

TritonValue TritonIr::program_id(char axis) {
  return append(fmt::format("tt.get_program_id {} : i32", axis), {kI32, {}});
}

TritonValue TritonIr::constant(double value, const TritonType& type) {
  // Nine digits represent every f32 exactly. All float constants except 0 are f32 numbers.
  const std::string digits =
      type.floating() ? fmt::format("{:.8e}", static_cast<float>(value)) : std::to_string(static_cast<int64_t>(value));
  return append(type.dims.empty() ? fmt::format("arith.constant {} : {}", digits, type.element)
                                  : fmt::format("arith.constant dense<{}> : {}", digits, type.text()),
                type);
}

TritonValue TritonIr::range(int64_t count) {
  const TritonType type{kI32, {count}};
  return append(fmt::format("tt.make_range {{end = {} : i32, start = 0 : i32}} : {}", count, type.text()), type);
}

namespace {

TritonValue address(const TritonValue& pointer, const TritonValue& offsets) {
  const TritonValue base = repeat(pointer, offsets.type.dims);
  return pointer.ir->append(
      fmt::format("tt.addptr {}, {} : {}, {}", base.name, offsets.name, base.type.text(), offsets.type.text()),
      base.type);
}

std::string pointed(const TritonType& pointer) {
  constexpr size_t kPrefix = sizeof("!tt.ptr<") - 1;
  return pointer.element.substr(kPrefix, pointer.element.size() - kPrefix - 1);
}

}  // namespace

TritonValue TritonIr::load(const TritonValue& pointer, const TritonValue& offsets, const TritonValue& mask) {
  const TritonValue from = address(pointer, offsets);
  const TritonType type{pointed(pointer.type), offsets.type.dims};
  std::string operands = from.name;
  if (mask.ir != nullptr) operands += fmt::format(", {}, {}", repeat(mask, type.dims).name, constant(0, type).name);
  return append(fmt::format("tt.load {} : {}", operands, from.type.text()), type);
}

void TritonIr::store(const TritonValue& pointer, const TritonValue& offsets, const TritonValue& value,
                     const TritonValue& mask) {
  const TritonValue to = address(pointer, offsets);
  const TritonValue stored = convert(value, pointed(pointer.type));
  const std::string masked = mask.ir == nullptr ? "" : ", " + repeat(mask, value.type.dims).name;
  line(fmt::format("tt.store {}, {}{} : {}", to.name, stored.name, masked, to.type.text()));
}

TritonIr::Values TritonIr::loop(const TritonValue& count, const Values& start,
                                const std::function<Values(const TritonValue&, const Values&)>& body) {
  const TritonValue zero = constant(0, kI32), one = constant(1, kI32);
  const TritonValue index{this, fresh(), {kI32, {}}};
  Values carried;
  std::vector<std::string> assigned, types;
  for (const TritonValue& value : start) {
    carried.push_back({this, fresh(), value.type});
    assigned.push_back(fmt::format("{} = {}", carried.back().name, value.name));
    types.push_back(value.type.text());
  }
  const std::string result = fresh();
  line(fmt::format("{}:{} = scf.for {} = {} to {} step {} iter_args({}) -> ({}) : i32 {{", result, start.size(),
                   index.name, zero.name, count.name, one.name, fmt::join(assigned, ", "), fmt::join(types, ", ")));
  indent_ += "  ";
  std::vector<std::string> next;
  const Values last = body(index, carried);
  internal_check(last.size() == start.size(), "triton: a loop carries {} values, but its body returns {}", start.size(),
                 last.size());
  for (size_t i = 0; i < last.size(); ++i) {
    internal_check(last[i].type == start[i].type, "triton: a loop's value changes from {} to {}", start[i].type.text(),
                   last[i].type.text());
    next.push_back(last[i].name);
  }
  line(fmt::format("scf.yield {} : {}", fmt::join(next, ", "), fmt::join(types, ", ")));
  indent_.resize(indent_.size() - 2);
  line("}");
  Values out;
  for (size_t i = 0; i < start.size(); ++i) out.push_back({this, fmt::format("{}#{}", result, i), start[i].type});
  return out;
}

std::string TritonIr::text() const {
  return head_ + body_ + "    tt.return\n  }\n}\n";
}

TritonValue TritonIr::append(const std::string& op, const TritonType& type) {
  TritonValue out{this, fresh(), type};
  line(fmt::format("{} = {}", out.name, op));
  return out;
}

void TritonIr::line(const std::string& text) {
  body_ += indent_ + text + '\n';
}

std::string TritonIr::fresh() {
  return fmt::format("%{}", names_++);
}

}  // namespace fettle::gpu
