#include "checkpoint/load.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <set>
#include <span>

#include "base/box_copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // small enough to stay in a processor's cache
// More than the cores of a small machine: most of them wait for the disk, which is faster with several reads at once.
constexpr int kReaders = 8;

// One contiguous stretch of a builder's part.
struct Piece {
  int part;
  int64_t offset;  // in the part's bytes
  Box box;         // in the global array
};

// Appends the pieces of `box`, which may be split along the dims from `d` on; `single` dims must have one index each.
void cut(const Box& box, size_t d, size_t single, int64_t width, Piece& next, std::vector<Piece>& pieces) {
  const int64_t bytes = box.elements() * width;
  if (d == box.size.size() || (d >= single && bytes <= kPieceBytes)) {
    next.box = box;
    pieces.push_back(next);
    next.offset += bytes;
    return;
  }
  const int64_t step = d < single ? 1 : std::max<int64_t>(1, kPieceBytes / (bytes / box.size[d]));
  for (int64_t at = 0; at < box.size[d]; at += step) {
    Box slab = box;
    slab.start[d] += at;
    slab.size[d] = std::min(step, box.size[d] - at);
    cut(slab, d + 1, single, width, next, pieces);
  }
}

// All parts in pieces, in the order they lie in the global array, so that files are read through once.
std::vector<Piece> pieces_of(const std::vector<Box>& parts, int64_t width, size_t single) {
  std::vector<Piece> pieces;
  for (size_t part = 0; part < parts.size(); ++part) {
    Piece next{static_cast<int>(part), 0, {}};
    if (parts[part].elements() > 0) cut(parts[part], 0, single, width, next, pieces);
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.box.start < b.box.start; });
  return pieces;
}

// Memory of this thread's own, until the next call.
std::span<std::byte> staging(int64_t bytes) {
  thread_local std::vector<std::byte> memory;
  memory.resize(static_cast<size_t>(bytes));
  return memory;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// In (0, 1], a function of key and index.
double uniform(uint64_t key, uint64_t index) {
  return static_cast<double>((mix(key + index * 0x9e3779b97f4a7c15ull) >> 11) + 1) * 0x1p-53;
}

double initial_value(const WeightRow& row, const ModelConfig& config, uint64_t key, uint64_t index) {
  if (row.init == Init::kZeros) return 0;
  if (row.init == Init::kOnes) return 1;
  if (row.name.ends_with(".lora_A.weight"))
    return (2 * uniform(key, index) - 1) / std::sqrt(static_cast<double>(row.dims[1]));
  const double radius = std::sqrt(-2 * std::log(uniform(key, 2 * index)));
  return config.initializer_range * radius * std::cos(2 * std::numbers::pi * uniform(key, 2 * index + 1));
}

// Calls visit(global index) for each element of the box in row-major order.
template <typename Visit>
void for_each_element(const Box& box, const Dims& dims, Visit visit) {
  Dims at = box.start;
  for (int64_t n = box.elements(); n > 0; --n) {
    int64_t index = 0;
    for (size_t d = 0; d < dims.size(); ++d) index = index * dims[d] + at[d];
    visit(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < box.start[d] + box.size[d]) break;
      at[d] = box.start[d];
    }
  }
}

void check_shape(const StoredTensor& stored, const WeightRow& row, const std::string& name) {
  if (stored.entry->shape.dims != row.stored_dims())
    throw UserError("{}: '{}' is {}, but config.json makes it {}; the weights and the config are not of one model",
                    stored.file->path().string(), name, to_string(stored.entry->shape.dims),
                    to_string(row.stored_dims()));
  if (!is_float(stored.entry->shape.dtype))
    throw UserError("{}: '{}' holds {}, which is not a float type; quantised checkpoints are not supported",
                    stored.file->path().string(), name, safetensors_name(stored.entry->shape.dtype));
}

// The tensor as the row has it: fused parts apart, over the same bytes.
TensorEntry as_row(TensorEntry entry, const WeightRow& row) {
  entry.shape.dims = row.dims;
  if (row.of_experts()) entry.shape.dims.erase(entry.shape.dims.begin());
  if (row.fused >= 0 && !entry.dense())
    entry.strides.insert(entry.strides.begin() + row.fused, entry.strides[row.fused] * row.dims[row.fused + 1]);
  return entry;
}

}  // namespace

std::string name_of_layer(const std::string& row, int64_t layer) {
  const size_t at = row.find("{}");
  return at == std::string::npos ? row : row.substr(0, at) + std::to_string(layer) + row.substr(at + 2);
}

DeviceBuffer load_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                      const Layout& layout, const FindTensor& find, const LoadProgress& progress) {
  BufferBuilder builder(client, stacked_shape(row, config, dtype), layout);
  const auto lead = static_cast<size_t>(row.stack_dims());
  const std::vector<Piece> pieces = pieces_of(builder.parts(), byte_size(dtype), lead);
  struct StoredLayer {
    const TensorFile* file;
    TensorEntry entry;             // with the row's dims
    std::atomic<int64_t> left{0};  // pieces to be read
  };
  std::vector<StoredLayer> layers(static_cast<size_t>(row.stored_count(config)));
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = row.stored_name(static_cast<int64_t>(i));
    const StoredTensor stored = find(name);
    check_shape(stored, row, name);
    layers[i].file = stored.file;
    layers[i].entry = as_row(*stored.entry, row);
  }
  auto layer_of = [&](const Piece& piece) -> StoredLayer& {
    int64_t index = 0;
    if (lead > 0) index = piece.box.start[0];
    if (lead > 1) index = index * row.dims[0] + piece.box.start[1];
    return layers[static_cast<size_t>(index)];
  };
  for (const Piece& piece : pieces) ++layer_of(piece).left;

  parallel_for(static_cast<int64_t>(pieces.size()), kReaders, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    StoredLayer& layer = layer_of(piece);
    const TensorFile& file = *layer.file;
    const TensorEntry& entry = layer.entry;
    const Box box{{piece.box.start.begin() + static_cast<std::ptrdiff_t>(lead), piece.box.start.end()},
                  {piece.box.size.begin() + static_cast<std::ptrdiff_t>(lead), piece.box.size.end()}};
    const int64_t width = byte_size(entry.shape.dtype), bytes = box.elements() * byte_size(dtype);
    const Dims& dims = entry.shape.dims;
    if (entry.shape.dtype == dtype && entry.dense() && is_one_run(box, dims)) {
      int64_t first = 0;
      for (size_t d = 0; d < dims.size(); ++d) first = first * dims[d] + box.start[d];
      builder.write(piece.part, piece.offset,
                    file.bytes(entry).subspan(static_cast<size_t>(first * width), static_cast<size_t>(bytes)));
    } else {
      const std::span<std::byte> staged = staging(bytes);
      file.read_slice(entry, box, dtype, staged.data());
      builder.write(piece.part, piece.offset, staged);
    }
    if (--layer.left == 0) file.release(entry);
    if (progress) progress(box.elements() * width);
  });
  return builder.finish();
}

DeviceBuffer fill_in_pieces(const Client& client, const Shape& shape, const Layout& layout, const FillBox& fill) {
  BufferBuilder builder(client, shape, layout);
  const std::vector<Piece> pieces = pieces_of(builder.parts(), byte_size(shape.dtype), 0);
  parallel_for(static_cast<int64_t>(pieces.size()), copy_threads(), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const std::span<std::byte> bytes = staging(piece.box.elements() * byte_size(shape.dtype));
    fill(piece.box, bytes.data());
    builder.write(piece.part, piece.offset, bytes);
  });
  return builder.finish();
}

DeviceBuffer random_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                        const Layout& layout, uint64_t seed) {
  const uint64_t key = XXH3_64bits_withSeed(row.name.data(), row.name.size(), seed);
  const Shape shape = stacked_shape(row, config, dtype);
  return fill_in_pieces(client, shape, layout, [&](const Box& box, std::byte* out) {
    int64_t next = 0;
    for_each_element(box, shape.dims, [&](int64_t index) {
      store_float(out, dtype, next++,
                  static_cast<float>(initial_value(row, config, key, static_cast<uint64_t>(index))));
    });
  });
}

void check_weights(const ModelRepository& repository, const Model& model) {
  std::set<std::string> used;
  for (const WeightRow& row : model.weights)
    for (int64_t i = 0; i < row.stored_count(model.config); ++i) {
      const std::string name = row.stored_name(i);
      check_shape(repository.find(name), row, name);
      used.insert(name);
    }
  for (const std::string& name : repository.names()) {
    // Buffers of older checkpoints, and the tied head stored twice, carry nothing new.
    const bool harmless = name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
                          name.ends_with(".attn.masked_bias") ||
                          (model.config.tie_word_embeddings && name == model.family->head);
    if (!used.contains(name) && !harmless)
      throw UserError(
          "{}: tensor '{}' has no place in a {} model with this config.json; the weights and the config are "
          "not of one model",
          repository.folder().string(), name, model.family->model_type);
  }
}

}  // namespace fettle
