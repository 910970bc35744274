// Reads any bytes as a PyTorch checkpoint: as a pickle, and as a zip file whose members are read as pickles. The result
// is tensors or UserError. Every view must lie in its storage, and every member in the file.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/torch/pickle.h"
#include "checkpoint/torch/zip.h"

using namespace fettle;

namespace {

void require(bool holds) {
  if (!holds) abort();
}

void check_pickle(std::span<const std::byte> bytes) {
  try {
    for (const PickledTensor& tensor : read_torch_pickle(bytes, "fuzzed")) {
      require(tensor.shape.elements() <= tensor.storage_elements);
      int64_t last = tensor.offset;
      for (size_t d = 0; d < tensor.strides.size(); ++d) last += (tensor.shape.dims[d] - 1) * tensor.strides[d];
      require(tensor.shape.elements() == 0 || (tensor.offset >= 0 && last < tensor.storage_elements));
    }
  } catch (const UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check_pickle(bytes);
  try {
    for (const ZipMember& member : read_zip(bytes, "fuzzed")) {
      require(member.offset >= 0 && member.bytes >= 0);
      require(member.offset <= static_cast<int64_t>(size) &&
              member.bytes <= static_cast<int64_t>(size) - member.offset);
      check_pickle(bytes.subspan(static_cast<size_t>(member.offset), static_cast<size_t>(member.bytes)));
    }
  } catch (const UserError&) {
  }
  return 0;
}
