// Defines TensorFile: a mapped file of tensors, and the position of each tensor in it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/arrays/box.h"
#include "base/arrays/host_array.h"
#include "base/arrays/shape.h"
#include "base/files/mapped_file.h"
#include "checkpoint/gguf/encoding.h"
#include "models/group_storage.h"

namespace fettle {

struct GrownTable;
struct JoinedRows;
struct JoinedExperts;
struct Mxfp4Parts;
struct Float8Parts;
struct BitsandbytesParts;
struct GroupParts;

struct TensorEntry {
  std::string name;
  Shape shape;
  int64_t offset = 0;      // position of the first byte in the file; may be unaligned
  int64_t bytes = 0;       // number of bytes from there to the end of the last element
  Dims strides;            // counted in elements; empty: dense, row-major
  Encoding encoding = {};  // how a GGUF file stores the elements; they decode to shape.dtype
  // At most one of the next pointers is set. It has the tensors from which the values are computed. If none is set, the
  // tensor itself is stored.
  std::shared_ptr<const Mxfp4Parts> mxfp4 = {};
  std::shared_ptr<const Float8Parts> float8 = {};
  std::shared_ptr<const BitsandbytesParts> bitsandbytes = {};
  std::shared_ptr<const GroupParts> groups = {};
  std::shared_ptr<const GrownTable> grown = {};
  std::shared_ptr<const JoinedRows> joined = {};
  std::shared_ptr<const JoinedExperts> joined_experts = {};

  bool dense() const {
    return strides.empty() && !encoding && !mxfp4 && !float8 && !bitsandbytes && !groups && !grown && !joined &&
           !joined_experts;
  }
  // Returns whether the entry's bytes are one range without holes. They need not be the elements themselves (see
  // `encoding`).
  bool dense_places() const { return strides.empty() && !grown && !joined && !joined_experts; }
};

// Move-only. Entries and spans are valid while the TensorFile lives. Several threads may call const members. The
// readers of the formats (SafetensorsFile, TorchFile) construct a TensorFile from entries that they have checked.
class TensorFile {
 public:
  const std::filesystem::path& path() const { return map_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  const TensorEntry* find(std::string_view name) const;                 // nullptr when there is none

  // Calls use(bytes) with the mapped bytes of an entry. dense_places() must be true for the entry. If dense() is true,
  // too, the bytes are the entry's elements: little endian, possibly unaligned, valid during the call. If the file
  // became shorter during the call, the result of `use` is wrong, and with_bytes() then throws UserError, like every
  // reading member.
  template <typename Use>
  void with_bytes(const TensorEntry& entry, Use use) const {
    use(dense_bytes(entry));
    map_.check();
  }
  // Copies box.elements() elements, dense, to `out` as dtype `to` (float dtypes are converted; other dtypes must be
  // equal). Reads only the bytes that the box needs. Throws InternalError when the box is not inside the tensor.
  void read_slice(const TensorEntry& entry, const Box& box, DType to, std::byte* out) const;
  void read_slice(const TensorEntry& entry, const Box& box, std::byte* out) const {
    read_slice(entry, box, entry.shape.dtype, out);
  }
  HostArray read(const TensorEntry& entry) const;

  // Gives the mapped pages of the entry back to the system. If the entry is joined from other tensors, gives back the
  // pages of those tensors.
  void release(const TensorEntry& entry) const;

 protected:
  TensorFile(MappedFile map, std::vector<TensorEntry> entries);

 private:
  std::span<const std::byte> dense_bytes(const TensorEntry& entry) const;

  MappedFile map_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// A tensor [E, in, out] in MXFP4, as GPT-OSS stores its experts. `blocks` is u8 [E, out, in / 32, 16]: each byte has
// two elements, the first one in the low four bits. `scales` is u8 [E, out, in / 32].
struct Mxfp4Parts {
  const TensorFile *blocks_file, *scales_file;
  TensorEntry blocks, scales;
};

// A weight [..., rows, columns] in 8-bit floats. Each block of block_rows x block_columns values has one factor. The
// factors have the dims [..., blocks of rows, blocks of columns].
struct Float8Parts {
  const TensorFile *codes_file, *factors_file;
  TensorEntry codes, factors;
  int64_t block_rows, block_columns;

  // Returns the index of the factor for the weight's element with the row-major index `element`.
  int64_t factor_of(int64_t element) const;
};

// A weight in one of bitsandbytes' formats (models/quantisation.h).
struct BitsandbytesParts {
  Quantisation format;
  const TensorFile *codes_file, *absmax_file, *nested_file;  // nested_file: null unless nested
  TensorEntry codes, absmax, nested_absmax;
  float nested_offset = 0;
};

// A weight [outputs, inputs] of integers. For each output, each group of inputs has a scale and a zero. The functions
// in quantised/group_codes.h read the weight.
struct GroupParts {
  GroupStorage storage;
  int64_t outputs, inputs;
  const TensorFile *codes_file, *scales_file;
  TensorEntry codes, scales;
  const TensorFile *zeros_file, *order_file;  // null: the tensor is missing
  TensorEntry zeros, order;
};

// A tensor whose rows are the rows of several tensors, one tensor after the other.
struct JoinedRows {
  std::vector<const TensorFile*> files;
  std::vector<TensorEntry> entries;
};

// The weights of all experts of a layer, [E, out, in] or [E, in, out] (inputs_first), or their biases [E, out]. Each
// expert has `each` tensors with the same dims, for example a gate and an up projection. The tensors are [rows, in], or
// [rows, 1] for biases. Their rows are the expert's outputs: the rows of the first tensor come first, or the rows of
// the tensors alternate (in_turns).
struct JoinedExperts {
  std::vector<const TensorFile*> files;
  std::vector<TensorEntry> entries;  // the tensors of the first expert, then those of the second, ...
  int64_t each = 1;
  bool inputs_first = false;
  bool in_turns = false;
  bool biases = false;
};

// A table whose rows below `first` come from `table`, and whose rows from `first` on are `rows`.
struct GrownTable {
  const TensorFile *table_file, *rows_file;
  TensorEntry table, rows;
  int64_t first = 0;
};

}  // namespace fettle
