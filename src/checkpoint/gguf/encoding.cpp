#include "checkpoint/gguf/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/tensor_file.h"

namespace fettle {
namespace {

constexpr int64_t kMostOfRun = 4096;

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

// One of the nested loops of a copy: the loop over one dim of the box. The loops are sorted by source_stride, largest
// first, so that the innermost loop reads the stored elements in their order.
struct CopyLoop {
  int64_t size, source_stride, target_stride;
};

// Decodes the elements [first, first + count), which lie in one row of `columns` elements, and writes them to `out`,
// `stride` elements apart. An element's number is the place that it would have in the file without `swap` and
// `column_swap`.
void write_run(const Encoding& encoding, const std::byte* data, int64_t first, int64_t count, int64_t columns,
               int64_t stride, DType to, std::byte* out) {
  float values[kMostOfRun];
  const int64_t width = byte_size(to);
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done, column = at % columns;
    int64_t some = std::min(count - done, kMostOfRun), stored = at;
    if (encoding.swap.swaps()) stored = encoding.swap.stored(at / columns) * columns + column;
    if (const RowSwap& across = encoding.column_swap; across.swaps()) {
      stored += across.stored(column) - column;
      some = std::min(some, across.inner - column % across.inner);
    }
    decode_blocks(*encoding.type, data, stored, some, values);
    if (encoding.shift != 0)
      for (int64_t i = 0; i < some; ++i) values[i] += encoding.shift;
    if (encoding.log_of_negative)
      for (int64_t i = 0; i < some; ++i) values[i] = std::log(-values[i]);
    const auto* source = reinterpret_cast<const std::byte*>(values);
    if (stride == 1) {
      convert_elements(source, DType::kF32, out + done * width, to, some);
    } else {
      for (int64_t i = 0; i < some; ++i)
        convert_elements(source + i * static_cast<int64_t>(sizeof(float)), DType::kF32,
                         out + (done + i) * stride * width, to, 1);
    }
    done += some;
  }
}

}  // namespace

void read_encoded(const TensorEntry& entry, const std::byte* data, const Box& box, DType to, std::byte* out) {
  internal_check(is_float(to), "'{}' has encoded floats and is read as {}", entry.name, stablehlo_name(to));
  const Dims& dims = entry.shape.dims;
  const Dims strides = entry.dense_places() ? dense_strides(dims) : entry.strides;
  const Dims target = dense_strides(box.size);
  if (box.elements() == 0) return;
  int64_t first = 0;
  std::vector<CopyLoop> loops;
  for (size_t d = 0; d < dims.size(); ++d) {
    first += box.start[d] * strides[d];
    loops.push_back({box.size[d], strides[d], target[d]});
  }
  std::stable_sort(loops.begin(), loops.end(),
                   [](const CopyLoop& a, const CopyLoop& b) { return a.source_stride > b.source_stride; });
  const bool rows = dims.size() > 1;  // false: a vector; each of its elements counts as a row with one column
  CopyLoop run{1, 1, 1};
  if (!loops.empty() && loops.back().source_stride == 1 && (rows || !entry.encoding.swap.swaps())) {
    run = loops.back();
    loops.pop_back();
  }
  const int64_t columns = rows ? dims.back() : 1;
  const int64_t width = byte_size(to);
  Dims at(loops.size(), 0);
  int64_t source = first, goal = 0;
  for (;;) {
    write_run(entry.encoding, data, source, run.size, columns, run.target_stride, to, out + goal * width);
    size_t d = loops.size();
    while (d > 0) {
      --d;
      source += loops[d].source_stride, goal += loops[d].target_stride;
      if (++at[d] < loops[d].size) break;
      source -= loops[d].size * loops[d].source_stride, goal -= loops[d].size * loops[d].target_stride;
      at[d] = 0;
      if (d == 0) return;
    }
    if (loops.empty()) return;
  }
}

}  // namespace fettle
