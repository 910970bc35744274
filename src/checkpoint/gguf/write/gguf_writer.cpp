#include "checkpoint/gguf/write/gguf_writer.h"

#include "base/error.h"

namespace fettle {

int64_t bytes_of(const Dims& dims, const BlockType& type) {
  internal_check(!dims.empty() && dims.back() % type.elements == 0, "GgufWriter: rows of {} are not whole blocks of {}",
                 to_string(dims), type.name);
  return product(dims) / type.elements * type.bytes;
}

GgufWriter::Layout GgufWriter::lay_out(const GgufMetadata& metadata, std::vector<GgufTensor> tensors) {
  Layout layout;
  for (GgufTensor& tensor : tensors) {
    tensor.bytes = bytes_of(tensor.dims, *tensor.type);
    tensor.offset = layout.bytes;
    layout.bytes = gguf_aligned(tensor.offset + tensor.bytes);
  }
  layout.header = header_bytes(metadata, tensors);
  const auto start = static_cast<int64_t>(layout.header.size());
  for (const GgufTensor& tensor : tensors) layout.tensors.push_back({tensor.name, start + tensor.offset, tensor.bytes});
  layout.bytes += start;
  return layout;
}

GgufWriter::GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors)
    : GgufWriter(lay_out(metadata, std::move(tensors)), std::move(path)) {}

GgufWriter::GgufWriter(Layout layout, std::filesystem::path path)
    : bytes_(layout.bytes), output_(std::move(path), layout.bytes, layout.header, std::move(layout.tensors)) {}

}  // namespace fettle
