#include "base/arrays/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"

namespace fettle {
namespace {

struct DTypeRow {
  DType dtype;
  int64_t bytes;
  std::string_view stablehlo, safetensors, hf;
};

constexpr std::array<DTypeRow, 17> kRows{{
    {DType::kPred, 1, "i1", "BOOL", "bool"},
    {DType::kI8, 1, "i8", "I8", "int8"},
    {DType::kU8, 1, "ui8", "U8", "uint8"},
    {DType::kI16, 2, "i16", "I16", "int16"},
    {DType::kU16, 2, "ui16", "U16", "uint16"},
    {DType::kI32, 4, "i32", "I32", "int32"},
    {DType::kU32, 4, "ui32", "U32", "uint32"},
    {DType::kI64, 8, "i64", "I64", "int64"},
    {DType::kU64, 8, "ui64", "U64", "uint64"},
    {DType::kF16, 2, "f16", "F16", "float16"},
    {DType::kBF16, 2, "bf16", "BF16", "bfloat16"},
    {DType::kF32, 4, "f32", "F32", "float32"},
    {DType::kF64, 8, "f64", "F64", "float64"},
    {DType::kF8E4M3FN, 1, "f8E4M3FN", "F8_E4M3", "float8_e4m3fn"},
    {DType::kF8E5M2, 1, "f8E5M2", "", "float8_e5m2"},
    {DType::kF8E4M3FNUZ, 1, "f8E4M3FNUZ", "", "float8_e4m3fnuz"},
    {DType::kF8E5M2FNUZ, 1, "f8E5M2FNUZ", "", "float8_e5m2fnuz"},
}};

const DTypeRow& row(DType dtype) {
  return kRows[static_cast<size_t>(dtype)];
}

}  // namespace

int64_t byte_size(DType dtype) {
  return row(dtype).bytes;
}
bool is_float(DType dtype) {
  return dtype >= DType::kF16;
}
bool is_float8(DType dtype) {
  return dtype > DType::kF64;
}
double largest_float8(DType dtype) {
  return dtype == DType::kF8E4M3FN ? 448 : dtype == DType::kF8E4M3FNUZ ? 240 : 57344;
}
bool is_integer(DType dtype) {
  return dtype > DType::kPred && dtype < DType::kF16;
}
std::string_view stablehlo_name(DType dtype) {
  return row(dtype).stablehlo;
}
std::string_view safetensors_name(DType dtype) {
  return row(dtype).safetensors;
}
std::string_view hf_name(DType dtype) {
  return row(dtype).hf;
}

DType dtype_from_safetensors(std::string_view name) {
  for (const DTypeRow& r : kRows)
    if (!name.empty() && r.safetensors == name) return r.dtype;
  throw UserError(
      "unknown dtype '{}' in a safetensors header; known are BOOL, I8..I64, U8..U64, F8_E4M3, F16, BF16, F32, F64",
      name);
}

DType dtype_from_hf(std::string_view name) {
  if (name.substr(0, 6) == "torch.") name.remove_prefix(6);
  for (const DTypeRow& r : kRows)
    if (r.hf == name) return r.dtype;
  throw UserError("unknown dtype '{}'; wanted a name such as bfloat16, float16 or float32", name);
}

int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t Shape::elements() const {
  return product(dims);
}

std::string Shape::to_string() const {
  return fmt::format("{}[{}]", stablehlo_name(dtype), fmt::join(dims, ","));
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

}  // namespace fettle
