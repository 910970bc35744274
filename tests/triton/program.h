// Defines Function, a kernel in Triton's IR in the form that the interpreter runs, and read_function, which reads it
// from text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle::triton {

// Throws std::runtime_error.
[[noreturn]] void fail(const std::string& text);

struct Type {
  std::string element;  // "f32", "bf16", "f16", "i1", "i32", "i64", "!tt.ptr<f32>"
  Dims dims;

  int64_t count() const {
    int64_t out = 1;
    for (const int64_t d : dims) out *= d;
    return out;
  }
  bool floating() const { return element == "f32" || element == "bf16" || element == "f16"; }
  bool pointer() const { return element.starts_with("!tt.ptr<"); }
  std::string pointed() const { return element.substr(8, element.size() - 9); }
  bool operator==(const Type&) const = default;
};

struct Value {
  Type type;
  std::vector<float> floats;
  std::vector<int64_t> integers;  // also i1; for pointers, offsets in elements
  size_t argument = 0;            // for pointers: the argument from which they come
};

// Returns `x`. Throws std::runtime_error if `element` is i32 and `x` does not fit.
int64_t in_range(int64_t x, const std::string& element);

// One line of the text.
struct Op {
  std::string code;
  std::vector<int> operands, results;
  std::vector<Type> types;  // as written, in order
  std::string word;         // a program id's axis, a comparison's direction, a reduction's op, or the order "1, 0"
  std::map<std::string, int64_t> attributes;
  Value constant;
  std::vector<Op> body;  // for a loop
  int line = 0;
};

struct Function {
  std::vector<Type> arguments;
  std::vector<Op> ops;
  int slots = 0;  // the count of values; operands and results are indices of values
};

// Reads the function `name` of the module `ir`. Throws std::runtime_error, with the line, for text that
// src/kernels/gpu/triton.cpp does not write, and for values that are used outside their block.
Function read_function(const std::string& ir, const std::string& name);

}  // namespace fettle::triton
