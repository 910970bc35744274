// Defines SafetensorsFile: one mapped, checked .safetensors file.
//
// Format: 8 bytes with the header's length (little endian), a JSON header, then the tensors' bytes without holes
// (https://huggingface.co/docs/safetensors). open() checks everything that the header states.
#pragma once

#include <map>
#include <string>

#include "base/files/mapped_file.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// Move-only.
class SafetensorsFile : public TensorFile {
 public:
  // Throws UserError, which names the file, the tensor and the offset, when the file is missing, truncated or
  // malformed: header length, JSON, duplicate names, unknown dtypes, negative or overflowing dims, sizes, offsets,
  // overlaps, holes.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(MappedFile map, std::vector<TensorEntry> entries, std::map<std::string, std::string> metadata)
      : TensorFile(std::move(map), std::move(entries)), metadata_(std::move(metadata)) {}

  std::map<std::string, std::string> metadata_;
};

}  // namespace fettle
