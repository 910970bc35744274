#include "checkpoint/load.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "adapters/quantised.h"
#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "checkpoint/pieces.h"
#include "checkpoint/quantised/bitsandbytes.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // small enough to stay in a processor's cache

double initial_value(const Param& param, const ModelConfig& config, uint64_t key, uint64_t index) {
  if (param.init == Init::kZeros) return 0;
  if (param.init == Init::kOnes) return 1;
  if (param.init == Init::kUniformByFanIn)
    return (2 * uniform_noise(key, index) - 1) / std::sqrt(static_cast<double>(param.dims.back()));
  return config.initializer_range * normal_noise(key, index);
}

// Calls visit(global index) for each element of the box in row-major order.
template <typename Visit>
void for_each_index(const Box& box, const Dims& dims, Visit visit) {
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

void check_against_param(const StoredTensor& stored, const Param& param, const std::string& name) {
  const Dims& dims = stored.entry->shape.dims;
  if (param.of_classifier() && dims.size() == param.dims.size() && dims != param.dims)
    throw UserError(
        "{}: '{}' is a head with {} labels, but this run has {} labels; set num_labels: {}, or use the model without "
        "that head",
        stored.file->path().string(), name, dims[0], param.dims[0], dims[0]);
  if (stored.entry->shape.dims != param.stored_dims())
    throw UserError("{}: '{}' is {}, but config.json implies {}; the weights and the config belong to different models",
                    stored.file->path().string(), name, to_string(stored.entry->shape.dims),
                    to_string(param.stored_dims()));
  if (is_float8(stored.entry->shape.dtype))
    throw UserError(
        "{}: '{}' is in 8-bit floats, but config.json has no quantization_config that describes them; wanted one "
        "of the methods fp8 and compressed-tensors",
        stored.file->path().string(), name);
  if (!is_float(stored.entry->shape.dtype))
    throw UserError("{}: '{}' has dtype {}, but config.json describes an unquantised float weight",
                    stored.file->path().string(), name, safetensors_name(stored.entry->shape.dtype));
}

// Returns the entry with the dims of the parameter, for example [3, 64, 64] for a fused q|k|v that is stored as [192,
// 64]. The bytes are the same.
TensorEntry as_param(TensorEntry entry, const Param& param) {
  entry.shape.dims = param.dims;
  if (param.of_experts()) entry.shape.dims.erase(entry.shape.dims.begin());
  if (param.fused >= 0 && !entry.strides.empty())
    entry.strides.insert(entry.strides.begin() + param.fused, entry.strides[param.fused] * param.dims[param.fused + 1]);
  return entry;
}

// Returns the index of the tensor that a piece of a parameter's array belongs to. The first `lead` dims of the array
// index the tensors. The piece has only one index in each of these dims.
size_t number_of(const BoxPiece& piece, const Dims& dims, size_t lead) {
  int64_t number = 0;
  for (size_t d = 0; d < lead; ++d) number = number * dims[d] + piece.box.start[d];
  return static_cast<size_t>(number);
}

}  // namespace

std::string name_of_layer(const std::string& name, int64_t layer) {
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.substr(0, at) + std::to_string(layer) + name.substr(at + 2);
}

std::vector<LayerTensor> find_layers(const Param& param, const FindTensor& find) {
  std::vector<LayerTensor> layers;
  for (int64_t i = 0; i < param.stored_count(); ++i) {
    const std::string name = param.stored_name(i);
    const StoredTensor stored = find(name);
    check_against_param(stored, param, name);
    layers.push_back({stored.file, as_param(*stored.entry, param)});
  }
  return layers;
}

DeviceBuffer load_layers(const Client& client, const Shape& shape, const Layout& layout,
                         const std::vector<LayerTensor>& layers, const LoadProgress& progress,
                         const std::string& memory_kind, const LayerReads& reads) {
  BufferBuilder builder(client, shape, layout, memory_kind);
  const size_t lead = shape.dims.size() - layers[0].entry.shape.dims.size();
  const std::vector<BoxPiece> pieces = pieces_of(builder.parts(), byte_size(shape.dtype), lead, kPieceBytes);
  std::vector<std::atomic<int64_t>> left(layers.size());  // pieces of each layer that are not read yet
  for (const BoxPiece& piece : pieces) ++left[number_of(piece, shape.dims, lead)];

  parallel_for(static_cast<int64_t>(pieces.size()), kReaders, [&](int64_t i) {
    const BoxPiece& piece = pieces[static_cast<size_t>(i)];
    const size_t number = number_of(piece, shape.dims, lead);
    const auto& [file, entry] = layers[number];
    const Dims& dims = entry.shape.dims;
    const Box box = inner_box(piece.box, lead);
    const int64_t width = byte_size(entry.shape.dtype), bytes = box.elements() * byte_size(shape.dtype);
    if (reads.read) {
      const std::span<std::byte> staged = staging(bytes);
      reads.read(number, box, staged.data());
      builder.write(piece.part, piece.offset, staged);
    } else if (entry.shape.dtype == shape.dtype && entry.dense() && is_one_run(box, dims)) {
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
    if (--left[number] == 0) {
      file->release(entry);
      if (reads.done) reads.done(number);
    }
    if (progress) progress(box.elements() * width);
  });
  return builder.finish();
}

DeviceBuffer load_param(const Client& client, const Param& param, DType dtype, const Layout& layout,
                        const FindTensor& find, const LoadProgress& progress, const std::string& memory_kind) {
  return load_layers(client, stacked_shape(param, dtype), layout, find_layers(param, find), progress, memory_kind);
}

FillBox param_values(const Param& param, DType dtype, const FindTensor& find, const LoadProgress& progress) {
  const std::vector<LayerTensor> layers = find_layers(param, find);
  const Dims dims = stacked_shape(param, dtype).dims;
  const size_t lead = dims.size() - layers[0].entry.shape.dims.size();
  return [=](const Box& whole, std::byte* out) {
    for (const BoxPiece& piece : pieces_of({whole}, byte_size(dtype), lead, std::numeric_limits<int64_t>::max())) {
      const auto& [file, entry] = layers[number_of(piece, dims, lead)];
      const Box box = inner_box(piece.box, lead);
      file->read_slice(entry, box, dtype, out + piece.offset);
      if (progress) progress(box.elements() * byte_size(entry.shape.dtype));
    }
  };
}

DeviceBuffer fill_in_pieces(const Client& client, const Shape& shape, const Layout& layout, const FillBox& fill,
                            const std::string& memory_kind) {
  BufferBuilder builder(client, shape, layout, memory_kind);
  const std::vector<BoxPiece> pieces = pieces_of(builder.parts(), byte_size(shape.dtype), 0, kPieceBytes);
  parallel_for(static_cast<int64_t>(pieces.size()), copy_threads(), [&](int64_t i) {
    const BoxPiece& piece = pieces[static_cast<size_t>(i)];
    const std::span<std::byte> bytes = staging(piece.box.elements() * byte_size(shape.dtype));
    fill(piece.box, bytes.data());
    builder.write(piece.part, piece.offset, bytes);
  });
  return builder.finish();
}

void fill_box_in_pieces(const Box& box, int64_t width, std::byte* out, const FillBox& fill) {
  const std::vector<BoxPiece> pieces = pieces_of({box}, width, 0, kPieceBytes);
  parallel_for(static_cast<int64_t>(pieces.size()), kReaders, [&](int64_t i) {
    const BoxPiece& piece = pieces[static_cast<size_t>(i)];
    fill(piece.box, out + piece.offset);
  });
}

FillBox random_values(const Param& param, const ModelConfig& config, DType dtype, uint64_t seed) {
  const std::string name = param.stack_name();
  const uint64_t key = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  return [param, &config, dtype, key, dims = stacked_shape(param, dtype).dims](const Box& box, std::byte* out) {
    int64_t next = 0;
    for_each_index(box, dims, [&](int64_t index) {
      store_float(out, dtype, next++,
                  static_cast<float>(initial_value(param, config, key, static_cast<uint64_t>(index))));
    });
  };
}

DeviceBuffer random_param(const Client& client, const Param& param, const ModelConfig& config, DType dtype,
                          const Layout& layout, uint64_t seed, const std::string& memory_kind) {
  return fill_in_pieces(client, stacked_shape(param, dtype), layout, random_values(param, config, dtype, seed),
                        memory_kind);
}

bool is_added_bias(const ModelRepository& repository, const std::string& name) {
  const std::string end = ".bias";
  if (!name.ends_with(end)) return false;
  const std::string weight = name.substr(0, name.size() - end.size()) + ".weight";
  if (!repository.contains(weight) || !repository.find(weight).entry->groups) return false;
  const StoredTensor bias = repository.find(name);
  if (!is_float(bias.entry->shape.dtype)) return false;
  const HostArray values = bias.file->read(*bias.entry).to(DType::kF32);
  return std::ranges::all_of(values.as<float>(), [](float value) { return value == 0; });
}

namespace {

// Returns whether two tables [V, D] have the same values, except for rounding if their dtypes differ. Compares a sample
// of the rows.
bool same_rows(const StoredTensor& one, const StoredTensor& other) {
  constexpr int64_t kRows = 64;
  const Dims& dims = one.entry->shape.dims;
  if (dims != other.entry->shape.dims) return false;
  std::vector<float> a(static_cast<size_t>(dims[1])), b = a;
  for (int64_t i = 0; i < kRows; ++i) {
    const Box row{{i * (dims[0] - 1) / (kRows - 1), 0}, {1, dims[1]}};
    one.file->read_slice(*one.entry, row, DType::kF32, reinterpret_cast<std::byte*>(a.data()));
    other.file->read_slice(*other.entry, row, DType::kF32, reinterpret_cast<std::byte*>(b.data()));
    const float rounding = one.entry->shape.dtype == other.entry->shape.dtype ? 0 : 0.01F;
    if (!std::ranges::equal(a, b, [&](float x, float y) { return std::abs(x - y) <= rounding * std::abs(x); }))
      return false;
  }
  return true;
}

// Throws UserError when config.json says that the embedding is also the head, but the checkpoint has a head with other
// values. Transformers 5 uses such a head, and version 4 does not.
void check_tied_head(const ModelRepository& repository, const Model& model) {
  if (!model.config.tie_word_embeddings || model.classifies() || model.family->encoder) return;
  for (const std::string& name : {model.family->head + ".weight", "language_model." + model.family->head + ".weight"}) {
    if (!repository.contains(name)) continue;
    const StoredTensor head = repository.find(name), table = repository.find(model.head().hf_name);
    if (!is_float(head.entry->shape.dtype) || !is_float(table.entry->shape.dtype) || same_rows(head, table)) continue;
    throw UserError(
        "{}: config.json says tie_word_embeddings: true, but {} differs from {}; set tie_word_embeddings: false in "
        "config.json (also in its text_config, if it has one), or remove the tensor if the embedding is the head",
        repository.folder().string(), name, model.head().hf_name);
  }
}

}  // namespace

void check_weights(const ModelRepository& repository, const Model& model) {
  check_tied_head(repository, model);
  std::set<std::string> used;
  const FindTensor find = [&](const std::string& name) { return repository.find(name); };
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string name = param.stored_name(i);
      if (param.of_classifier() && !repository.contains(name)) continue;
      if (model.config.quantisation && is_quantised(param, *model.config.quantisation, true) &&
          !any_names(model.config.in_floats, module_of(name))) {
        used.merge(find_quantised(find, name, param.stored_dims(), *model.config.quantisation).names);
        continue;
      }
      const StoredTensor stored = repository.find(name);
      check_against_param(stored, param, name);
      used.insert(stored.entry->name);
    }
  const std::vector<std::string>& others = model.family->classifier.others;
  auto is_ignored = [&](const std::string& name) {
    return std::ranges::any_of(model.family->ignored, [&](const std::string& known) {
      if (known.ends_with('*')) return name.starts_with(known.substr(0, known.size() - 1));
      return known.starts_with('*') ? name.ends_with(known.substr(1)) : name == known;
    });
  };
  for (const std::string& name : repository.names()) {
    const bool harmless =
        is_ignored(name) || carries(*model.family, name) || is_unused(*model.family, model.config, name) ||
        (model.classifies() &&
         std::ranges::any_of(others, [&](const std::string& other) { return name.starts_with(other); }));
    if (!used.contains(name) && !harmless && !is_added_bias(repository, name))
      throw UserError(
          "{}: tensor '{}' does not belong to a {} model with this config.json; the weights and the config belong to "
          "different models",
          repository.folder().string(), name, model.family->model_type);
  }
}

}  // namespace fettle
