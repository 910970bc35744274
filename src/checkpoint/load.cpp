#include "checkpoint/load.h"

#include <xxhash.h>

#include <cmath>
#include <numbers>
#include <set>

#include "base/error.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

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
  if (stored.entry->shape.dims != row.dims)
    throw UserError("{}: '{}' is {}, but config.json makes it {}; the weights and the config are not of one model",
                    stored.file->path().string(), name, to_string(stored.entry->shape.dims), to_string(row.dims));
  if (!is_float(stored.entry->shape.dtype))
    throw UserError("{}: '{}' holds {}, which is not a float type; quantised checkpoints are not supported",
                    stored.file->path().string(), name, safetensors_name(stored.entry->shape.dtype));
}

}  // namespace

std::string name_of_layer(const std::string& row, int64_t layer) {
  const size_t at = row.find("{}");
  return at == std::string::npos ? row : row.substr(0, at) + std::to_string(layer) + row.substr(at + 2);
}

DeviceBuffer load_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                      const Layout& layout, const FindTensor& find, const LoadProgress& progress) {
  BufferBuilder builder(client, stacked_shape(row, config, dtype), layout);
  for (size_t part = 0; part < builder.parts().size(); ++part) {
    const Box& box = builder.parts()[part];
    const int64_t first = row.stacked() ? box.start[0] : 0, layers = row.stacked() ? box.size[0] : 1;
    const int skip = row.stacked() ? 1 : 0;
    const Box slice{{box.start.begin() + skip, box.start.end()}, {box.size.begin() + skip, box.size.end()}};
    HostArray bytes({dtype, slice.size});
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = name_of_layer(row.name, first + i);
      const StoredTensor stored = find(name);
      check_shape(stored, row, name);
      stored.file->read_slice(*stored.entry, slice, dtype, bytes.data());
      builder.write(static_cast<int>(part), i * bytes.bytes(), {bytes.data(), static_cast<size_t>(bytes.bytes())});
      if (part + 1 == builder.parts().size()) stored.file->release(*stored.entry);
      if (progress) progress(slice.elements() * byte_size(stored.entry->shape.dtype));
    }
  }
  return builder.finish();
}

DeviceBuffer random_row(const Client& client, const WeightRow& row, const ModelConfig& config, DType dtype,
                        const Layout& layout, uint64_t seed) {
  const uint64_t key = XXH3_64bits_withSeed(row.name.data(), row.name.size(), seed);
  const Shape shape = stacked_shape(row, config, dtype);
  return DeviceBuffer::upload(client, shape, layout, [&](const Box& box, std::byte* out) {
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
    for (int64_t layer = 0; layer < (row.stacked() ? model.config.num_hidden_layers : 1); ++layer) {
      const std::string name = name_of_layer(row.name, layer);
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
