// Defines SafetensorsFile: one mapped, checked .safetensors file.
//
// Format: 8 bytes header length (little endian), a JSON header, then the bytes of the tensors without holes
// (https://huggingface.co/docs/safetensors). The header is not trusted: every claim is checked at open.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/box.h"
#include "base/host_array.h"
#include "base/shape.h"
#include "checkpoint/files.h"

namespace fettle {

struct TensorEntry {
  std::string name;
  Shape shape;
  int64_t offset = 0;  // of the first byte, from the start of the file; may be unaligned
  int64_t bytes = 0;
};

// Move-only; entries and spans live as long as it does. Const members may be called from any thread.
class SafetensorsFile {
 public:
  // Throws UserError naming the file, the tensor and the offset when the file is missing, truncated or lies: header
  // length, JSON, duplicate names, unknown dtypes, negative or overflowing dims, sizes, offsets, overlaps, holes.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return map_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  const TensorEntry* find(std::string_view name) const;                 // nullptr when there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // The tensor's mapped bytes, little endian, possibly unaligned.
  std::span<const std::byte> bytes(const TensorEntry& entry) const;
  // Copies box.elements() elements, dense, to `out` as dtype `to` (float dtypes convert; else equal dtypes only).
  // Reads only the bytes of the box. Throws InternalError when the box is not inside the tensor.
  void read_slice(const TensorEntry& entry, const Box& box, DType to, std::byte* out) const;
  void read_slice(const TensorEntry& entry, const Box& box, std::byte* out) const {
    read_slice(entry, box, entry.shape.dtype, out);
  }
  HostArray read(const TensorEntry& entry) const;

  void will_need(const TensorEntry& entry) const { map_.will_need(entry.offset, entry.bytes); }
  void release(const TensorEntry& entry) const { map_.release(entry.offset, entry.bytes); }

 private:
  explicit SafetensorsFile(MappedFile map) : map_(std::move(map)) {}

  MappedFile map_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace fettle
