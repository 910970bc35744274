#include "checkpoint/pieces.h"

#include <algorithm>

namespace fettle {
namespace {

// Appends the pieces of `box`. Splits only dim `d` and the dims after it. The first `single` dims have one index per
// piece.
void cut(const Box& box, size_t d, size_t single, int64_t width, int64_t most, BoxPiece& next,
         std::vector<BoxPiece>& pieces) {
  const int64_t bytes = box.elements() * width;
  if (d == box.size.size() || (d >= single && bytes <= most)) {
    next.box = box;
    pieces.push_back(next);
    next.offset += bytes;
    return;
  }
  const int64_t step = d < single ? 1 : std::max<int64_t>(1, most / (bytes / box.size[d]));
  for (int64_t at = 0; at < box.size[d]; at += step) {
    Box slab = box;
    slab.start[d] += at;
    slab.size[d] = std::min(step, box.size[d] - at);
    cut(slab, d + 1, single, width, most, next, pieces);
  }
}

}  // namespace

std::vector<BoxPiece> pieces_of(const std::vector<Box>& parts, int64_t width, size_t single, int64_t most) {
  std::vector<BoxPiece> pieces;
  for (size_t part = 0; part < parts.size(); ++part) {
    BoxPiece next{static_cast<int>(part), 0, {}};
    if (parts[part].elements() > 0) cut(parts[part], 0, single, width, most, next, pieces);
  }
  std::ranges::stable_sort(pieces, [](const BoxPiece& a, const BoxPiece& b) { return a.box.start < b.box.start; });
  return pieces;
}

Box inner_box(const Box& box, size_t lead) {
  const auto skip = static_cast<std::ptrdiff_t>(lead);
  return {{box.start.begin() + skip, box.start.end()}, {box.size.begin() + skip, box.size.end()}};
}

std::span<std::byte> staging(int64_t bytes) {
  thread_local std::vector<std::byte> memory;
  memory.resize(static_cast<size_t>(bytes));
  return memory;
}

}  // namespace fettle
