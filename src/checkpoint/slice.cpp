#include "checkpoint/slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/host_array.h"

namespace fettle {
namespace {

// Widens through f32, which holds every f16 and bf16 exactly; f64 goes to and from f32 by rounding once.
template <typename From, typename To, typename Convert>
void convert(const std::byte* source, std::byte* target, int64_t count, Convert one) {
  for (int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    const To to = one(from);
    std::memcpy(target + i * sizeof(To), &to, sizeof(To));
  }
}

bool fills(const Box& box, const Dims& dims, size_t d) {
  return box.size[d] == dims[d];
}

}  // namespace

bool is_inside(const Box& box, const Dims& dims) {
  if (box.start.size() != dims.size() || box.size.size() != dims.size()) return false;
  for (size_t d = 0; d < dims.size(); ++d)
    if (box.start[d] < 0 || box.size[d] < 0 || box.size[d] > dims[d] || box.start[d] > dims[d] - box.size[d])
      return false;
  return true;
}

Box intersect(const Box& a, const Box& b) {
  internal_check(a.start.size() == b.start.size(), "intersect: ranks {} and {}", a.start.size(), b.start.size());
  Box common = a;
  for (size_t d = 0; d < a.start.size(); ++d) {
    common.start[d] = std::max(a.start[d], b.start[d]);
    const int64_t end = std::min(a.start[d] + a.size[d], b.start[d] + b.size[d]);
    common.size[d] = std::max<int64_t>(0, end - common.start[d]);
  }
  return common;
}

void for_each_run(const Box& box, const Dims& source, const Dims& target, const Dims& target_start,
                  const std::function<void(int64_t, int64_t, int64_t)>& run) {
  internal_check(is_inside(box, source), "for_each_run: box {} is not inside {}", box.to_string(), to_string(source));
  internal_check(is_inside({target_start, box.size}, target), "for_each_run: box {} at {} is not inside {}",
                 box.to_string(), to_string(target_start), to_string(target));
  if (box.elements() == 0) return;
  const size_t rank = source.size();
  // Dimensions from `inner` on are one run: all of them but the outermost are whole on both sides.
  size_t inner = rank;
  int64_t length = 1;
  while (inner > 0) {
    length *= box.size[--inner];
    if (!fills(box, source, inner) || !fills(box, target, inner)) break;
  }
  std::vector<int64_t> source_stride(rank, 1), target_stride(rank, 1);
  for (size_t d = rank; d-- > 1;) {
    source_stride[d - 1] = source_stride[d] * source[d];
    target_stride[d - 1] = target_stride[d] * target[d];
  }
  int64_t from = 0, to = 0;
  for (size_t d = 0; d < rank; ++d) {
    from += box.start[d] * source_stride[d];
    to += target_start[d] * target_stride[d];
  }
  Dims at(inner, 0);
  while (true) {
    run(from, to, length);
    size_t d = inner;
    while (d > 0) {
      --d;
      from += source_stride[d];
      to += target_stride[d];
      if (++at[d] < box.size[d]) break;
      from -= at[d] * source_stride[d];
      to -= at[d] * target_stride[d];
      at[d] = 0;
      if (d == 0) return;
    }
    if (inner == 0) return;
  }
}

void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count) {
  if (from == to) {
    if (count > 0) std::memcpy(target, source, static_cast<size_t>(count * byte_size(from)));
    return;
  }
  internal_check(is_float(from) && is_float(to), "convert_elements: {} to {} is not a conversion between floats",
                 stablehlo_name(from), stablehlo_name(to));
  if (from == DType::kBF16 && to == DType::kF32) return convert<uint16_t, float>(source, target, count, bf16_to_f32);
  if (from == DType::kF32 && to == DType::kBF16) return convert<float, uint16_t>(source, target, count, f32_to_bf16);
  if (from == DType::kF16 && to == DType::kF32) return convert<uint16_t, float>(source, target, count, f16_to_f32);
  if (from == DType::kF32 && to == DType::kF16) return convert<float, uint16_t>(source, target, count, f32_to_f16);
  if (from == DType::kF32 && to == DType::kF64)
    return convert<float, double>(source, target, count, [](float v) { return static_cast<double>(v); });
  for (int64_t i = 0; i < count; ++i) store_float(target, to, i, load_float(source, from, i));
}

}  // namespace fettle
