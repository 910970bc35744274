#include "checkpoint/gguf/write/gguf_writer.h"

#include "base/error.h"

namespace fettle {

int64_t bytes_of(const Dims& dims, const BlockType& type) {
  internal_check(!dims.empty() && dims.back() % type.elements == 0, "GgufWriter: rows of {} are no whole blocks of {}",
                 to_string(dims), type.name);
  return product(dims) / type.elements * type.bytes;
}

GgufWriter::Layout GgufWriter::lay_out(const GgufMetadata& metadata, std::vector<GgufTensor> tensors) {
  Layout layout{std::move(tensors), {}, 0};
  for (GgufTensor& tensor : layout.tensors) {
    tensor.bytes = bytes_of(tensor.dims, *tensor.type);
    tensor.offset = layout.bytes;
    layout.bytes = gguf_aligned(tensor.offset + tensor.bytes);
  }
  layout.header = header_bytes(metadata, layout.tensors);
  const auto start = static_cast<int64_t>(layout.header.size());
  for (GgufTensor& tensor : layout.tensors) tensor.offset += start;
  layout.bytes += start;
  return layout;
}

GgufWriter::GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors)
    : GgufWriter(lay_out(metadata, std::move(tensors)), std::move(path)) {}

GgufWriter::GgufWriter(Layout layout, std::filesystem::path path)
    : tensors_(std::move(layout.tensors)),
      bytes_(layout.bytes),
      file_(std::move(path), layout.bytes),
      written_(tensors_.size(), 0) {
  file_.write(0, std::as_bytes(std::span(layout.header)));
}

void GgufWriter::write(size_t tensor, std::span<const std::byte> bytes, int64_t at) {
  internal_check(tensor < tensors_.size(), "{}: it has no tensor {}", path().string(), tensor);
  const GgufTensor& entry = tensors_[tensor];
  const auto count = static_cast<int64_t>(bytes.size());
  internal_check(at >= 0 && at <= entry.bytes && count <= entry.bytes - at && written_[tensor] <= entry.bytes - count,
                 "{}: bytes [{}, {}) do not fit into tensor '{}': it has {} bytes, and {} are already written",
                 path().string(), at, at + count, entry.name, entry.bytes, written_[tensor]);
  file_.write(entry.offset + at, bytes);
  written_[tensor] += count;
}

void GgufWriter::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i)
    internal_check(written_[i] == tensors_[i].bytes, "{}: {} of {} bytes of tensor '{}' were written", path().string(),
                   written_[i], tensors_[i].bytes, tensors_[i].name);
  file_.finish();
}

}  // namespace fettle
