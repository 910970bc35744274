#include "export/gguf/gguf_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/mxfp4_codes.h"
#include "export/merged_tensor.h"

namespace fettle {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{16} << 20;  // bytes of f32 values that are read at a time

// The rows of one part in the order of the file.
struct FileRows {
  int64_t rows, columns;
  int64_t period;  // rows move only within groups of this many rows
};

// Returns whether the file's rows are columns of the base's tensor.
bool in_columns(const PlannedTensor& tensor) {
  return !tensor.pieces.empty() && tensor.pieces[0].step > 0;
}

FileRows rows_of(const PlannedTensor& tensor, size_t part) {
  const Dims& dims = tensor.dims;
  if (in_columns(tensor)) return {tensor.pieces[part].count, tensor.part_dims(part)[1], 1};
  if (!tensor.pieces.empty()) {
    const bool flipped = !tensor.place.strides.empty();
    const RowSwap& swap = tensor.place.encoding.swap;
    return {flipped ? dims[1] : tensor.pieces[part].count, dims.back(),
            swap.swaps() ? swap.first * swap.second * swap.inner : 1};
  }
  const bool of_experts = tensor.parts.size() > 1 || dims.size() > 2;
  if (tensor.place.shape.dims.size() == 1) {
    const int64_t size = product(dims);
    FileRows vector{size, 1, 1};  // a vector's elements are rows
    if (tensor.place.encoding.swap.swaps()) vector.period = size;
    return vector;
  }
  const RowSwap& swap = tensor.place.encoding.swap;
  const size_t first = of_experts ? 1 : 0;
  const int64_t period = swap.begin > 0 ? dims[first] : swap.first * swap.second * swap.inner;
  return {dims[first], dims.back(), swap.swaps() ? period : 1};
}

// Returns the row of the file's tensor at which the part begins.
int64_t first_row_of(const PlannedTensor& tensor, size_t part) {
  int64_t first = 0;
  for (size_t before = 0; before < part; ++before) first += rows_of(tensor, before).rows;
  return first;
}

// Selects the rows [first, first + count) of one part, counted in the file's order. Returns the box with these rows in
// the tensor that a reader of the file gets for the part.
Box box_of(const PlannedTensor& tensor, const Dims& dims, int64_t first, int64_t count) {
  Box box{Dims(dims.size(), 0), dims};
  const size_t d = tensor.place.strides.empty() ? 0 : 1;  // a transposed tensor's columns are the file's rows
  box.start[d] = first, box.size[d] = count;
  return box;
}

// Selects the same rows as box_of(). Returns the box with their values in the base's tensor.
Box base_box_of(const PlannedTensor& tensor, size_t part, const Dims& dims, int64_t first, int64_t count) {
  if (in_columns(tensor)) {
    const GgufPiece& piece = tensor.pieces[part];
    const int64_t output = piece.first % dims.back() + first * piece.step, last = (count - 1) * piece.step;
    Box box{Dims(dims.size(), 0), dims};
    box.start[0] = piece.first / dims.back(), box.size[0] = 1;
    box.start.back() = output, box.size.back() = last + 1;
    return box;
  }
  if (!tensor.pieces.empty() && dims.size() == 3) {  // the tensor has all experts
    const int64_t row = tensor.pieces[part].first + first;
    return {{row / dims[1], row % dims[1], 0}, {1, count, dims[2]}};
  }
  Box box = box_of(tensor, dims, first, count);
  if (tensor.pieces.empty()) return box;
  if (!tensor.place.strides.empty()) box.size[0] = tensor.pieces[part].count;
  box.start[0] += tensor.pieces[part].first;
  return box;
}

// Scales each row to length 1, like PyTorch's normalize().
void scale_rows(std::vector<float>& values, size_t columns) {
  for (size_t row = 0; row < values.size(); row += columns) {
    double square = 0;
    for (size_t i = row; i < row + columns; ++i) square += static_cast<double>(values[i]) * values[i];
    const double length = std::max(std::sqrt(square), 1e-12);
    for (size_t i = row; i < row + columns; ++i) values[i] = static_cast<float>(values[i] / length);
  }
}

// Returns the values that a reader of the file should get for the rows from `first` on, before the file's type rounds
// them. These are the merged values, times the factors that are part of the file's weights (RowFactors). If the file's
// rows are columns of the base, transposes the values.
std::vector<float> as_read(const PlannedTensor& tensor, const FileRows& shape, int64_t first, const HostArray& merged) {
  const std::span<const float> from = merged.as<float>();
  std::vector<float> out;
  if (in_columns(tensor)) {
    const auto width = static_cast<size_t>(merged.shape().dims.back()), inputs = from.size() / width;
    for (size_t output = 0; output < width; output += static_cast<size_t>(tensor.pieces[0].step))
      for (size_t input = 0; input < inputs; ++input) out.push_back(from[input * width + output]);
  } else {
    out.assign(from.begin(), from.end());
  }
  apply_factors(tensor.factors, first, shape.columns, out);
  if (tensor.unit_rows) scale_rows(out, static_cast<size_t>(shape.columns));
  return out;
}

// `from` has the values of `rows` rows in the base's order. Returns them in the order and in the form in which the file
// stores them (1 + w for some norms, -exp(A_log)).
std::vector<float> in_file_order(const PlannedTensor& tensor, const FileRows& shape, const std::vector<float>& from,
                                 int64_t rows) {
  std::vector<float> out = from;
  const RowSwap& swap = tensor.place.encoding.swap;
  if (!tensor.place.strides.empty()) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < shape.columns; ++column)
        out[static_cast<size_t>(row * shape.columns + column)] = from[static_cast<size_t>(column * rows + row)];
  } else if (swap.swaps()) {
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(from.begin() + row * shape.columns, shape.columns, out.begin() + swap.stored(row) * shape.columns);
  }
  if (const RowSwap& across = tensor.place.encoding.column_swap; across.swaps())
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < shape.columns; ++column)
        out[static_cast<size_t>(row * shape.columns + across.stored(column))] =
            from[static_cast<size_t>(row * shape.columns + column)];
  if (const float shift = tensor.place.encoding.shift; shift != 0)
    for (float& value : out) value -= shift;
  if (tensor.place.encoding.log_of_negative)
    for (float& value : out) value = -std::exp(value);
  return out;
}

void check_finite(const std::string& name, const HostArray& values) {
  for (const float value : values.as<float>())
    if (!std::isfinite(value))
      throw UserError("'{}' has the value {}; the model is broken, so its GGUF file would be broken, too", name, value);
}

void encode_and_write(const std::vector<float>& values, const FileRows& shape, int64_t offset_rows, size_t index,
                      const BlockType& type, GgufParts& writer) {
  const int64_t rows = static_cast<int64_t>(values.size()) / shape.columns;
  const int64_t row_bytes = shape.columns / type.elements * type.bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes));
  const int64_t parts = std::clamp<int64_t>(static_cast<int64_t>(values.size()) / 65536, 1, rows);
  const int64_t threads = std::min<int64_t>(copy_threads(), parts);
  parallel_for(threads, static_cast<int>(threads), [&](int64_t part) {
    const int64_t first = rows * part / threads, end = rows * (part + 1) / threads;
    encode_blocks(type, values.data() + first * shape.columns, (end - first) * shape.columns,
                  bytes.data() + first * row_bytes);
  });
  writer.write(index, bytes, offset_rows * row_bytes);
}

int64_t rows_at_once(const PlannedTensor& tensor, const FileRows& shape) {
  if (!tensor.place.strides.empty()) return shape.rows;
  const int64_t fitting = std::max<int64_t>(1, kBytesAtOnce / std::max<int64_t>(1, shape.columns * 4));
  return std::max(shape.period, fitting / shape.period * shape.period);
}

// Writes part number `expert` (from 0) of the tensor. `index` is the tensor's number in the files. `types` has the
// tensor's type in each file.
void write_part(const PlannedTensor& tensor, size_t expert, const MergedTensor& from, size_t index,
                const std::vector<const BlockType*>& types, std::vector<GgufOutput>& files, MergeCount& count) {
  const FileRows shape = rows_of(tensor, expert);
  const int64_t offset = first_row_of(tensor, expert);
  const std::string& name = tensor.parts[expert]->name;
  const int64_t block = rows_at_once(tensor, shape);
  bool changed = from.saved();
  count.nonzero |= changed;
  for (int64_t first = 0; first < shape.rows; first += block) {
    const int64_t rows = std::min(block, shape.rows - first);
    const MergedTensor::Values values = from.read(base_box_of(tensor, expert, from.dims(), first, rows));
    check_finite(name, values.after);
    if (from.merges() && !std::ranges::equal(values.before.as<float>(), values.after.as<float>()))
      count.nonzero = changed = true;
    const std::vector<float> ordered = in_file_order(tensor, shape, as_read(tensor, shape, first, values.after), rows);
    for (size_t i = 0; i < files.size(); ++i) {
      if (tensor.keeps_codes) {
        const GgufPiece& piece = tensor.pieces[expert];
        const int64_t outputs = from.dims().back(), output = piece.first % outputs + first * piece.step;
        const std::vector<std::byte> codes =
            copy_mxfp4_codes(*from.stored().entry, piece.first / outputs, output, piece.step, rows);
        files[i].writer.write(index, codes, (offset + first) * static_cast<int64_t>(codes.size()) / rows);
        continue;
      }
      if (types[i]->name == "F16") check_range(name, values.after, DType::kF16, "choose bf16 or q8_0 in export_gguf");
      encode_and_write(ordered, shape, offset + first, index, *types[i], files[i].writer);
    }
  }
  const bool once = tensor.pieces.empty() || tensor.pieces[expert].position == 0;  // counts a divided tensor once
  count.tensors += changed && once;
  from.stored().file->release(*from.stored().entry);
}

// Returns the largest error (see GgufError) that a type can cause. The worst block has one large value and many small
// ones. Each value is then wrong by up to half a step of the codes (a whole step for Q4_0 and Q5_0).
double bound_of(const BlockType& type) {
  static const std::map<std::string_view, double> kBounds{
      {"F32", 0},    {"F16", 5e-4}, {"BF16", 4e-3}, {"Q8_0", 0.025}, {"Q6_K", 0.1},  {"Q5_K", 0.2}, {"Q5_1", 0.2},
      {"Q5_0", 0.2}, {"Q4_K", 0.4}, {"Q4_1", 0.4},  {"Q4_0", 0.4},   {"MXFP4", 0.4}, {"Q3_K", 0.6}, {"Q2_K", 0.8},
  };
  return kBounds.at(type.name);
}

struct Sums {
  double error = 0, square = 0;
  int64_t elements = 0;
  bool finite = true;
};

void compare(const std::vector<float>& a, const HostArray& got, Sums& sums) {
  const std::span<const float> b = got.as<float>();
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(b[i]) - a[i];
    sums.error += difference * difference, sums.square += static_cast<double>(a[i]) * a[i];
    sums.finite = sums.finite && std::isfinite(b[i]);
  }
  sums.elements += static_cast<int64_t>(a.size());
}

}  // namespace

MergeCount write_gguf_weights(const GgufPlan& plan, const BaseTensors& base, const AdapterMerge* merge,
                              std::vector<GgufOutput>& files) {
  MergeCount count;
  const size_t tables = plan.tables.size();
  for (size_t i = 0; i < tables; ++i)
    for (GgufOutput& file : files) file.writer.write(i, std::as_bytes(std::span(plan.tables[i].values)), 0);
  std::vector<std::vector<GgufTensor>> tensors;
  for (const GgufOutput& file : files) tensors.push_back(plan.tensors_of(*file.type));
  ProgressLine progress;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    check_signal();
    const PlannedTensor& tensor = plan.tensors[i];
    std::vector<const BlockType*> types;
    for (const std::vector<GgufTensor>& of_file : tensors) types.push_back(of_file[tables + i].type);
    std::optional<MergedTensor> from;
    for (size_t expert = 0; expert < tensor.parts.size(); ++expert) {
      if (expert == 0 || tensor.pieces.empty()) from.emplace(base, *tensor.parts[expert], merge);
      write_part(tensor, expert, *from, tables + i, types, files, count);
    }
    progress.show([&] { return fmt::format("writing weights, tensor {} of {}", i + 1, plan.tensors.size()); });
  }
  return count;
}

GgufError check_gguf_weights(const GgufPlan& plan, const BaseTensors& base, const AdapterMerge* merge,
                             const GgufFileType& type, const std::filesystem::path& file) {
  const std::vector<TensorFile> opened = open_gguf(file);
  const auto find = [&](const std::string& name) -> StoredTensor {
    for (const TensorFile& part : opened)
      if (const TensorEntry* entry = part.find(name)) return {&part, entry};
    throw InternalError("{}: '{}' is missing when the file is read back", file.string(), name);
  };
  GgufError worst;
  for (const PlannedTensor& tensor : plan.tensors) {
    check_signal();
    const BlockType& stored = plan.type_of(tensor, type);
    std::optional<MergedTensor> from;
    for (size_t expert = 0; expert < tensor.parts.size(); ++expert) {
      const FileRows shape = rows_of(tensor, expert);
      const int64_t block = rows_at_once(tensor, shape);
      const BaseTensor* part = tensor.parts[expert];
      const auto [part_file, entry] = find(tensor.read_as[expert]);
      const Dims dims = tensor.part_dims(expert);
      internal_check(entry->shape.dims == dims, "{}: '{}' has another shape when the file is read back", file.string(),
                     part->name);
      if (expert == 0 || tensor.pieces.empty()) from.emplace(base, *part, merge);
      Sums sums;
      for (int64_t first = 0; first < shape.rows; first += block) {
        const int64_t rows = std::min(block, shape.rows - first);
        const Box box = box_of(tensor, dims, first, rows),
                  base_box = base_box_of(tensor, expert, from->dims(), first, rows);
        HostArray got({DType::kF32, box.size});
        part_file->read_slice(*entry, box, DType::kF32, got.data());
        compare(as_read(tensor, shape, first, from->read(base_box).after), got, sums);
      }
      if (!sums.finite)
        throw UserError("'{}' has values that the type {} cannot represent; choose another type in export_gguf",
                        part->name, stored.name);
      const double error = std::sqrt(sums.error), size = std::sqrt(sums.square);
      double bound = tensor.keeps_codes ? 0 : bound_of(stored);
      if (tensor.place.encoding.shift != 0 || tensor.place.encoding.log_of_negative) bound += 1e-6;
      // The scale of a block is an f16, so values below the smallest f16 become 0. `floor` allows this error: 1e-7 for
      // each value.
      const double floor = stored.name == "F32" ? 0 : 1e-7 * std::sqrt(static_cast<double>(sums.elements));
      internal_check(error <= std::max(bound * size, floor),
                     "{}: '{}' differs from the merged weights by {:.3g} of their norm; the bound for {} is {}",
                     file.string(), part->name, error / size, stored.name, bound);
      const double share = size > 0 ? error / size : 0;
      if (worst.tensor.empty() || share > worst.error) worst = {share, bound, part->name};
    }
  }
  return worst;
}

}  // namespace fettle
