#include "data/batches/batches.h"

#include <algorithm>

#include "base/cache.h"
#include "base/error.h"
#include "data/batches/order.h"
#include "data/batches/packing.h"

namespace fettle {
namespace {

// Streams of the seed: epochs use their number for rows, so the others start far above.
constexpr uint64_t kPackStream = uint64_t{1} << 60;
constexpr uint64_t kWindowStream = uint64_t{1} << 61;
constexpr int64_t kLargestWindow = 32;

std::vector<int64_t> default_lengths(int64_t max_length, int64_t multiple) {
  auto rounded_up = [multiple](int64_t length) { return (length + multiple - 1) / multiple * multiple; };
  std::vector<int64_t> lengths = {rounded_up(max_length)};
  while (lengths.back() / 2 >= 64 && rounded_up(lengths.back() / 2) < lengths.back())
    lengths.push_back(rounded_up(lengths.back() / 2));
  return lengths;
}

}  // namespace

Batches::Batches(Examples examples, BatchOptions options)
    : examples_(std::move(examples)), options_(std::move(options)) {
  internal_check(options_.rows > 0 && options_.micro_batches > 0 && options_.max_length > 0,
                 "Batches: rows {}, micro_batches {}, max_length {}", options_.rows, options_.micro_batches,
                 options_.max_length);
  if (examples_.empty()) throw UserError("the data set has no rows that can be trained; look at it with `fettle data`");
  if (options_.lengths.empty()) options_.lengths = default_lengths(options_.max_length, options_.multiple);
  std::sort(options_.lengths.begin(), options_.lengths.end());
  int64_t longest = 0;
  bool trained = false;
  for (int64_t i = 0; i < this->examples(); ++i) {
    const int64_t length = examples_.length(i);
    trained = trained || examples_.trained_tokens(i) > 0;
    if (length > options_.lengths.back())
      throw UserError("{}: a row of {} tokens does not fit the longest batch length {}; raise cutoff_len",
                      examples_.source(i), length, options_.lengths.back());
    longest = std::max(longest, length);
  }
  if (!trained && examples_.classes_per_row() == 0)  // classes may be asked of rows that have no label
    throw UserError("none of the {} rows has a trained token; look at them with `fettle data`", examples_.size());
  internal_check(options_.rows % rows_together() == 0 && this->examples() % (options_.pairs ? 2 : 1) == 0,
                 "Batches: {} rows, {} examples in pairs", options_.rows, this->examples());
  if (options_.packing && rows_together() > 1)
    throw UserError("packing: the rows of preferences are not packed; leave `packing` out");
  if (options_.packing && examples_.classes_per_row() > 0)
    throw UserError("packing: rows with a label of their own are not packed; leave `packing` out");
  if (options_.mismatched && rows_of_steps() < 2)
    throw UserError(
        "per_device_train_batch_size: stage kto compares the rows of a step with each other; it wants at least 2");
  if (options_.mismatched && rows() == 1)
    throw UserError(
        "{}: stage kto gives each prompt the reply of another row, and this row is the only one of its set; add rows",
        examples_.source(0));
  if (options_.packing) pack();
  // Lengths that no row needs are never made.
  while (!options_.packing && options_.lengths.size() > 1 && options_.lengths[options_.lengths.size() - 2] >= longest)
    options_.lengths.pop_back();
}

// The rows are made once, so every epoch has as many; the epochs shuffle them.
void Batches::pack() {
  const int64_t count = examples();
  std::vector<int64_t> order(examples_.size()), lengths(examples_.size());
  for (int64_t i = 0; i < count; ++i) {
    order[i] = options_.shuffle ? permuted_index(i, count, options_.seed, kPackStream) : i;
    lengths[i] = examples_.length(order[i]);
  }
  std::vector<std::vector<int64_t>> rows = pack_lengths(lengths, options_.lengths.back());
  for (auto& row : rows)
    for (int64_t& index : row) index = order[index];
  for (auto& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  row_starts_.push_back(0);
  for (const auto& row : rows) {
    row_examples_.insert(row_examples_.end(), row.begin(), row.end());
    row_starts_.push_back(static_cast<int64_t>(row_examples_.size()));
  }
}

int64_t Batches::rows() const {
  if (options_.packing) return static_cast<int64_t>(row_starts_.size()) - 1;
  return options_.pairs ? examples() / 2 : examples();
}

int64_t Batches::steps_per_epoch() const {
  return (rows() + rows_of_steps() - 1) / rows_of_steps();
}

int64_t Batches::examples() const {
  return static_cast<int64_t>(examples_.size());
}

DataIdentity Batches::identity() const {
  ContentKey key;
  std::vector<uint64_t> digests;
  for (int64_t i = 0; i < examples(); ++i) {
    digests.push_back(examples_.digest(i));
    if (digests.size() < 4096 && i + 1 < examples()) continue;
    key.add({reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(uint64_t)});
    digests.clear();
  }
  return {rows(), key.text()};
}

const std::vector<int64_t>& Batches::lengths() const {
  return options_.lengths;
}

std::vector<int64_t> Batches::examples_of(int64_t row) const {
  if (options_.pairs) return {2 * row, 2 * row + 1};
  if (!options_.packing) return {row};
  return {row_examples_.begin() + row_starts_[row], row_examples_.begin() + row_starts_[row + 1]};
}

int64_t Batches::row_length(int64_t row) const {
  if (options_.pairs) return std::max(examples_.length(2 * row), examples_.length(2 * row + 1));
  if (!options_.packing) return examples_.length(row);
  int64_t length = 0;
  for (int64_t i = row_starts_[row]; i < row_starts_[row + 1]; ++i) length += examples_.length(row_examples_[i]);
  return length;
}

// The prompt of `row` with the reply of `other`, cut where the longest row ends.
Batches::Document Batches::mismatched(int64_t row, int64_t other) const {
  auto reply_at = [&](int64_t example) {
    const std::span<const Token> tokens = examples_.tokens(example);
    return std::find_if(tokens.begin(), tokens.end(), [](Token token) { return token.trained(); }) - tokens.begin();
  };
  const std::span<const Token> prompt = examples_.tokens(row).first(static_cast<size_t>(reply_at(row)));
  const std::span<const Token> reply = examples_.tokens(other).subspan(static_cast<size_t>(reply_at(other)));
  const size_t room = static_cast<size_t>(options_.lengths.back()) - prompt.size();
  return {row, prompt, reply.first(std::min(reply.size(), room))};
}

std::vector<Batches::RowOfBatch> Batches::laid_out(const std::vector<int64_t>& rows) const {
  auto next = [&](size_t r) { return rows.size() > 1 ? rows[(r + 1) % rows.size()] : (rows[r] + 1) % this->rows(); };
  std::vector<RowOfBatch> out;
  for (size_t r = 0; r < rows.size(); ++r) {
    RowOfBatch documents;
    for (int64_t example : examples_of(rows[r])) documents.push_back({example, examples_.tokens(example)});
    if (options_.pairs) {
      for (const Document& document : documents) out.push_back({document});
      continue;
    }
    out.push_back(std::move(documents));
    if (options_.mismatched) out.push_back({mismatched(rows[r], next(r))});
  }
  return out;
}

int64_t Batches::padded_length(const std::vector<RowOfBatch>& rows) const {
  int64_t longest = 0;
  for (const RowOfBatch& row : rows) {
    int64_t length = 0;
    for (const Document& document : row) length += document.length();
    longest = std::max(longest, length);
  }
  return *std::lower_bound(options_.lengths.begin(), options_.lengths.end(), longest);
}

int64_t Batches::row_at(int64_t epoch, int64_t i) const {
  return options_.shuffle ? permuted_index(i, rows(), options_.seed, static_cast<uint64_t>(epoch)) : i;
}

// The rows of a few steps, sorted by length, make as many steps, whose order is shuffled again. An epoch has at least
// four such windows, so small data sets do not give the same steps every time.
std::optional<Batches::Window> Batches::window_of(int64_t step) const {
  const int64_t step_rows = rows_of_steps();
  const int64_t epoch = step / steps_per_epoch(), in_epoch = step % steps_per_epoch();
  const int64_t full_steps = rows() / step_rows;
  const int64_t size = std::clamp<int64_t>(full_steps / 4, 1, kLargestWindow);
  const bool grouped = options_.shuffle && options_.like_length && !options_.packing && size > 1;
  if (!grouped || in_epoch >= full_steps) return std::nullopt;
  const int64_t first = in_epoch / size * size;
  Window window{.first = epoch * steps_per_epoch() + first, .steps = std::min(size, full_steps - first)};
  for (int64_t i = first * step_rows; i < (first + window.steps) * step_rows; ++i)
    window.rows.push_back(row_at(epoch, i));
  std::stable_sort(window.rows.begin(), window.rows.end(),
                   [&](int64_t a, int64_t b) { return row_length(a) < row_length(b); });
  window.stream = mix_bits(kWindowStream + static_cast<uint64_t>(epoch), static_cast<uint64_t>(first));
  return window;
}

std::vector<int64_t> Batches::rows_of_step(int64_t step, const std::optional<Window>& window) const {
  const int64_t step_rows = rows_of_steps();
  if (window) {
    const int64_t place = permuted_index(step - window->first, window->steps, options_.seed, window->stream);
    return {window->rows.begin() + place * step_rows, window->rows.begin() + (place + 1) * step_rows};
  }
  const int64_t epoch = step / steps_per_epoch(), in_epoch = step % steps_per_epoch();
  std::vector<int64_t> chosen;
  for (int64_t i = in_epoch * step_rows; i < std::min(rows(), (in_epoch + 1) * step_rows); ++i)
    chosen.push_back(row_at(epoch, i));
  return chosen;
}

Batch Batches::at(int64_t step) const {
  internal_check(step >= 0, "Batches::at({})", step);
  const std::vector<RowOfBatch> rows = laid_out(rows_of_step(step, window_of(step)));
  const int64_t T = padded_length(rows);
  const Shape shape{DType::kI32, {options_.micro_batches, options_.rows, T}};
  Batch batch{.tokens = HostArray(shape),
              .targets = HostArray(shape),
              .positions = HostArray::zeros(shape),
              .segments = HostArray::zeros(shape),
              .preferences = HostArray::zeros({DType::kI32, {options_.micro_batches, options_.rows}}),
              .sources = std::vector<std::string>(options_.micro_batches * options_.rows)};
  auto tokens = batch.tokens.as<int32_t>(), targets = batch.targets.as<int32_t>();
  auto positions = batch.positions.as<int32_t>(), segments = batch.segments.as<int32_t>();
  auto preferences = batch.preferences.as<int32_t>();
  const int64_t K = examples_.classes_per_row();
  std::span<int32_t> token_types;
  std::span<float> classes;
  if (K > 0) {
    batch.token_types = HostArray::zeros(shape);
    token_types = batch.token_types.as<int32_t>();
    batch.classes = HostArray::zeros({DType::kF32, {options_.micro_batches, options_.rows, K}});
    classes = batch.classes.as<float>();
  }
  std::fill(tokens.begin(), tokens.end(), options_.pad_id);
  std::fill(targets.begin(), targets.end(), kIgnore);
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t at = static_cast<int64_t>(r) * T;
    int32_t segment = 0;
    for (const Document& document : rows[r]) {
      const auto length = static_cast<size_t>(document.length());
      ++segment;
      for (size_t i = 0; i < length; ++i, ++at) {
        tokens[at] = document[i].id();
        positions[at] = static_cast<int32_t>(i);
        segments[at] = segment;
        if (K > 0) token_types[at] = document[i].second() ? 1 : 0;
        if (i + 1 < length) targets[at] = document[i + 1].label();
        batch.trained_tokens += targets[at] != kIgnore;
      }
      batch.real_tokens += document.length();
      const std::span<const float> taught = examples_.classes(document.example);
      std::copy(taught.begin(), taught.end(), classes.begin() + static_cast<std::ptrdiff_t>(r) * K);
      batch.trained_tokens += !taught.empty();
      preferences[r] = static_cast<int32_t>(examples_.preference(document.example));
      batch.sources[r] += (batch.sources[r].empty() ? "" : ", ") + examples_.source(document.example);
      if (options_.mismatched && r % 2 == 1) batch.sources[r] += " with another's reply";
    }
  }
  examples_.check();
  return batch;
}

Batch BatchesAhead::at(int64_t step) {
  Batch batch = coming_step_ == step && coming_.valid() ? coming_.get() : batches_.at(step);
  coming_step_ = step + 1;
  coming_ = std::async(std::launch::async, [this, next = step + 1] { return batches_.at(next); });
  return batch;
}

double Batches::use() const {
  int64_t real = 0, positions = 0;
  std::optional<Window> window;
  for (int64_t step = 0; step < steps_per_epoch(); ++step) {
    if (!window || step == window->first + window->steps) window = window_of(step);
    const std::vector<RowOfBatch> rows = laid_out(rows_of_step(step, window));
    for (const RowOfBatch& row : rows)
      for (const Document& document : row) real += document.length();
    positions += padded_length(rows) * static_cast<int64_t>(rows.size());
  }
  return static_cast<double>(real) / static_cast<double>(std::max<int64_t>(positions, 1));
}

}  // namespace fettle
