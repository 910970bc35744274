#include "checkpoint/gguf/mxfp4_codes.h"

#include <algorithm>

#include "checkpoint/gguf/block_types.h"
#include "checkpoint/tensor_file.h"

namespace fettle {
namespace {

constexpr int64_t kCodeBytes = 16, kBlockBytes = kCodeBytes + 1;

// Writes a block of a GGUF file: the scale, then the codes. In safetensors, neighbouring elements share a byte. In a
// GGUF file, the elements i and i + 16 share a byte.
void write_block(std::byte scale, const std::byte* codes, std::byte* out) {
  auto code = [&](int64_t element) {
    const auto two = static_cast<unsigned>(codes[element / 2]);
    return element % 2 == 0 ? two & 15 : two >> 4;
  };
  out[0] = scale;
  for (int64_t i = 0; i < kCodeBytes; ++i) out[1 + i] = static_cast<std::byte>(code(i) | code(i + kCodeBytes) << 4);
}

}  // namespace

bool has_mxfp4_codes(const TensorEntry& entry) {
  if (entry.mxfp4) return true;
  const BlockType* type = find_block_type("MXFP4");
  return entry.joined_experts && !entry.joined_experts->biases &&
         std::ranges::all_of(entry.joined_experts->entries,
                             [&](const TensorEntry& each) { return each.encoding.type == type; });
}

std::vector<std::byte> copy_mxfp4_codes(const TensorEntry& entry, int64_t expert, int64_t first, int64_t step,
                                        int64_t count) {
  const Dims& dims = entry.shape.dims;
  const int64_t outputs = product(dims) / dims[0] / dims[1], row_blocks = dims[1] / 32;
  std::vector<std::byte> out(static_cast<size_t>(count * row_blocks * kBlockBytes));
  if (entry.mxfp4) {
    const Mxfp4Parts& parts = *entry.mxfp4;
    parts.blocks_file->with_bytes(parts.blocks, [&](std::span<const std::byte> codes) {
      parts.scales_file->with_bytes(parts.scales, [&](std::span<const std::byte> scales) {
        for (int64_t i = 0; i < count * row_blocks; ++i) {
          const int64_t output = first + i / row_blocks * step;
          const int64_t block = (expert * outputs + output) * row_blocks + i % row_blocks;
          write_block(scales[static_cast<size_t>(block)], codes.data() + block * kCodeBytes,
                      out.data() + i * kBlockBytes);
        }
      });
    });
    return out;
  }
  const JoinedExperts& joined = *entry.joined_experts;
  const int64_t size = outputs / joined.each, row_bytes = row_blocks * kBlockBytes;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t output = first + i * step;
    const int64_t tensor = joined.in_turns ? output % joined.each : output / size,
                  row = joined.in_turns ? output / joined.each : output % size;
    const auto at = static_cast<size_t>(expert * joined.each + tensor);
    joined.files[at]->with_bytes(joined.entries[at], [&](std::span<const std::byte> bytes) {
      std::copy_n(bytes.begin() + row * row_bytes, row_bytes, out.begin() + i * row_bytes);
    });
  }
  return out;
}

}  // namespace fettle
