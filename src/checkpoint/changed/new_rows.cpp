#include "checkpoint/changed/new_rows.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/convert.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/table/joined_tensors.h"
#include "models/model.h"

namespace fettle {
namespace {

constexpr int64_t kRowMultiple = 64;
constexpr int64_t kRowsAtOnce = 1024;

std::vector<float> read_rows(const StoredTensor& table, int64_t first, int64_t count) {
  const int64_t width = table.entry->shape.dims[1];
  std::vector<float> rows(static_cast<size_t>(count * width));
  table.file->read_slice(*table.entry, {{first, 0}, {count, width}}, DType::kF32,
                         reinterpret_cast<std::byte*>(rows.data()));
  return rows;
}

// Returns the mean of the rows in [0, before) for which wanted(row) is true.
template <typename Wanted>
std::vector<double> mean_of_rows(const StoredTensor& table, int64_t before, const Wanted& wanted) {
  const int64_t width = table.entry->shape.dims[1];
  std::vector<double> sum(static_cast<size_t>(width), 0);
  int64_t count = 0;
  for (int64_t first = 0; first < before; first += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, before - first);
    const std::vector<float> values = read_rows(table, first, rows);
    for (int64_t row = 0; row < rows; ++row) {
      if (!wanted(first + row)) continue;
      ++count;
      for (int64_t i = 0; i < width; ++i) sum[i] += values[static_cast<size_t>(row * width + i)];
    }
  }
  for (double& value : sum) value /= static_cast<double>(std::max<int64_t>(count, 1));
  return sum;
}

// Returns the mean of the rows of these ids. An id that occurs n times counts n times.
std::vector<double> mean_of_ids(const StoredTensor& table, const std::vector<int32_t>& ids) {
  std::vector<double> sum(static_cast<size_t>(table.entry->shape.dims[1]), 0);
  for (const int32_t id : ids) {
    const std::vector<float> row = read_rows(table, id, 1);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i] / static_cast<double>(ids.size());
  }
  return sum;
}

// A table whose rows are to grow, and the tensor whose name its noise depends on.
struct GrowingTable {
  StoredTensor stored;
  std::string noise_of;
};

// Returns the rows [rows.first, rows.after), in f32.
std::vector<float> new_rows(const GrowingTable& growing, const VocabularyRows& rows, const NewTokens& tokens,
                            const GrownTokenizer& tokenizer) {
  const StoredTensor& table = growing.stored;
  const int64_t width = table.entry->shape.dims[1];
  const uint64_t key = XXH3_64bits_withSeed(growing.noise_of.data(), growing.noise_of.size(), tokens.seed);
  std::map<int32_t, std::string> of_id;
  for (const auto& [token, id] : tokenizer.added) of_id[id] = token;
  const std::vector<double> mean =
      mean_of_rows(table, rows.before, [&](int64_t row) { return !of_id.contains(static_cast<int32_t>(row)); });
  std::vector<float> out(static_cast<size_t>((rows.after - rows.first) * width));
  for (int64_t row = rows.first; row < rows.after; ++row) {
    float* values = out.data() + (row - rows.first) * width;
    const auto token = of_id.find(static_cast<int32_t>(row));
    if (token == of_id.end() && row < rows.before) {
      std::ranges::copy(read_rows(table, row, 1), values);
      continue;
    }
    std::vector<int32_t> described;
    if (token != of_id.end() && tokens.from_descriptions)
      if (const auto found = tokenizer.described.find(token->second); found != tokenizer.described.end())
        std::ranges::copy_if(found->second, std::back_inserter(described),
                             [&](int32_t id) { return id < rows.before && !of_id.contains(id); });
    const std::vector<double> start = described.empty() ? mean : mean_of_ids(table, described);
    const double noise = described.empty() || tokens.with_noise ? 1 / std::sqrt(static_cast<double>(width)) : 0;
    for (int64_t i = 0; i < width; ++i)
      values[i] = static_cast<float>(start[static_cast<size_t>(i)] +
                                     noise * normal_noise(key, static_cast<uint64_t>(row * width + i)));
  }
  return out;
}

}  // namespace

VocabularyRows vocabulary_rows(int64_t model_rows, const GrownTokenizer& tokenizer) {
  VocabularyRows rows{.before = model_rows, .after = model_rows};
  if (tokenizer.size > model_rows) rows.after = (tokenizer.size + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  rows.first = std::min(tokenizer.size_before, model_rows);
  return rows;
}

void write_new_rows(const std::filesystem::path& folder, const ModelRepository& model, const VocabularyRows& rows,
                    const NewTokens& tokens, const GrownTokenizer& tokenizer) {
  const std::string file = (model.folder() / "config.json").string();
  const Family& family = family_of(model.config(), file);
  std::vector<GrowingTable> tables;
  const ModelConfig config = family.read(ConfigReader(model.config(), file));
  if (config.head_bias && model.contains(family.head + ".bias") && rows.after != rows.before)
    throw UserError(
        "{}: the new tokens need {} rows in the embedding, but the model has {}; adding rows to a head with "
        "biases ({}) is not implemented",
        file, rows.after, rows.before, family.model_type);
  for (const Param& param : family.params(config)) {
    const bool head =
        param.role == Role::kHead && model.contains(param.hf_name);  // a classifier's checkpoint may have no head
    if (param.role != Role::kTokenEmbedding && !head) continue;
    const StoredTensor table = model.find(param.hf_name);
    tables.push_back({table, table.entry->name});
  }
  // Some checkpoints with a tied head store the head, too. Its rows stay those of the embedding.
  if (const std::string head = family.head + ".weight"; !family.encoder && model.contains(head)) {
    const StoredTensor copy = model.find(head);
    const bool known = std::ranges::any_of(
        tables, [&](const GrowingTable& table) { return table.stored.entry->name == copy.entry->name; });
    if (!known) tables.push_back({copy, tables.front().noise_of});
  }
  NamedShapes shapes;
  for (const GrowingTable& growing : tables) {
    const StoredTensor& table = growing.stored;
    const Shape& shape = table.entry->shape;
    if (shape.rank() != 2 || shape.dims[0] != rows.before)
      throw UserError("{}: '{}' is {}, wanted {} rows; new tokens cannot be added to this model", file,
                      table.entry->name, shape.to_string(), rows.before);
    shapes.emplace_back(table.entry->name, Shape{shape.dtype, {rows.after - rows.first, shape.dims[1]}});
  }
  SafetensorsWriter writer(folder / kNewRows, shapes);
  for (const GrowingTable& growing : tables) {
    const std::vector<float> values = new_rows(growing, rows, tokens, tokenizer);
    const DType dtype = growing.stored.entry->shape.dtype;
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(byte_size(dtype)));
    convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, bytes.data(), dtype,
                     static_cast<int64_t>(values.size()));
    writer.write(growing.stored.entry->name, bytes);
  }
  writer.finish();
}

}  // namespace fettle
