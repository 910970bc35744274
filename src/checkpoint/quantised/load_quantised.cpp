#include "checkpoint/quantised/load_quantised.h"

#include <atomic>
#include <limits>
#include <mutex>

#include "adapters/block_codes.h"
#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/pieces.h"
#include "checkpoint/quantised/bitsandbytes.h"
#include "checkpoint/quantised/load_float8.h"
#include "checkpoint/quantised/load_groups.h"
#include "runtime/buffer_builder.h"

namespace fettle {
namespace {

constexpr int64_t kCodesBlock = Quantisation::kBlock;
// The size of a piece's codes. The piece's f32 values take up to eight times as much memory.
constexpr int64_t kCodeBytes = int64_t{512} << 10;

// Returns a buffer of the calling thread for the values of a piece.
std::span<float> values_memory(int64_t count) {
  thread_local std::vector<float> memory;
  memory.resize(static_cast<size_t>(count));
  return memory;
}

// Fills the builder's parts of layer `number` from `whole`, which has all elements of the layer.
void write_layer(BufferBuilder& builder, const Shape& shape, size_t lead, int64_t number, const std::byte* whole) {
  const int64_t width = byte_size(shape.dtype);
  for (size_t part = 0; part < builder.parts().size(); ++part) {
    const Box& box = builder.parts()[part];
    const Box inner = inner_box(box, lead);
    const int64_t bytes = inner.elements() * width;
    if (lead == 1 && (number < box.start[0] || number >= box.start[0] + box.size[0])) continue;
    const std::span<std::byte> staged = staging(bytes);
    copy_common(Box::whole(inner_box(Box::whole(shape.dims), lead).size), whole, inner, staged.data(), width);
    builder.write(static_cast<int>(part), lead == 1 ? (number - box.start[0]) * bytes : 0, staged);
  }
}

const std::byte* bytes_of(const void* data) {
  return static_cast<const std::byte*>(data);
}

class Quantiser {
 public:
  Quantiser(const Client& client, const QuantisedWeight& weight, const std::vector<Layout>& layouts,
            const FindTensor& find, const LoadProgress& progress, const std::string& memory_kind)
      : weight_(weight),
        layers_(find_layers(weight.base, find)),
        progress_(progress),
        work_(static_cast<size_t>(weight.base.layer_count())) {
    lead_ = weight.base.stacked() ? 1 : 0;
    for (LayerTensor& tensor : layers_) {  // gives each tensor the dims in which it is quantised
      tensor.entry.shape.dims = weight.rows();
      if (weight.base.of_experts()) tensor.entry.shape.dims.erase(tensor.entry.shape.dims.begin());
    }
    for (size_t i = 0; i < weight.parts.size(); ++i) {
      shapes_.push_back(stacked_shape(weight.parts[i], *weight.parts[i].dtype));
      builders_.emplace_back(client, shapes_[i], layouts[i], memory_kind);
    }
  }

  std::vector<DeviceBuffer> run() {
    const int64_t most = weight_.by_rows() ? kCodeBytes : std::numeric_limits<int64_t>::max();
    const std::vector<BoxPiece> pieces = pieces_of(builders_[0].parts(), 1, lead_, most);
    for (const BoxPiece& piece : pieces) ++work_[number_of(piece)].left;
    parallel_for(static_cast<int64_t>(pieces.size()), kReaders, [&](int64_t i) { quantise(pieces[i]); });
    std::vector<DeviceBuffer> out;
    for (BufferBuilder& builder : builders_) out.push_back(builder.finish());
    return out;
  }

 private:
  // The progress of the quantisation of one layer.
  struct Layer {
    std::atomic<int64_t> left{0};  // pieces that are not done
    std::mutex begin;
    std::vector<float> absmax;  // the absmax of all blocks or rows
  };

  size_t number_of(const BoxPiece& piece) const { return lead_ == 0 ? 0 : static_cast<size_t>(piece.box.start[0]); }

  void quantise(const BoxPiece& piece) {
    const size_t number = number_of(piece);
    Layer& layer = work_[number];
    const Dims absmax_dims = inner_box(Box::whole(shapes_[1].dims), lead_).size;
    {
      const std::lock_guard lock(layer.begin);
      layer.absmax.resize(static_cast<size_t>(product(absmax_dims)));
    }
    const Box codes = inner_box(piece.box, lead_);
    // Finds the box of the weight's elements that `codes` encodes, and the box of their absmax.
    Box elements = codes, absmax = codes;
    if (!weight_.by_rows()) {
      elements = Box::whole(weight_.rows());
      absmax = Box::whole(absmax_dims);
    } else if (weight_.format.four_bits()) {
      for (int64_t* of : {&elements.start.back(), &elements.size.back()}) *of *= 2;
      for (int64_t* of : {&absmax.start.back(), &absmax.size.back()}) *of /= kCodesBlock / 2;
    } else {  // int8 reads the whole row, even to encode a part of it
      elements.start.back() = 0;
      elements.size.back() = weight_.rows().back();
      absmax.start.pop_back();
      absmax.size.pop_back();
    }
    const std::span<float> values = values_memory(elements.elements());
    read(number, elements, values);
    std::vector<float> found(static_cast<size_t>(absmax.elements()));
    const bool four_bits = weight_.format.four_bits();
    const std::span<std::byte> out = staging(four_bits ? absmax.elements() * kCodesBlock / 2 : elements.elements());
    if (four_bits) {
      quantise_blocks(weight_.format.type, values, out.data(), found.data());
      builders_[0].write(piece.part, piece.offset, out.first(static_cast<size_t>(codes.elements())));
    } else {
      quantise_rows(values, elements.size.back(), reinterpret_cast<int8_t*>(out.data()), found.data());
      std::vector<std::byte> part(static_cast<size_t>(codes.elements()));
      copy_common(elements, out.data(), codes, part.data(), 1);
      builders_[0].write(piece.part, piece.offset, part);
    }
    copy_common(absmax, bytes_of(found.data()), Box::whole(absmax_dims),
                reinterpret_cast<std::byte*>(layer.absmax.data()), sizeof(float));
    if (progress_) progress_(read_bytes(codes));
    if (--layer.left == 0) finish(static_cast<int64_t>(number));
  }

  // Reads a box of a layer's weight. With experts, the box may lie in several tensors.
  void read(size_t number, const Box& elements, std::span<float> out) const {
    if (!weight_.base.of_experts()) {
      const auto& [file, entry] = layers_[number];
      return file->read_slice(entry, elements, DType::kF32, reinterpret_cast<std::byte*>(out.data()));
    }
    const Box of_expert = inner_box(elements, 1);
    const auto count = static_cast<size_t>(of_expert.elements());
    for (int64_t i = 0; i < elements.size[0]; ++i) {
      const auto& [file, entry] = layers_[number * tensors_of_layer() + static_cast<size_t>(elements.start[0] + i)];
      file->read_slice(entry, of_expert, DType::kF32,
                       reinterpret_cast<std::byte*>(out.subspan(static_cast<size_t>(i) * count, count).data()));
    }
  }

  size_t tensors_of_layer() const { return layers_.size() / work_.size(); }

  int64_t read_bytes(const Box& codes) const {
    return codes.elements() * (weight_.format.four_bits() ? 2 : 1) * byte_size(layers_[0].entry.shape.dtype);
  }

  void finish(int64_t number) {
    Layer& layer = work_[static_cast<size_t>(number)];
    auto write = [&](size_t part, const void* whole) {
      write_layer(builders_[part], shapes_[part], lead_, number, bytes_of(whole));
    };
    if (weight_.format.nested) {
      const size_t experts = weight_.base.has_experts() ? static_cast<size_t>(weight_.base.dims[0]) : 1;
      const size_t count = layer.absmax.size() / experts;
      NestedAbsmax all;
      std::vector<float> offsets;
      for (size_t i = 0; i < experts; ++i) {
        const NestedAbsmax one = quantise_absmax(std::span(layer.absmax).subspan(i * count, count));
        all.codes.insert(all.codes.end(), one.codes.begin(), one.codes.end());
        all.absmax.insert(all.absmax.end(), one.absmax.begin(), one.absmax.end());
        offsets.push_back(one.offset);
      }
      write(1, all.codes.data());
      write(2, all.absmax.data());
      write(3, offsets.data());
    } else {
      write(1, layer.absmax.data());
    }
    layer.absmax = {};
    const size_t first = static_cast<size_t>(number) * tensors_of_layer();
    for (size_t i = first; i < first + tensors_of_layer(); ++i) layers_[i].file->release(layers_[i].entry);
  }

  const QuantisedWeight& weight_;
  std::vector<LayerTensor> layers_;
  const LoadProgress& progress_;
  size_t lead_ = 0;
  std::vector<Shape> shapes_;
  std::vector<BufferBuilder> builders_;
  std::vector<Layer> work_;
};

// Loads the parts of a weight that the checkpoint stores in bitsandbytes' format.
std::vector<DeviceBuffer> load_stored(const Client& client, const QuantisedWeight& weight,
                                      const std::vector<Layout>& layouts, const FindTensor& find,
                                      const LoadProgress& progress, const std::string& memory_kind) {
  std::vector<std::vector<LayerTensor>> tensors(weight.parts.size());
  std::vector<float> offsets;
  for (int64_t layer = 0; layer < weight.base.layer_count(); ++layer) {
    const StoredQuantised stored =
        find_quantised(find, weight.base.stored_name(layer), weight.base.stored_dims(), weight.format);
    const StoredTensor* parts[] = {&stored.codes, &stored.absmax, &stored.nested_absmax};
    for (size_t i = 0; i < weight.parts.size() && i < 3; ++i) {
      TensorEntry entry = *parts[i]->entry;
      entry.shape.dims = weight.parts[i].dims;
      tensors[i].push_back({parts[i]->file, std::move(entry)});
    }
    offsets.push_back(stored.nested_offset);
  }
  std::vector<DeviceBuffer> out;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const Shape shape = stacked_shape(weight.parts[i], *weight.parts[i].dtype);
    if (i < 3)
      out.push_back(load_layers(client, shape, layouts[i], tensors[i], progress, memory_kind));
    else
      out.push_back(fill_in_pieces(
          client, shape, layouts[i],
          [&](const Box& box, std::byte* to) {
            copy_common(Box::whole(shape.dims), bytes_of(offsets.data()), box, to, sizeof(float));
          },
          memory_kind));
  }
  return out;
}

// Loads the codes and scales of experts in MXFP4.
std::vector<DeviceBuffer> load_mxfp4(const Client& client, const QuantisedWeight& weight,
                                     const std::vector<Layout>& layouts, const FindTensor& find,
                                     const LoadProgress& progress, const std::string& memory_kind) {
  std::vector<std::vector<LayerTensor>> tensors(2);
  for (const LayerTensor& layer : find_layers(weight.base, find)) {
    if (!layer.entry.mxfp4)
      throw UserError("{}: '{}' is not stored in MXFP4, although quantization_config in config.json says that it is",
                      layer.file->path().string(), layer.entry.name);
    const Mxfp4Parts& stored = *layer.entry.mxfp4;
    tensors[0].push_back({stored.blocks_file, stored.blocks});
    tensors[1].push_back({stored.scales_file, stored.scales});
  }
  std::vector<DeviceBuffer> out;
  for (size_t i = 0; i < 2; ++i) {
    for (LayerTensor& tensor : tensors[i]) tensor.entry.shape.dims = weight.parts[i].dims;
    out.push_back(
        load_layers(client, stacked_shape(weight.parts[i], DType::kU8), layouts[i], tensors[i], progress, memory_kind));
  }
  return out;
}

}  // namespace

std::vector<DeviceBuffer> load_quantised(const Client& client, const QuantisedWeight& weight, const ModelConfig& config,
                                         const std::vector<Layout>& layouts, const FindTensor& find,
                                         const LoadProgress& progress, const std::string& memory_kind) {
  if (weight.format.type == Quantisation::Type::kMxfp4)
    return load_mxfp4(client, weight, layouts, find, progress, memory_kind);
  if (weight.format.type == Quantisation::Type::kFloat8)
    return load_float8(client, weight, layouts, find, progress, memory_kind);
  if (weight.format.in_groups()) return load_groups(client, weight, layouts, find, progress, memory_kind);
  if (config.quantisation) return load_stored(client, weight, layouts, find, progress, memory_kind);
  return Quantiser(client, weight, layouts, find, progress, memory_kind).run();
}

}  // namespace fettle
