#include "base/arrays/box_copy.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace fettle {
namespace {

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

bool is_one_run(const Box& box, const Dims& dims) {
  size_t d = 0;
  while (d < dims.size() && box.size[d] == 1) ++d;
  for (++d; d < dims.size(); ++d)
    if (!fills(box, dims, d)) return false;
  return true;
}

Box intersect(const Box& a, const Box& b) {
  internal_check(a.start.size() == b.start.size(), "intersect: found boxes of rank {} and {}, wanted equal ranks",
                 a.start.size(), b.start.size());
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
  // One stretch covers the dims from `inner` on: in each dim after `inner`, the box spans both arrays completely.
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

void for_each_element(const Box& box, const Dims& source, const Dims& strides,
                      const std::function<void(int64_t, int64_t)>& visit) {
  internal_check(is_inside(box, source) && strides.size() == source.size(), "for_each_element: box {} is not inside {}",
                 box.to_string(), to_string(source));
  Dims at(source.size(), 0);
  const int64_t count = box.elements();
  for (int64_t target = 0; target < count; ++target) {
    int64_t from = 0;
    for (size_t d = 0; d < at.size(); ++d) from += (box.start[d] + at[d]) * strides[d];
    visit(from, target);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.size[d]) break;
      at[d] = 0;
    }
  }
}

void copy_common(const Box& from_box, const std::byte* from, const Box& to_box, std::byte* to, int64_t width) {
  const Box common = intersect(from_box, to_box);
  Box source = common;
  Dims target = common.start;
  for (size_t d = 0; d < target.size(); ++d) {
    source.start[d] -= from_box.start[d];
    target[d] -= to_box.start[d];
  }
  if (common.elements() == 0) return;
  for_each_run(source, from_box.size, to_box.size, target, [&](int64_t at, int64_t into, int64_t count) {
    std::memcpy(to + into * width, from + at * width, static_cast<size_t>(count * width));
  });
}

}  // namespace fettle
