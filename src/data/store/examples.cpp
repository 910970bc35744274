#include "data/store/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/files/cache.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

std::vector<std::string> source_names(const std::vector<Example>& examples) {
  std::vector<std::string> sources;
  for (const Example& example : examples) sources.push_back(example.source);
  return sources;
}

}  // namespace

Examples::Examples(const std::vector<Example>& examples) : Examples(TokenStore::of(examples), source_names(examples)) {}

Examples::Examples(std::shared_ptr<const TokenStore> store, std::vector<std::string> files)
    : parts_{{0, std::move(store), std::make_shared<const std::vector<std::string>>(std::move(files))}} {}

int64_t Examples::stored() const {
  return parts_.empty() ? 0 : parts_.back().first + parts_.back().store->size();
}

size_t Examples::size() const {
  return chosen_ ? order_.size() : static_cast<size_t>(stored());
}

Examples::Place Examples::place(int64_t i) const {
  const int64_t row = chosen_ ? order_[static_cast<size_t>(i)] : i;
  const auto above = std::upper_bound(parts_.begin(), parts_.end(), row,
                                      [](int64_t wanted, const Part& part) { return wanted < part.first; });
  const Part& part = *(above - 1);
  return {part, row - part.first};
}

std::span<const Token> Examples::tokens(int64_t i) const {
  const Place at = place(i);
  return at.part.store->tokens(at.row);
}

int64_t Examples::trained_tokens(int64_t i) const {
  const Place at = place(i);
  return at.part.store->row(at.row).trained;
}

Preference Examples::preference(int64_t i) const {
  const Place at = place(i);
  return static_cast<Preference>(at.part.store->row(at.row).preference);
}

std::span<const float> Examples::classes(int64_t i) const {
  const Place at = place(i);
  const std::span<const float> stored = at.part.store->classes(at.row);
  return !stored.empty() && std::isnan(stored[0]) ? std::span<const float>() : stored;
}

int64_t Examples::classes_per_row() const {
  return parts_.empty() ? 0 : parts_.front().store->classes_per_row();
}

std::span<const float> Examples::weights(int64_t i) const {
  const Place at = place(i);
  return at.part.store->weights(at.row);
}

bool Examples::weighted() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.store->weighted(); });
}

uint64_t Examples::digest(int64_t i) const {
  const Place at = place(i);
  return at.part.store->row(at.row).digest;
}

std::string Examples::digest() const {
  ContentKey key;
  std::vector<uint64_t> digests;
  const auto count = static_cast<int64_t>(size());
  for (int64_t i = 0; i < count; ++i) {
    digests.push_back(digest(i));
    if (digests.size() < 4096 && i + 1 < count) continue;
    key.add({reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(uint64_t)});
    digests.clear();
  }
  return key.text();
}

std::string Examples::source(int64_t i) const {
  const Place at = place(i);
  const StoredRow& row = at.part.store->row(at.row);
  const std::string& file = (*at.part.files)[row.file];
  return row.line == 0 ? file : row_place(file, row.line);
}

std::vector<int64_t> Examples::row_numbers() const {
  const auto continues = [](const Part& part, int64_t i) { return i > 0 && part.store->row(i).continues; };
  bool any = false;
  for (const Part& part : parts_)
    for (int64_t i = 0; !any && i < part.store->size(); ++i) any = continues(part, i);
  if (!any) return {};
  // For each stored example: the stored example with which its row begins.
  std::vector<int64_t> begins;
  for (const Part& part : parts_)
    for (int64_t i = 0; i < part.store->size(); ++i)
      begins.push_back(continues(part, i) ? begins.back() : part.first + i);
  std::vector<int64_t> numbers(begins.size(), -1), out;
  int64_t count = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(size()); ++i) {
    const auto stored = static_cast<size_t>(chosen_ ? order_[static_cast<size_t>(i)] : i);
    int64_t& number = numbers[static_cast<size_t>(begins[stored])];
    if (number < 0) number = count++;
    out.push_back(number);
  }
  return out;
}

Example Examples::operator[](int64_t i) const {
  Example example{.source = source(i), .preference = preference(i)};
  for (const Token token : tokens(i)) {
    example.input_ids.push_back(token.id());
    example.labels.push_back(token.label());
    if (token.second()) example.second_text.resize(example.input_ids.size(), 0), example.second_text.back() = 1;
  }
  if (!example.second_text.empty()) example.second_text.resize(example.input_ids.size(), 0);
  const std::span<const float> classes = this->classes(i);
  example.classes.assign(classes.begin(), classes.end());
  const std::span<const float> weights = this->weights(i);
  if (std::ranges::any_of(weights, [](float weight) { return weight != 1; }))
    example.weights.assign(weights.begin(), weights.end());
  return example;
}

void Examples::check() const {
  for (const Part& part : parts_) part.store->check();
}

void Examples::append(const Examples& more) {
  const int64_t before = stored();
  if ((more.chosen_ || chosen_) && !chosen_) {
    order_.resize(size());
    std::iota(order_.begin(), order_.end(), 0);
    chosen_ = true;
  }
  if (chosen_) {
    for (int64_t i = 0; i < static_cast<int64_t>(more.size()); ++i)
      order_.push_back(before + (more.chosen_ ? more.order_[static_cast<size_t>(i)] : i));
  }
  for (Part part : more.parts_) {
    part.first += before;
    parts_.push_back(std::move(part));
  }
}

Examples Examples::select(const std::vector<int64_t>& rows) const {
  Examples out;
  out.parts_ = parts_;
  out.chosen_ = true;
  out.order_ = rows;
  if (chosen_)
    for (int64_t& row : out.order_) row = order_[static_cast<size_t>(row)];
  return out;
}

}  // namespace fettle
