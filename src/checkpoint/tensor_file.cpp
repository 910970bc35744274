#include "checkpoint/tensor_file.h"

#include <algorithm>

#include "adapters/block_codes.h"
#include "base/arrays/box_copy.h"
#include "base/arrays/e4m3.h"
#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/quantised/group_codes.h"

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
  internal_check(entry.dense_places(), "'{}' of {} is not dense", entry.name, path().string());
  return map_.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

namespace {

// Returns the element with the row-major number `at` of the tensor [E, in, out].
float mxfp4_value(const std::byte* blocks, const std::byte* scales, const Dims& stored, int64_t at) {
  const int64_t outputs = stored[1], inputs = stored[2] * Quantisation::kMxfp4Block;
  const int64_t output = at % outputs, input = at / outputs % inputs, expert = at / (outputs * inputs);
  const int64_t place = (expert * outputs + output) * inputs + input;
  const auto two = static_cast<uint8_t>(blocks[place / 2]);
  const auto scale = static_cast<uint8_t>(scales[place / Quantisation::kMxfp4Block]);
  return values_of(Quantisation::Type::kMxfp4)[place % 2 == 0 ? two & 15 : two >> 4] * mxfp4_scales()[scale];
}

void read_mxfp4(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const Mxfp4Parts& parts = *entry.mxfp4;
  // The last two dims of a fused parameter are one dim of the stored tensor. The row-major order of the elements is the
  // same.
  parts.blocks_file->with_bytes(parts.blocks, [&](std::span<const std::byte> blocks) {
    parts.scales_file->with_bytes(parts.scales, [&](std::span<const std::byte> scales) {
      std::vector<float> values;
      for_each_run(box, entry.shape.dims, box.size, Dims(box.size.size(), 0),
                   [&](int64_t source, int64_t target, int64_t count) {
                     values.resize(static_cast<size_t>(count));
                     for (int64_t i = 0; i < count; ++i)
                       values[static_cast<size_t>(i)] =
                           mxfp4_value(blocks.data(), scales.data(), parts.scales.shape.dims, source + i);
                     convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                      out + target * byte_size(to), to, count);
                   });
    });
  });
}

void read_float8(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const Float8Parts& parts = *entry.float8;
  const int64_t columns = parts.codes.shape.dims.back();
  const HostArray factors = parts.factors_file->read(parts.factors).to(DType::kF32);
  const std::span<const float> factor = factors.as<float>();
  const std::vector<float>& value_of = e4m3_values();
  parts.codes_file->with_bytes(parts.codes, [&](std::span<const std::byte> codes) {
    std::vector<float> values;
    // The entry may have several dims in place of one dim of the weight. An element's row-major index stays the same.
    for_each_run(
        box, entry.shape.dims, box.size, Dims(box.size.size(), 0), [&](int64_t source, int64_t target, int64_t count) {
          values.resize(static_cast<size_t>(count));
          for (int64_t i = 0; i < count;) {
            const int64_t column = (source + i) % columns, block = parts.factor_of(source + i);
            const int64_t end =
                std::min({count, i + columns - column, i + parts.block_columns - column % parts.block_columns});
            for (; i < end; ++i)
              values[static_cast<size_t>(i)] = value_of[static_cast<uint8_t>(codes[static_cast<size_t>(source + i)])] *
                                               factor[static_cast<size_t>(block)];
          }
          convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, out + target * byte_size(to),
                           to, count);
        });
  });
}

// Returns the absmax of all blocks or rows of the weight.
std::vector<float> read_absmax(const BitsandbytesParts& parts) {
  const HostArray absmax = parts.absmax_file->read(parts.absmax);
  if (!parts.format.nested) return {absmax.as<float>().begin(), absmax.as<float>().end()};
  const HostArray of_blocks = parts.nested_file->read(parts.nested_absmax);
  const NestedAbsmax nested{{absmax.as<uint8_t>().begin(), absmax.as<uint8_t>().end()},
                            {of_blocks.as<float>().begin(), of_blocks.as<float>().end()},
                            parts.nested_offset};
  std::vector<float> out(nested.codes.size());
  dequantise_absmax(nested, 0, out);
  return out;
}

void read_bitsandbytes(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const BitsandbytesParts& parts = *entry.bitsandbytes;
  const bool four_bits = parts.format.four_bits();
  const std::vector<float> absmax = read_absmax(parts);
  const float* table = four_bits ? values_of(parts.format.type).data() : nullptr;
  const int64_t columns = four_bits ? 0 : parts.codes.shape.dims.back();
  parts.codes_file->with_bytes(parts.codes, [&](std::span<const std::byte> codes) {
    auto value = [&](int64_t element) {
      if (!four_bits)
        return static_cast<float>(static_cast<int8_t>(codes[element])) * (absmax[element / columns] / 127);
      const auto two = static_cast<uint8_t>(codes[element / 2]);
      return table[element % 2 == 0 ? two >> 4 : two & 15] * absmax[element / Quantisation::kBlock];
    };
    std::vector<float> values;
    // The entry may have several dims in place of one dim of the weight. An element's row-major index stays the same.
    for_each_run(box, entry.shape.dims, box.size, Dims(box.size.size(), 0),
                 [&](int64_t source, int64_t target, int64_t count) {
                   values.resize(static_cast<size_t>(count));
                   for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(source + i);
                   convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                    out + target * byte_size(to), to, count);
                 });
  });
}

void read_groups(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const GroupParts& parts = *entry.groups;
  // The entry may have several dims in place of one dim of the weight. An element's row-major index stays the same.
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  auto for_runs = [&](const auto& use) {
    for_each_run(box, entry.shape.dims, box.size, Dims(box.size.size(), 0), use);
  };
  for_runs([&](int64_t source, int64_t, int64_t count) {
    first = std::min(first, source), last = std::max(last, source + count);
  });
  if (last == 0) return;
  const GroupRows rows(parts, first / parts.inputs, (last - 1) / parts.inputs + 1);
  std::vector<float> values;
  for_runs([&](int64_t source, int64_t target, int64_t count) {
    values.resize(static_cast<size_t>(count));
    rows.values(source, values);
    convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, out + target * byte_size(to), to,
                     count);
  });
}

// Returns the numbers (from 0) of an expert's outputs that are in a box. The outputs are an array with the dims `dims`,
// and the box has the given start and size in these dims.
std::vector<int64_t> outputs_in(std::span<const int64_t> start, std::span<const int64_t> size,
                                std::span<const int64_t> dims) {
  std::vector<int64_t> out{0};
  for (size_t d = 0; d < dims.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t before : out)
      for (int64_t i = 0; i < size[d]; ++i) next.push_back(before * dims[d] + start[d] + i);
    out = std::move(next);
  }
  return out;
}

void read_joined_experts(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const JoinedExperts& joined = *entry.joined_experts;
  if (box.elements() == 0) return;
  // The entry may have several dims for the outputs.
  const size_t rank = box.size.size(), in_dim = joined.inputs_first ? 1 : rank - 1,
               first_out = joined.inputs_first ? 2 : 1;
  auto of_outputs = [&](const Dims& dims) {
    return std::span(dims).subspan(first_out, rank - (joined.biases ? 1 : 2));
  };
  const std::vector<int64_t> outputs =
      outputs_in(of_outputs(box.start), of_outputs(box.size), of_outputs(entry.shape.dims));
  const int64_t inputs = joined.biases ? 1 : box.size[in_dim], first_input = joined.biases ? 0 : box.start[in_dim];
  const int64_t size = joined.entries[0].shape.dims[0], columns = static_cast<int64_t>(outputs.size());
  auto tensor_of = [&](int64_t output) { return joined.in_turns ? output % joined.each : output / size; };
  auto row_of = [&](int64_t output) { return joined.in_turns ? output / joined.each : output % size; };
  const int64_t per_output = joined.inputs_first ? 1 : inputs, per_input = joined.inputs_first ? columns : 1;
  std::vector<float> values(static_cast<size_t>(inputs * columns)), rows;
  for (int64_t expert = 0; expert < box.size[0]; ++expert) {
    for (int64_t tensor = 0; tensor < joined.each; ++tensor) {
      int64_t begin = size, end = 0;
      for (const int64_t output : outputs)
        if (tensor_of(output) == tensor)
          begin = std::min(begin, row_of(output)), end = std::max(end, row_of(output) + 1);
      if (begin >= end) continue;
      const auto at = static_cast<size_t>((box.start[0] + expert) * joined.each + tensor);
      rows.resize(static_cast<size_t>((end - begin) * inputs));
      joined.files[at]->read_slice(joined.entries[at], {{begin, first_input}, {end - begin, inputs}}, DType::kF32,
                                   reinterpret_cast<std::byte*>(rows.data()));
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t output = outputs[static_cast<size_t>(column)];
        if (tensor_of(output) != tensor) continue;
        const float* row = rows.data() + (row_of(output) - begin) * inputs;
        for (int64_t i = 0; i < inputs; ++i) values[static_cast<size_t>(i * per_input + column * per_output)] = row[i];
      }
    }
    convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                     out + expert * inputs * columns * byte_size(to), to, inputs * columns);
  }
}

void read_grown(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const GrownTable& grown = *entry.grown;
  const int64_t all = box.size[0], kept = std::clamp<int64_t>(grown.first - box.start[0], 0, all);
  Box part = box;
  part.size[0] = kept;
  if (kept > 0) grown.table_file->read_slice(grown.table, part, to, out);
  if (kept == all) return;
  part.start[0] = box.start[0] + kept - grown.first;
  part.size[0] = all - kept;
  grown.rows_file->read_slice(grown.rows, part, to, out + box.elements() / all * kept * byte_size(to));
}

void read_joined(const TensorEntry& entry, const Box& box, DType to, std::byte* out) {
  const JoinedRows& joined = *entry.joined;
  if (box.elements() == 0) return;
  const size_t d = box.size.size() - 2;  // all dims of the entry before the last one count as rows
  const int64_t count = box.size[d], row_bytes = box.size.back() * byte_size(to);
  const int64_t runs = box.elements() / count / box.size.back();
  for (int64_t run = 0; run < runs; ++run) {
    int64_t begin = box.start[d], rest = run, rows_below = entry.shape.dims[d];
    for (size_t outer = d; outer-- > 0; rows_below *= entry.shape.dims[outer]) {
      begin += (box.start[outer] + rest % box.size[outer]) * rows_below;
      rest /= box.size[outer];
    }
    int64_t first = 0;  // the row at which the piece begins
    for (size_t i = 0; i < joined.entries.size() && first < begin + count; ++i) {
      const int64_t rows = joined.entries[i].shape.dims[0];
      const int64_t from = std::max(begin, first), until = std::min(begin + count, first + rows);
      const Box part{{from - first, box.start.back()}, {until - from, box.size.back()}};
      if (from < until)
        joined.files[i]->read_slice(joined.entries[i], part, to, out + (run * count + from - begin) * row_bytes);
      first += rows;
    }
  }
}

}  // namespace

int64_t Float8Parts::factor_of(int64_t element) const {
  const Dims& dims = codes.shape.dims;
  const int64_t rows = dims[dims.size() - 2], columns = dims.back(), row = element / columns;
  const int64_t down = (rows + block_rows - 1) / block_rows, across = (columns + block_columns - 1) / block_columns;
  return (row / rows * down + row % rows / block_rows) * across + element % columns / block_columns;
}

void TensorFile::read_slice(const TensorEntry& entry, const Box& box, DType to, std::byte* out) const {
  if (entry.mxfp4) return read_mxfp4(entry, box, to, out);
  if (entry.float8) return read_float8(entry, box, to, out);
  if (entry.bitsandbytes) return read_bitsandbytes(entry, box, to, out);
  if (entry.groups) return read_groups(entry, box, to, out);
  if (entry.grown) return read_grown(entry, box, to, out);
  if (entry.joined) return read_joined(entry, box, to, out);
  if (entry.joined_experts) return read_joined_experts(entry, box, to, out);
  const std::byte* data = map_.bytes().data() + entry.offset;
  const DType from = entry.shape.dtype;
  if (entry.encoding) {
    read_encoded(entry, data, box, to, out);
    map_.check();
    return;
  }
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

void TensorFile::release(const TensorEntry& entry) const {
  auto release_all = [](const auto& joined) {
    for (size_t i = 0; i < joined.entries.size(); ++i) joined.files[i]->release(joined.entries[i]);
  };
  if (entry.joined_experts) return release_all(*entry.joined_experts);
  if (entry.joined) return release_all(*entry.joined);
  map_.release(entry.offset, entry.bytes);
}

HostArray TensorFile::read(const TensorEntry& entry) const {
  HostArray array(entry.shape);
  read_slice(entry, Box::whole(entry.shape.dims), array.data());
  return array;
}

}  // namespace fettle
