// Defines StateWriter and StateReader: the training state of checkpoint-N/state/, exact to the bit and free of the
// mesh.
//
// manifest.json names each tensor's global shape and its shards (box, file, offset, XXH3-128); shards-0000N.bin hold
// their bytes, dense and row-major. Any box can be read back whatever shards were written.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/host_array.h"
#include "checkpoint/files.h"
#include "checkpoint/slice.h"

namespace fettle {

class StateWriter {
 public:
  explicit StateWriter(std::filesystem::path folder);  // creates it; throws UserError when not writable
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  // Appends the shard `box` of tensor `name`: box.elements() elements, dense. Shards of one tensor may not overlap.
  void add(const std::string& name, const Shape& global, const Box& box, std::span<const std::byte> bytes);
  void add(const std::string& name, const HostArray& array);  // the whole tensor
  // Writes the manifest with `meta` (step, seed, data position, fingerprints, ...) and flushes. Throws InternalError
  // when a tensor's shards do not cover it exactly.
  void finish(const nlohmann::json& meta);

 private:
  struct Shard {
    Box box;
    size_t file;
    int64_t offset;
    std::string checksum;
  };
  struct Tensor {
    Shape shape;
    std::vector<Shard> shards;
  };
  void next_file();

  std::filesystem::path folder_;
  std::map<std::string, Tensor> tensors_;
  std::vector<int64_t> file_bytes_;
  std::optional<OutputFile> file_;
};

// Not for use from several threads at once.
class StateReader {
 public:
  // Reads and checks the manifest and the files' sizes. Throws UserError naming the file.
  explicit StateReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& meta() const { return meta_; }
  // Throws UserError naming the manifest and both values unless meta()[key] == wanted; `what` names what differs
  // ("the model", "the recipe's optimizer").
  void require_meta(const std::string& key, const nlohmann::json& wanted, std::string_view what) const;

  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // Throws UserError when there is no such tensor.
  const Shape& shape(const std::string& name);
  // Copies the box, dense, to `out` from the shards that hold it; each touched shard's checksum is checked once.
  // Throws UserError naming the file when it does not match, InternalError when the box is not inside the tensor.
  void read_slice(const std::string& name, const Box& box, std::byte* out);
  HostArray read(const std::string& name);
  // Checks every shard's checksum.
  void verify();

 private:
  struct Shard {
    Box box;
    size_t file;
    int64_t offset, bytes;
    std::string checksum;
    bool verified = false;
  };
  struct Tensor {
    Shape shape;
    std::vector<Shard> shards;
  };
  Tensor& tensor(const std::string& name);
  void verify(const std::string& name, Shard& shard);

  std::filesystem::path folder_;
  nlohmann::json meta_;
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace fettle
