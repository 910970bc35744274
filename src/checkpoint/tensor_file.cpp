#include "checkpoint/tensor_file.h"

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "checkpoint/convert.h"

namespace fettle {

TensorFile::TensorFile(MappedFile map, std::vector<TensorEntry> entries)
    : map_(std::move(map)), entries_(std::move(entries)) {
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> TensorFile::dense_bytes(const TensorEntry& entry) const {
  internal_check(entry.dense(), "'{}' of {} is not dense", entry.name, path().string());
  return map_.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

void TensorFile::read_slice(const TensorEntry& entry, const Box& box, DType to, std::byte* out) const {
  const std::byte* data = map_.bytes().data() + entry.offset;
  const DType from = entry.shape.dtype;
  if (entry.dense()) {
    for_each_run(box, entry.shape.dims, box.size, Dims(box.size.size(), 0),
                 [&](int64_t source, int64_t target, int64_t count) {
                   convert_elements(data + source * byte_size(from), from, out + target * byte_size(to), to, count);
                 });
    map_.check();
    return;
  }
  for_each_element(box, entry.shape.dims, entry.strides, [&](int64_t source, int64_t target) {
    convert_elements(data + source * byte_size(from), from, out + target * byte_size(to), to, 1);
  });
  map_.check();
}

HostArray TensorFile::read(const TensorEntry& entry) const {
  HostArray array(entry.shape);
  read_slice(entry, Box::whole(entry.shape.dims), array.data());
  return array;
}

}  // namespace fettle
