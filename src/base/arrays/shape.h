// Defines DType and Shape: the type and dimensions of a value, without its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Element types; stablehlo_name gives their names in StableHLO. F8_E4M3 (kF8E4M3FN) is the only 8-bit float that is
// read from files; its values are then converted. Inside a program, only the operands of matrix products are 8-bit
// floats. Host arrays and a program's arguments and results are never 8-bit floats.
enum class DType : uint8_t {
  kPred,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ
};

int64_t byte_size(DType dtype);  // bytes of one element; 1 for kPred
bool is_float(DType dtype);
bool is_float8(DType dtype);
double largest_float8(DType dtype);              // the largest finite value
bool is_integer(DType dtype);                    // signed or unsigned, not kPred
std::string_view stablehlo_name(DType dtype);    // "bf16", "ui8"
std::string_view safetensors_name(DType dtype);  // "BF16", "U8"; "" for 8-bit floats other than F8_E4M3
// Reads the name that safetensors uses, such as "F64" or "BOOL" (kPred). Throws UserError for an unknown name.
DType dtype_from_safetensors(std::string_view name);
// Reads the name that Hugging Face uses, such as "bfloat16" or "torch.float32". Throws UserError for an unknown name.
DType dtype_from_hf(std::string_view name);
std::string_view hf_name(DType dtype);  // "bfloat16"

// The 8-bit dtypes of the operands of matrix products. Gradients need a wider range than the forward pass.
struct Float8 {
  DType forward = DType::kF8E4M3FN;
  DType gradient = DType::kF8E5M2;
  bool operator==(const Float8&) const = default;
};

using Dims = std::vector<int64_t>;

// A dtype and dimensions, in row-major order. A scalar has no dimensions.
struct Shape {
  DType dtype = DType::kF32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t elements() const;  // product of dims; 1 for a scalar
  int64_t bytes() const { return elements() * byte_size(dtype); }
  Shape with_dtype(DType other) const { return {other, dims}; }
  bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "bf16[2,64,576]"
};

int64_t product(const Dims& dims);
std::string to_string(const Dims& dims);  // "[2, 64, 576]"

}  // namespace fettle
