#include "triton/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/arrays/host_array.h"
#include "triton/program.h"

namespace fettle {
namespace triton {
namespace {

DType dtype_of(const std::string& element) {
  if (element == "f32") return DType::kF32;
  if (element == "bf16") return DType::kBF16;
  if (element == "f16") return DType::kF16;
  if (element == "i32") return DType::kI32;
  fail("memory of " + element);
}

// Rounds to the element type.
float rounded(float x, const std::string& element) {
  if (element == "f32") return x;
  std::byte bytes[4];
  store_float(bytes, dtype_of(element), 0, x);
  return load_float(bytes, dtype_of(element), 0);
}

class Machine {
 public:
  Machine(const Function& function, const std::vector<TritonMemory>& memory)
      : function_(function), memory_(memory), values_(function.slots) {
    if (memory.size() != function.arguments.size())
      fail(fmt::format("{} arguments, but the function has {}", memory.size(), function.arguments.size()));
    for (size_t i = 0; i < memory.size(); ++i) {
      values_[i] = {function.arguments[i], {}, {0}, i};
      const int64_t size = Shape{dtype_of(function.arguments[i].pointed()), {}}.bytes();
      written_.emplace_back(memory[i].result ? memory[i].bytes / size : 0, false);
    }
  }

  void run(const std::array<int64_t, 3>& ids) {
    ids_ = ids;
    run(function_.ops);
  }

  void check_results() const {
    for (size_t i = 0; i < memory_.size(); ++i)
      for (const bool written : written_[i])
        if (!written) fail(fmt::format("not every element of argument {} is written", i));
  }

 private:
  void run(const std::vector<Op>& ops) {
    for (const Op& op : ops) {
      try {
        run(op);
      } catch (const std::runtime_error& error) {
        if (op.code == "scf.for") throw;
        fail(fmt::format("line {}: {}: {}", op.line, op.code, error.what()));
      }
    }
  }

  const Value& in(const Op& op, size_t i) const { return values_[op.operands.at(i)]; }
  static void want(bool good, const char* what) {
    if (!good) fail(what);
  }

  void run(const Op& op) {
    if (op.code == "scf.for") return run_loop(op);
    if (op.code == "tt.store") return store(op);
    if (op.code == "tt.return" || op.code == "scf.yield") return;
    want(op.results.size() == 1, "no result");
    Value result = compute(op);
    // The text of these three ops does not state the type of the result. It follows from the types of the operands.
    if (op.code != "tt.addptr" && op.code != "tt.load" && op.code != "arith.cmpi")
      want(result.type == op.types.back(), "the result has another type");
    values_[op.results[0]] = std::move(result);
  }

  Value compute(const Op& op) {
    const std::string& code = op.code;
    if (code == "arith.constant") return op.constant;
    if (code == "tt.get_program_id") return {{"i32", {}}, {}, {ids_.at(op.word.at(0) - 'x')}, 0};
    if (code == "tt.make_range") return range(op);
    if (code == "tt.splat" || code == "tt.broadcast") return repeat(op);
    if (code == "tt.expand_dims") return expanded(op);
    if (code == "tt.trans") return transposed(op);
    if (code == "tt.addptr") return moved(op);
    if (code == "tt.load") return load(op);
    if (code == "tt.dot") return dot(op);
    if (code == "tt.reduce") return reduced(op);
    if (code == "arith.select") return selected(op);
    if (code == "arith.cmpi") return compared(op);
    if (op.operands.size() == 2) return binary(op);
    if (op.operands.size() == 1) return unary(op);
    fail("not supported");
  }

  static Value range(const Op& op) {
    Value out{op.types.at(0), {}, {}, 0};
    want(op.attributes.at("start") == 0 && out.type == Type{"i32", {op.attributes.at("end")}},
         "the range must be i32 and begin at 0");
    for (int64_t i = 0; i < op.attributes.at("end"); ++i) out.integers.push_back(i);
    return out;
  }

  // Returns a value of type `type`. Its element i is element index(i) of `x`.
  template <typename Index>
  static Value gathered(const Value& x, const Type& type, Index index) {
    Value out{type, {}, {}, x.argument};
    const int64_t count = type.count();
    for (int64_t i = 0; i < count; ++i)
      type.floating() ? out.floats.push_back(x.floats.at(index(i))) : out.integers.push_back(x.integers.at(index(i)));
    return out;
  }

  Value repeat(const Op& op) const {
    const Value& x = in(op, 0);
    const Type& type = op.types.at(1);
    want(x.type == op.types.at(0) && x.type.element == type.element, "another operand");
    if (op.code == "tt.splat") {
      want(x.type.dims.empty(), "wanted a scalar, found a tensor");
      return gathered(x, type, [](int64_t) { return 0; });
    }
    want(x.type.dims.size() == type.dims.size(), "operand and result differ in rank");
    for (size_t d = 0; d < type.dims.size(); ++d)
      want(x.type.dims[d] == 1 || x.type.dims[d] == type.dims[d], "another dim");
    return gathered(x, type, [&](int64_t i) {
      int64_t at = 0, stride = 1;
      for (size_t d = type.dims.size(); d-- > 0;) {
        if (x.type.dims[d] > 1) at += i % type.dims[d] * stride;
        stride *= x.type.dims[d];
        i /= type.dims[d];
      }
      return at;
    });
  }

  Value expanded(const Op& op) const {
    const Value& x = in(op, 0);
    want(x.type == op.types.at(0), "another operand");
    Type type = x.type;
    type.dims.insert(type.dims.begin() + op.attributes.at("axis"), 1);
    return gathered(x, type, [](int64_t i) { return i; });
  }

  Value transposed(const Op& op) const {
    const Value& x = in(op, 0);
    want(x.type == op.types.at(0) && op.word == "1, 0" && x.type.dims.size() == 2, "another operand");
    const int64_t rows = x.type.dims[0], columns = x.type.dims[1];
    return gathered(x, {x.type.element, {columns, rows}}, [=](int64_t i) { return i % rows * columns + i / rows; });
  }

  Value moved(const Op& op) const {
    Value out = in(op, 0);
    const Value& by = in(op, 1);
    want(out.type == op.types.at(0) && by.type == op.types.at(1), "another operand");
    want(out.type.pointer() && out.type.dims == by.type.dims && by.type.element.starts_with("i"), "no offsets");
    for (size_t i = 0; i < out.integers.size(); ++i) out.integers[i] += by.integers[i];
    return out;
  }

  int64_t place(const Value& pointer, int64_t i) const {
    const int64_t at = pointer.integers[i], size = Shape{dtype_of(pointer.type.pointed()), {}}.bytes();
    if (at < 0 || (at + 1) * size > memory_[pointer.argument].bytes)
      fail(fmt::format("element {} of argument {}, which has {} bytes", at, pointer.argument,
                       memory_[pointer.argument].bytes));
    return at;
  }

  Value load(const Op& op) const {
    const Value& from = in(op, 0);
    want(from.type == op.types.at(0) && from.type.pointer(), "another operand");
    const TritonMemory& memory = memory_[from.argument];
    want(!memory.result, "reads a result");
    Value out{{from.type.pointed(), from.type.dims}, {}, {}, 0};
    const bool masked = op.operands.size() == 3;
    want(masked || op.operands.size() == 1, "wanted a pointer, or a pointer with mask and default");
    if (masked) want(in(op, 1).type == Type{"i1", out.type.dims} && in(op, 2).type == out.type, "another mask");
    const DType dtype = dtype_of(out.type.element);
    for (int64_t i = 0; i < out.type.count(); ++i) {
      const bool reads = !masked || in(op, 1).integers[i] != 0;
      if (out.type.floating())
        out.floats.push_back(reads ? load_float(memory.data, dtype, place(from, i)) : in(op, 2).floats[i]);
      else
        out.integers.push_back(reads ? reinterpret_cast<const int32_t*>(memory.data)[place(from, i)]
                                     : in(op, 2).integers[i]);
    }
    return out;
  }

  void store(const Op& op) {
    const Value &to = in(op, 0), &value = in(op, 1);
    want(to.type == op.types.at(0) && value.type == Type{to.type.pointed(), to.type.dims}, "another operand");
    const TritonMemory& memory = memory_[to.argument];
    want(memory.result, "writes an operand");
    const bool masked = op.operands.size() == 3;
    if (masked) want(in(op, 2).type == Type{"i1", to.type.dims}, "another mask");
    for (int64_t i = 0; i < value.type.count(); ++i) {
      if (masked && in(op, 2).integers[i] == 0) continue;
      const int64_t at = place(to, i);
      want(!written_[to.argument][at], "writes an element twice");
      written_[to.argument][at] = true;
      store_float(memory.data, dtype_of(to.type.pointed()), at, value.floats[i]);
    }
  }

  Value dot(const Op& op) const {
    const Value &x = in(op, 0), &y = in(op, 1), &sum = in(op, 2);
    want(x.type == op.types.at(0) && y.type == op.types.at(1) && sum.type == op.types.at(2), "another operand");
    want(x.type.dims.size() == 2 && y.type.dims.size() == 2 && x.type.element == y.type.element, "another operand");
    const int64_t m = x.type.dims[0], k = x.type.dims[1], n = y.type.dims[1];
    want(y.type.dims[0] == k && sum.type == Type{"f32", {m, n}}, "shapes do not fit");
    want(m >= 16 && n >= 16 && k >= 16, "a product of fewer than 16 numbers");
    Value out = sum;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t i = 0; i < k; ++i) {
        const float factor = x.floats[r * k + i];
        for (int64_t c = 0; c < n; ++c) out.floats[r * n + c] += factor * y.floats[i * n + c];
      }
    return out;
  }

  Value reduced(const Op& op) const {
    const Value& x = in(op, 0);
    want(x.type == op.types.at(0) && op.attributes.at("axis") + 1 == static_cast<int64_t>(x.type.dims.size()),
         "another operand");
    Type type = x.type;
    const int64_t columns = type.dims.back();
    type.dims.pop_back();
    Value out{type, {}, {}, 0};
    for (int64_t r = 0; r < type.count(); ++r) {
      float all = x.floats[r * columns];
      for (int64_t c = 1; c < columns; ++c) {
        const float next = x.floats[r * columns + c];
        if (op.word == "arith.maxnumf")
          all = std::fmax(all, next);
        else if (op.word == "arith.addf")
          all += next;
        else
          fail(op.word);
      }
      out.floats.push_back(all);
    }
    return out;
  }

  Value selected(const Op& op) const {
    const Value &pred = in(op, 0), &a = in(op, 1), &b = in(op, 2);
    want(a.type == op.types.back() && b.type == a.type && pred.type == Type{"i1", a.type.dims}, "another operand");
    Value out = b;
    for (size_t i = 0; i < pred.integers.size(); ++i) {
      if (pred.integers[i] == 0) continue;
      a.type.floating() ? void(out.floats[i] = a.floats[i]) : void(out.integers[i] = a.integers[i]);
    }
    return out;
  }

  Value compared(const Op& op) {
    const Value &x = in(op, 0), &y = in(op, 1);
    want(x.type == op.types.at(0) && y.type == x.type && !x.type.floating(), "another operand");
    Value out{{"i1", x.type.dims}, {}, {}, 0};
    for (size_t i = 0; i < x.integers.size(); ++i) {
      const int64_t a = x.integers[i], b = y.integers[i];
      if (op.word != "eq" && op.word != "slt" && op.word != "sle") fail(op.word);
      out.integers.push_back(op.word == "eq" ? a == b : op.word == "slt" ? a < b : a <= b);
    }
    return out;
  }

  Value binary(const Op& op) const {
    static const std::map<std::string, float (*)(float, float)> floats = {
        {"arith.addf", [](float x, float y) { return x + y; }},
        {"arith.subf", [](float x, float y) { return x - y; }},
        {"arith.mulf", [](float x, float y) { return x * y; }},
        {"arith.divf", [](float x, float y) { return x / y; }},
        {"arith.maxnumf", [](float x, float y) { return std::fmax(x, y); }}};
    static const std::map<std::string, int64_t (*)(int64_t, int64_t)> integers = {
        {"arith.addi", [](int64_t x, int64_t y) { return x + y; }},
        {"arith.subi", [](int64_t x, int64_t y) { return x - y; }},
        {"arith.muli", [](int64_t x, int64_t y) { return x * y; }},
        {"arith.andi", [](int64_t x, int64_t y) { return x & y; }},
        {"arith.divsi", [](int64_t x, int64_t y) { return y == 0 ? throw std::runtime_error("by 0") : x / y; }},
        {"arith.remsi", [](int64_t x, int64_t y) { return y == 0 ? throw std::runtime_error("by 0") : x % y; }}};
    const Value &x = in(op, 0), &y = in(op, 1);
    want(x.type == op.types.at(0) && y.type == x.type, "another operand");
    Value out{x.type, {}, {}, 0};
    if (const auto f = floats.find(op.code); f != floats.end()) {
      want(x.type.floating(), "integers");
      for (size_t i = 0; i < x.floats.size(); ++i)
        out.floats.push_back(rounded(f->second(x.floats[i], y.floats[i]), x.type.element));
    } else if (const auto g = integers.find(op.code); g != integers.end()) {
      want(!x.type.floating() && !x.type.pointer(), "no integers");
      for (size_t i = 0; i < x.integers.size(); ++i)
        out.integers.push_back(in_range(g->second(x.integers[i], y.integers[i]), x.type.element));
    } else {
      fail("not supported");
    }
    return out;
  }

  Value unary(const Op& op) const {
    const Value& x = in(op, 0);
    want(x.type == op.types.at(0), "another operand");
    Value out{op.types.back(), {}, {}, 0};
    want(out.type.dims == x.type.dims, "another result");
    const std::string &from = x.type.element, &to = out.type.element;
    if (op.code == "math.exp2" || op.code == "math.log2") {
      want(from == "f32" && to == "f32", "not f32");
      for (const float v : x.floats) out.floats.push_back(op.code == "math.exp2" ? std::exp2(v) : std::log2(v));
    } else if (op.code == "arith.extf" || op.code == "arith.truncf") {
      want(x.type.floating() && out.type.floating() && (to == "f32") == (op.code == "arith.extf") && from != to,
           "no such conversion");
      for (const float v : x.floats) out.floats.push_back(rounded(v, to));
    } else if (op.code == "arith.sitofp") {
      want((from == "i32" || from == "i64") && to == "f32", "no such conversion");
      for (const int64_t v : x.integers) out.floats.push_back(static_cast<float>(v));
    } else if (op.code == "arith.extsi") {
      want(from == "i32" && to == "i64", "no such conversion");
      out.integers = x.integers;
    } else {
      fail("not supported");
    }
    return out;
  }

  void run_loop(const Op& op) {
    const size_t count = op.types.size();
    const int64_t start = in(op, 0).integers.at(0), end = in(op, 1).integers.at(0), step = in(op, 2).integers.at(0);
    std::vector<Value> carried;
    for (size_t i = 0; i < count; ++i) carried.push_back(in(op, 3 + i));
    auto check = [&] {
      for (size_t i = 0; i < count; ++i)
        if (!(carried[i].type == op.types[i])) fail(fmt::format("line {}: a loop's value has another type", op.line));
    };
    check();
    for (int64_t i = start; i < end; i += step) {
      values_[op.results[0]] = {{"i32", {}}, {}, {i}, 0};
      for (size_t c = 0; c < count; ++c) values_[op.results[1 + c]] = std::move(carried[c]);
      run(op.body);
      const Op& yield = op.body.back();
      for (size_t c = 0; c < count; ++c) carried[c] = values_[yield.operands.at(c)];
      check();
    }
    for (size_t c = 0; c < count; ++c) values_[op.results[1 + count + c]] = std::move(carried[c]);
  }

  const Function& function_;
  const std::vector<TritonMemory>& memory_;
  std::vector<Value> values_;
  std::vector<std::vector<bool>> written_;
  std::array<int64_t, 3> ids_{};
};

}  // namespace
}  // namespace triton

void run_triton(const std::string& ir, const std::string& name, const std::array<int64_t, 3>& grid,
                const std::vector<TritonMemory>& arguments) {
  const triton::Function function = triton::read_function(ir, name);
  triton::Machine machine(function, arguments);
  for (int64_t z = 0; z < grid[2]; ++z)
    for (int64_t y = 0; y < grid[1]; ++y)
      for (int64_t x = 0; x < grid[0]; ++x) machine.run({x, y, z});
  machine.check_results();
}

}  // namespace fettle
