#include "checkpoint/tensor_output.h"

#include <utility>

#include "base/error.h"

namespace fettle {
namespace fs = std::filesystem;

TensorOutput::TensorOutput(fs::path path, int64_t bytes, std::string_view header, std::vector<Place> tensors)
    : tensors_(std::move(tensors)), file_(std::move(path), bytes), written_(tensors_.size(), 0) {
  file_.write(0, std::as_bytes(std::span(header)));
}

void TensorOutput::write(size_t tensor, std::span<const std::byte> bytes, int64_t at) {
  internal_check(tensor < tensors_.size(), "{}: it has no tensor {}", path().string(), tensor);
  const Place& place = tensors_[tensor];
  const auto count = static_cast<int64_t>(bytes.size());
  internal_check(at >= 0 && at <= place.bytes && count <= place.bytes - at && written_[tensor] <= place.bytes - count,
                 "{}: bytes [{}, {}) do not fit into tensor '{}': it has {} bytes, and {} are already written",
                 path().string(), at, at + count, place.name, place.bytes, written_[tensor]);
  file_.write(place.offset + at, bytes);
  written_[tensor] += count;
}

void TensorOutput::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i)
    internal_check(written_[i] == tensors_[i].bytes, "{}: {} of {} bytes of tensor '{}' were written", path().string(),
                   written_[i], tensors_[i].bytes, tensors_[i].name);
  file_.finish();
}

}  // namespace fettle
