#include "data/token_rows.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::vector<int32_t> integers(const ordered_json& row, const char* column) {
  const ordered_json* list = find_column(row, column);
  if (!list || !list->is_array()) bad_row("'{}' must be an array of integers", column);
  std::vector<int32_t> out;
  for (const auto& value : *list) {
    if (!value.is_number_integer() || value.get<int64_t>() > INT32_MAX || value.get<int64_t>() < INT32_MIN)
      bad_row("'{}' must hold 32-bit integers, but one is {}", column, value.dump().substr(0, 40));
    out.push_back(value.get<int32_t>());
  }
  return out;
}

void want_one_each(size_t found, const char* column, size_t count) {
  if (found != count)
    bad_row("found {} input_ids but {} numbers in {}; wanted one number for each id", count, found, column);
}

// Returns a column that has one integer for each of `count` tokens.
std::vector<int32_t> one_each(const ordered_json& row, const char* column, size_t count) {
  std::vector<int32_t> out = integers(row, column);
  want_one_each(out.size(), column, count);
  return out;
}

// Returns which tokens the mask trains. Without the mask, these are all tokens.
std::vector<bool> trained_by_mask(const ordered_json& row, const char* column, size_t count) {
  const ordered_json* list = find_column(row, column);
  if (!list) return std::vector<bool>(count, true);
  if (!list->is_array()) bad_row("'{}' must be an array of 0 and 1", column);
  std::vector<bool> out;
  for (const auto& value : *list) {
    if (!value.is_boolean() && value != 0 && value != 1)
      bad_row("'{}' must hold only 0 and 1, but one is {}", column, value.dump().substr(0, 40));
    out.push_back(value == true || value == 1);
  }
  want_one_each(out.size(), column, count);
  return out;
}

// Returns the range of tokens between the padding at both ends.
std::pair<size_t, size_t> without_padding(const ordered_json& row, size_t count) {
  if (!find_column(row, "attention_mask")) return {0, count};
  const std::vector<int32_t> mask = one_each(row, "attention_mask", count);
  size_t first = 0, last = count;
  while (first < last && mask[first] == 0) ++first;
  while (last > first && mask[last - 1] == 0) --last;
  if (first == last ||
      std::find(mask.begin() + static_cast<std::ptrdiff_t>(first), mask.begin() + static_cast<std::ptrdiff_t>(last),
                0) != mask.begin() + static_cast<std::ptrdiff_t>(last))
    bad_row("attention_mask may have zeros only at its ends");
  return {first, last};
}

// Returns where the documents of a packed row begin, without the first one.
std::vector<size_t> later_documents(const ordered_json& row, size_t count) {
  std::vector<size_t> starts;
  if (find_column(row, "seq_lengths")) {
    size_t at = 0;
    for (const int32_t length : integers(row, "seq_lengths")) {
      if (length <= 0) bad_row("'seq_lengths' must hold numbers above 0, but one is {}", length);
      if (at > 0) starts.push_back(at);
      at += static_cast<size_t>(length);
    }
    if (at != count) bad_row("the sum of 'seq_lengths' is {}, but the row has {} input_ids", at, count);
  } else if (find_column(row, "position_ids")) {
    const std::vector<int32_t> positions = one_each(row, "position_ids", count);
    for (size_t i = 1; i < count; ++i)
      if (positions[i] == 0) starts.push_back(i);
  }
  return starts;
}

}  // namespace

Sample read_tokens(const ordered_json& row) {
  Sample sample{.kind = Sample::Kind::kTokens, .format = "tokens"};
  const std::vector<int32_t> ids = integers(row, "input_ids");
  const size_t count = ids.size();
  if (ids.empty()) bad_row("'input_ids' is empty");
  for (const int32_t id : ids)
    if (id < 0 || id >= 1 << 30) bad_row("'input_ids' holds {}, which is not a token id", id);
  std::vector<int32_t> labels = row.contains("labels") ? integers(row, "labels") : ids;
  if (labels.size() != count)
    bad_row("found {} input_ids but {} labels; wanted one label for each id", count, labels.size());
  for (size_t i = 0; i < count; ++i)
    if (labels[i] != kIgnore && labels[i] != ids[i])
      bad_row("label {} is {}, but its token is {}; a label must be its token or {}", i + 1, labels[i], ids[i],
              kIgnore);
  const std::vector<bool> completion = trained_by_mask(row, "completion_mask", count);
  for (const char* column : {"assistant_masks", "loss_mask"}) {
    const std::vector<bool> trained = trained_by_mask(row, column, count);
    for (size_t i = 0; i < count; ++i)
      if (!trained[i]) labels[i] = kIgnore;
  }
  const auto [first, last] = without_padding(row, count);
  for (size_t i = first; i < last; ++i) {
    sample.input_ids.push_back(ids[i]);
    sample.labels.push_back(labels[i]);
    sample.of_prompt.push_back(!completion[i]);
  }
  for (const size_t start : later_documents(row, count))
    if (start > first && start < last) sample.documents.push_back(start - first);
  return sample;
}

}  // namespace fettle
