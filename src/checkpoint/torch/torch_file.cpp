#include "checkpoint/torch/torch_file.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "checkpoint/torch/pickle.h"
#include "checkpoint/torch/zip.h"

namespace fettle {
namespace {

constexpr int64_t kLongestPickle = int64_t{64} << 20;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void refuse_what_is_no_zip(std::span<const std::byte> file, const std::string& path) {
  if (as_text(file).starts_with(std::string_view("\x80\x02\x8a\x0a", 4)))
    throw UserError(
        "{}: this is the format of PyTorch before 1.6, which Fettle does not read; save it with a newer PyTorch: "
        "torch.save(torch.load(file, weights_only=True), file)",
        path);
  throw UserError("{}: is not a PyTorch checkpoint (a zip file); download it again", path);
}

// Returns true for the strides of a dense array. A dim of size 1 may have any stride, because its stride is never used.
bool is_dense(const PickledTensor& tensor) {
  int64_t stride = 1;
  for (size_t d = tensor.strides.size(); d-- > 0;) {
    const int64_t size = tensor.shape.dims[d];
    if (size != 1 && tensor.strides[d] != stride) return false;
    stride *= size;
  }
  return true;
}

TensorEntry place(const PickledTensor& tensor, int64_t storage_offset) {
  TensorEntry entry{tensor.name, tensor.shape, 0, 0, {}};
  const int64_t width = byte_size(tensor.shape.dtype);
  entry.offset = storage_offset + tensor.offset * width;
  if (tensor.shape.elements() == 0) return entry;
  int64_t last = 0;
  for (size_t d = 0; d < tensor.strides.size(); ++d) last += (tensor.shape.dims[d] - 1) * tensor.strides[d];
  entry.bytes = (last + 1) * width;
  if (!is_dense(tensor)) entry.strides = tensor.strides;
  return entry;
}

}  // namespace

TorchFile TorchFile::open(const std::filesystem::path& path) {
  MappedFile map(path);
  const std::string name = path.string();
  const std::span<const std::byte> file = map.bytes();
  if (!is_zip(file)) refuse_what_is_no_zip(file, name);
  std::unordered_map<std::string_view, ZipMember> members;  // keyed by the name without the archive's folder
  const std::vector<ZipMember> all = read_zip(file, name);
  const std::string_view folder = all.empty() ? "" : all[0].name.substr(0, all[0].name.find('/') + 1);
  for (const ZipMember& member : all)
    if (member.name.starts_with(folder)) members.emplace(member.name.substr(folder.size()), member);
  auto bytes_of = [&](const ZipMember& member) {
    return file.subspan(static_cast<size_t>(member.offset), static_cast<size_t>(member.bytes));
  };
  if (members.contains("constants.pkl"))
    throw UserError("{}: this is a TorchScript program, not a checkpoint; save the model's state dict instead", name);
  if (const auto order = members.find("byteorder");
      order != members.end() && as_text(bytes_of(order->second)) != "little")
    throw UserError("{}: was written on a big-endian machine; load it with PyTorch and save it again as safetensors",
                    name);
  const auto pickle = members.find("data.pkl");
  if (pickle == members.end()) throw UserError("{}: it has no data.pkl, so it is not a PyTorch checkpoint", name);
  if (pickle->second.bytes > kLongestPickle)
    throw UserError("{}: its pickle has {} bytes; at most {} are read", name, pickle->second.bytes, kLongestPickle);
  std::vector<TensorEntry> entries;
  for (const PickledTensor& tensor : read_torch_pickle(bytes_of(pickle->second), name)) {
    const auto storage = members.find("data/" + tensor.storage);
    const int64_t wanted = tensor.storage_elements * byte_size(tensor.shape.dtype);
    if (storage == members.end() || storage->second.bytes != wanted)
      throw UserError("{}: tensor '{}': the size of its member data/{} is {}, wanted {} bytes; download the file again",
                      name, tensor.name, tensor.storage,
                      storage == members.end() ? "missing" : std::to_string(storage->second.bytes), wanted);
    entries.push_back(place(tensor, storage->second.offset));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return a.offset < b.offset; });
  map.check();
  return {std::move(map), std::move(entries)};
}

}  // namespace fettle
