#include "data/batches.h"

#include <algorithm>
#include <numeric>

#include "data/order.h"
#include "data/packing.h"

namespace fettle {
namespace {

// Streams of the seed: epochs use their number for rows, so the others start far above.
constexpr uint64_t kPackStream = uint64_t{1} << 60;
constexpr uint64_t kWindowStream = uint64_t{1} << 61;
constexpr int64_t kLargestWindow = 32;

std::vector<int64_t> default_lengths(int64_t max_length) {
  std::vector<int64_t> lengths = {(max_length + 7) / 8 * 8};
  while (lengths.back() / 2 >= 64) lengths.push_back((lengths.back() / 2 + 7) / 8 * 8);
  return lengths;
}

}  // namespace

Batches::Batches(const std::vector<Example>& examples, BatchOptions options)
    : examples_(examples), options_(std::move(options)) {
  internal_check(options_.rows > 0 && options_.micro_batches > 0 && options_.max_length > 0,
                 "Batches: rows {}, micro_batches {}, max_length {}", options_.rows, options_.micro_batches,
                 options_.max_length);
  if (examples_.empty()) throw UserError("the data set has no rows that can be trained; look at it with `fettle data`");
  if (std::none_of(examples_.begin(), examples_.end(), [](const Example& e) { return e.trained_tokens() > 0; }))
    throw UserError("none of the {} rows has a trained token; look at them with `fettle data`", examples_.size());
  if (options_.lengths.empty()) options_.lengths = default_lengths(options_.max_length);
  std::sort(options_.lengths.begin(), options_.lengths.end());
  for (const Example& example : examples_) {
    internal_check(example.input_ids.size() == example.labels.size(), "Batches: {}: {} ids, {} labels", example.source,
                   example.input_ids.size(), example.labels.size());
    if (example.length() > options_.lengths.back())
      throw UserError("{}: a row of {} tokens does not fit the longest batch length {}; raise cutoff_len",
                      example.source, example.length(), options_.lengths.back());
  }
  if (options_.packing) {
    pack();
  } else {
    // Lengths that no row needs are never made.
    int64_t longest = 0;
    for (const Example& example : examples_) longest = std::max(longest, example.length());
    while (options_.lengths.size() > 1 && options_.lengths[options_.lengths.size() - 2] >= longest)
      options_.lengths.pop_back();
    row_examples_.resize(examples_.size());
    row_starts_.resize(examples_.size() + 1);
    std::iota(row_examples_.begin(), row_examples_.end(), 0);
    std::iota(row_starts_.begin(), row_starts_.end(), 0);
  }
}

// The rows are made once, so every epoch has as many; the epochs shuffle them.
void Batches::pack() {
  const auto count = static_cast<int64_t>(examples_.size());
  std::vector<int64_t> order(examples_.size()), lengths(examples_.size());
  for (int64_t i = 0; i < count; ++i) {
    order[i] = options_.shuffle ? permuted_index(i, count, options_.seed, kPackStream) : i;
    lengths[i] = examples_[order[i]].length();
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
  return static_cast<int64_t>(row_starts_.size()) - 1;
}

int64_t Batches::steps_per_epoch() const {
  const int64_t step_rows = options_.micro_batches * options_.rows;
  return (rows() + step_rows - 1) / step_rows;
}

int64_t Batches::examples() const {
  return static_cast<int64_t>(examples_.size());
}

const std::vector<int64_t>& Batches::lengths() const {
  return options_.lengths;
}

std::span<const int64_t> Batches::row(int64_t index) const {
  return std::span(row_examples_).subspan(row_starts_[index], row_starts_[index + 1] - row_starts_[index]);
}

int64_t Batches::row_length(int64_t index) const {
  int64_t length = 0;
  for (int64_t example : row(index)) length += examples_[example].length();
  return length;
}

int64_t Batches::padded_length(std::span<const int64_t> rows) const {
  int64_t longest = 0;
  for (int64_t row : rows) longest = std::max(longest, row_length(row));
  return *std::lower_bound(options_.lengths.begin(), options_.lengths.end(), longest);
}

std::vector<int64_t> Batches::rows_of_step(int64_t step) const {
  const int64_t step_rows = options_.micro_batches * options_.rows;
  const int64_t epoch = step / steps_per_epoch(), in_epoch = step % steps_per_epoch();
  auto row_at = [&](int64_t i) {
    return options_.shuffle ? permuted_index(i, rows(), options_.seed, static_cast<uint64_t>(epoch)) : i;
  };
  const int64_t full_steps = rows() / step_rows;
  std::vector<int64_t> chosen;
  // The rows of a few steps, sorted by length, make as many steps, whose order is shuffled again. An epoch has at
  // least four such windows, so small data sets do not give the same steps every time.
  const int64_t window = std::clamp<int64_t>(full_steps / 4, 1, kLargestWindow);
  const bool grouped = options_.shuffle && options_.like_length && !options_.packing && window > 1;
  if (!grouped || in_epoch >= full_steps) {
    const int64_t end = std::min(rows(), (in_epoch + 1) * step_rows);
    for (int64_t i = in_epoch * step_rows; i < end; ++i) chosen.push_back(row_at(i));
    return chosen;
  }
  const int64_t first_step = in_epoch / window * window;
  const int64_t steps = std::min(window, full_steps - first_step);
  for (int64_t i = first_step * step_rows; i < (first_step + steps) * step_rows; ++i) chosen.push_back(row_at(i));
  std::stable_sort(chosen.begin(), chosen.end(), [&](int64_t a, int64_t b) { return row_length(a) < row_length(b); });
  const uint64_t stream = mix_bits(kWindowStream + static_cast<uint64_t>(epoch), static_cast<uint64_t>(first_step));
  const int64_t place = permuted_index(in_epoch - first_step, steps, options_.seed, stream);
  return {chosen.begin() + place * step_rows, chosen.begin() + (place + 1) * step_rows};
}

Batch Batches::at(int64_t step) const {
  internal_check(step >= 0, "Batches::at({})", step);
  const std::vector<int64_t> rows = rows_of_step(step);
  const int64_t T = padded_length(rows);
  const Shape shape{DType::kI32, {options_.micro_batches, options_.rows, T}};
  Batch batch{.tokens = HostArray(shape),
              .targets = HostArray(shape),
              .positions = HostArray::zeros(shape),
              .segments = HostArray::zeros(shape),
              .sources = std::vector<std::string>(options_.micro_batches * options_.rows)};
  auto tokens = batch.tokens.as<int32_t>(), targets = batch.targets.as<int32_t>();
  auto positions = batch.positions.as<int32_t>(), segments = batch.segments.as<int32_t>();
  std::fill(tokens.begin(), tokens.end(), options_.pad_id);
  std::fill(targets.begin(), targets.end(), kIgnore);
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t at = static_cast<int64_t>(r) * T;
    int32_t segment = 0;
    for (int64_t index : row(rows[r])) {
      const Example& example = examples_[index];
      ++segment;
      for (int64_t i = 0; i < example.length(); ++i, ++at) {
        tokens[at] = example.input_ids[i];
        positions[at] = static_cast<int32_t>(i);
        segments[at] = segment;
        if (i + 1 < example.length()) targets[at] = example.labels[i + 1];
      }
      batch.real_tokens += example.length();
      batch.trained_tokens += example.trained_tokens();
      batch.sources[r] += (batch.sources[r].empty() ? "" : ", ") + example.source;
    }
  }
  return batch;
}

double Batches::use() const {
  int64_t real = 0, positions = 0;
  for (int64_t step = 0; step < steps_per_epoch(); ++step) {
    const std::vector<int64_t> rows = rows_of_step(step);
    for (int64_t row : rows) real += row_length(row);
    positions += padded_length(rows) * static_cast<int64_t>(rows.size());
  }
  return static_cast<double>(real) / static_cast<double>(std::max<int64_t>(positions, 1));
}

}  // namespace fettle
