// Defines TritonIr, which writes one kernel in Triton's IR: MLIR text of the dialects tt, arith, math and scf.
//
// A kernel is one function of pointers. Many instances of it run at the same time, numbered by three program ids. One
// instance computes with tensors whose dims are powers of two. Sources: the dialect's documentation
// (triton-lang.org, "MLIR dialects"), and the text that the GPU plugins accept.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle::gpu {

// The type of a value: the type of its elements, and its dims. An element is a number ("f32", "bf16", "f16", "i1",
// "i32", "i64") or a pointer to a number ("!tt.ptr<f32>"). A scalar has no dims.
struct TritonType {
  std::string element;
  Dims dims;

  std::string text() const;  // "tensor<64x32xf32>"
  bool floating() const { return element[0] == 'f' || element[0] == 'b'; }
  bool pointer() const { return element[0] == '!'; }
  bool operator==(const TritonType&) const = default;
};

// Returns the name of a dtype in the IR: "bf16". Supports f32, bf16, f16 and i32.
std::string triton_element(DType dtype);

class TritonIr;

// A value of the kernel. Cheap to copy.
struct TritonValue {
  TritonIr* ir = nullptr;
  std::string name;  // "%12"
  TritonType type;
};

// Binary operators take operands of one element type. A scalar and a dim of size 1 are repeated to the other operand's
// dims. A C++ number becomes a constant of the other operand's element type.
TritonValue operator+(const TritonValue& x, const TritonValue& y);
TritonValue operator-(const TritonValue& x, const TritonValue& y);
TritonValue operator*(const TritonValue& x, const TritonValue& y);
TritonValue operator/(const TritonValue& x, const TritonValue& y);
TritonValue operator%(const TritonValue& x, const TritonValue& y);  // integers
TritonValue operator&(const TritonValue& x, const TritonValue& y);  // i1
TritonValue operator+(const TritonValue& x, double y);
TritonValue operator-(const TritonValue& x, double y);
TritonValue operator-(double x, const TritonValue& y);
TritonValue operator*(const TritonValue& x, double y);
TritonValue maximum(const TritonValue& x, const TritonValue& y);
TritonValue compare(const TritonValue& x, const char* direction, const TritonValue& y);  // "eq", "slt", "sle"
TritonValue select(const TritonValue& pred, const TritonValue& on_true, double on_false);
TritonValue select(const TritonValue& pred, const TritonValue& on_true, const TritonValue& on_false);
TritonValue exp2(const TritonValue& x);
TritonValue log2(const TritonValue& x);
// Converts between float types, between integer types, and from integers to floats.
TritonValue convert(const TritonValue& x, const std::string& element);
TritonValue expand(const TritonValue& x, int64_t dim);  // inserts a dim of size 1
TritonValue transpose(const TritonValue& x);            // x has two dims
// Reduces the last dim.
TritonValue row_max(const TritonValue& x);
TritonValue row_sum(const TritonValue& x);
// Returns the matrix product of x [M, K] and y [K, N], plus sum [M, N] in f32. Products of f32 are computed in f32, not
// in TF32.
TritonValue dot(const TritonValue& x, const TritonValue& y, const TritonValue& sum);

class TritonIr {
 public:
  // `pointers` are the element types to which the kernel's arguments point. The arguments are the operands of the call,
  // then its results, as XLA passes them. All addresses are multiples of 16 bytes.
  TritonIr(std::string name, const std::vector<std::string>& pointers);
  TritonIr(const TritonIr&) = delete;
  TritonIr& operator=(const TritonIr&) = delete;

  TritonValue argument(size_t i) const { return arguments_.at(i); }
  TritonValue program_id(char axis);  // 'x', 'y' or 'z'; i32
  TritonValue constant(double value, const TritonType& type);
  TritonValue constant(double value, const std::string& element) { return constant(value, TritonType{element, {}}); }
  TritonValue range(int64_t count);  // i32: 0, 1, ..., count - 1

  // Reads `pointer` + `offsets` (elements). Where `mask` is false, nothing is read, and the result is 0. A null mask is
  // true everywhere.
  TritonValue load(const TritonValue& pointer, const TritonValue& offsets, const TritonValue& mask = {});
  void store(const TritonValue& pointer, const TritonValue& offsets, const TritonValue& value,
             const TritonValue& mask = {});

  // Runs `body` for i32 indices 0 to `count` - 1. `body` gets the index and the carried values, and returns the next
  // carried values. Returns the values after the last iteration.
  using Values = std::vector<TritonValue>;
  Values loop(const TritonValue& count, const Values& start,
              const std::function<Values(const TritonValue& index, const Values& carried)>& body);

  // Returns the module's text. The function's name is the name given to the constructor.
  std::string text() const;

  // Appends the line "NAME = `op`" with a new name and returns the new value, whose type is `type`. The functions above
  // use this function.
  TritonValue append(const std::string& op, const TritonType& type);

 private:
  void line(const std::string& text);
  std::string fresh();

  std::string head_, body_, indent_ = "    ";
  int64_t names_ = 0;
  Values arguments_;
};

}  // namespace fettle::gpu
