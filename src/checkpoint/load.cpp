#include "checkpoint/load.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <set>
#include <span>

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/bitsandbytes.h"
#include "checkpoint/pieces.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // small enough to stay in a processor's cache

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
    return (2 * uniform(key, index) - 1) / std::sqrt(static_cast<double>(row.dims.back()));
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

void check_against_row(const StoredTensor& stored, const WeightRow& row, const std::string& name) {
  const Dims& dims = stored.entry->shape.dims;
  if (row.head && dims.size() == row.dims.size() && dims != row.dims)
    throw UserError(
        "{}: '{}' is a head of {} labels, this run wants {}; set num_labels: {}, or take the model without "
        "that head",
        stored.file->path().string(), name, dims[0], row.dims[0], dims[0]);
  if (stored.entry->shape.dims != row.stored_dims())
    throw UserError("{}: '{}' is {}, but config.json makes it {}; the weights and the config are not of one model",
                    stored.file->path().string(), name, to_string(stored.entry->shape.dims),
                    to_string(row.stored_dims()));
  if (!is_float(stored.entry->shape.dtype))
    throw UserError("{}: '{}' holds {}, which is not a float type and, by config.json, not quantised",
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

std::vector<LayerTensor> find_layers(const WeightRow& row, const ModelConfig& config, const FindTensor& find) {
  std::vector<LayerTensor> layers;
  for (int64_t i = 0; i < row.stored_count(config); ++i) {
    const std::string name = row.stored_name(i);
    const StoredTensor stored = find(name);
    check_against_row(stored, row, name);
    layers.push_back({stored.file, as_row(*stored.entry, row)});
  }
  return layers;
}

DeviceBuffer load_layers(const Client& client, const Shape& shape, const Layout& layout,
                         const std::vector<LayerTensor>& layers, const LoadProgress& progress,
                         const std::string& memory_kind) {
  BufferBuilder builder(client, shape, layout, memory_kind);
  const size_t lead = shape.dims.size() - layers[0].entry.shape.dims.size();
  const std::vector<Piece> pieces = pieces_of(builder.parts(), byte_size(shape.dtype), lead, kPieceBytes);
  std::vector<std::atomic<int64_t>> left(layers.size());  // pieces to be read of each
  auto number_of = [&](const Piece& piece) {
    int64_t number = 0;
    for (size_t d = 0; d < lead; ++d) number = number * shape.dims[d] + piece.box.start[d];
    return static_cast<size_t>(number);
  };
  for (const Piece& piece : pieces) ++left[number_of(piece)];

  parallel_for(static_cast<int64_t>(pieces.size()), kReaders, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const auto& [file, entry] = layers[number_of(piece)];
    const Dims& dims = entry.shape.dims;
    const Box box = inner_box(piece.box, lead);
    const int64_t width = byte_size(entry.shape.dtype), bytes = box.elements() * byte_size(shape.dtype);
    if (entry.shape.dtype == shape.dtype && entry.dense() && is_one_run(box, dims)) {
      int64_t first = 0;
      for (size_t d = 0; d < dims.size(); ++d) first = first * dims[d] + box.start[d];
      file->with_bytes(entry, [&](std::span<const std::byte> all) {
        builder.write(piece.part, piece.offset,
                      all.subspan(static_cast<size_t>(first * width), static_cast<size_t>(bytes)));
      });
    } else {
      const std::span<std::byte> staged = staging(bytes);
      file->read_slice(entry, box, shape.dtype, staged.data());
      builder.write(piece.part, piece.offset, staged);
    }
    if (--left[number_of(piece)] == 0) file->release(entry);
    if (progress) progress(box.elements() * width);
  });
  return builder.finish();
}

DeviceBuffer load_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                      const Layout& layout, const FindTensor& find, const LoadProgress& progress,
                      const std::string& memory_kind) {
  return load_layers(client, stacked_shape(row, config, dtype), layout, find_layers(row, config, find), progress,
                     memory_kind);
}

DeviceBuffer fill_in_pieces(const Client& client, const Shape& shape, const Layout& layout, const FillBox& fill,
                            const std::string& memory_kind) {
  BufferBuilder builder(client, shape, layout, memory_kind);
  const std::vector<Piece> pieces = pieces_of(builder.parts(), byte_size(shape.dtype), 0, kPieceBytes);
  parallel_for(static_cast<int64_t>(pieces.size()), copy_threads(), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const std::span<std::byte> bytes = staging(piece.box.elements() * byte_size(shape.dtype));
    fill(piece.box, bytes.data());
    builder.write(piece.part, piece.offset, bytes);
  });
  return builder.finish();
}

DeviceBuffer random_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                        const Layout& layout, uint64_t seed, const std::string& memory_kind) {
  const uint64_t key = XXH3_64bits_withSeed(row.name.data(), row.name.size(), seed);
  const Shape shape = stacked_shape(row, config, dtype);
  return fill_in_pieces(
      client, shape, layout,
      [&](const Box& box, std::byte* out) {
        int64_t next = 0;
        for_each_element(box, shape.dims, [&](int64_t index) {
          store_float(out, dtype, next++,
                      static_cast<float>(initial_value(row, config, key, static_cast<uint64_t>(index))));
        });
      },
      memory_kind);
}

void check_weights(const ModelRepository& repository, const Model& model) {
  std::set<std::string> used;
  const FindTensor find = [&](const std::string& name) { return repository.find(name); };
  for (const WeightRow& row : model.weights)
    for (int64_t i = 0; i < row.stored_count(model.config); ++i) {
      const std::string name = row.stored_name(i);
      if (row.head && !repository.contains(name)) continue;
      if (model.config.quantisation && model.is_linear(row)) {
        used.merge(find_quantised(find, name, row, *model.config.quantisation).names);
        continue;
      }
      const StoredTensor stored = repository.find(name);
      check_against_row(stored, row, name);
      used.insert(stored.entry->name);
    }
  const std::vector<std::string>& others = model.family->classifier.others;
  for (const std::string& name : repository.names()) {
    // Buffers of older checkpoints, and the tied head stored twice, carry nothing new.
    const bool harmless =
        name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
        name.ends_with("embeddings.position_ids") ||
        (model.classifies() &&
         std::ranges::any_of(others, [&](const std::string& other) { return name.starts_with(other); })) ||
        (model.config.tie_word_embeddings && name == model.family->head);
    if (!used.contains(name) && !harmless)
      throw UserError(
          "{}: tensor '{}' has no place in a {} model with this config.json; the weights and the config are "
          "not of one model",
          repository.folder().string(), name, model.family->model_type);
  }
}

}  // namespace fettle
