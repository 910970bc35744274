#include "data/batches/fill_batch.h"

#include <algorithm>
#include <string>

namespace fettle {
namespace {

// Returns the arrays of a step without any document: all positions are padding. `documents` is the number of documents
// that they can have, `classes` the number of classes of a labelled row (0: rows have no labels).
Batch empty_batch(const BatchShape& laid, int64_t documents, int64_t classes, int32_t pad_id) {
  const Shape shape{DType::kI32, {laid.micro_batches, laid.lines, laid.length}};
  Batch batch{.shape = laid,
              .tokens = HostArray(shape),
              .targets = HostArray(shape),
              .positions = HostArray::zeros(shape),
              .segments = HostArray::zeros(shape),
              .sequence_numbers = HostArray::zeros(shape),
              .preferences = HostArray::zeros({DType::kI32, {documents}}),
              .sources = std::vector<std::string>(static_cast<size_t>(documents))};
  batch.shape.sequences = documents;
  if (laid.branched) batch.prompts = HostArray::zeros(shape);
  if (laid.weighted) batch.weights = HostArray::zeros(shape.with_dtype(DType::kF32));
  if (classes > 0) {
    batch.token_types = HostArray::zeros(shape);
    batch.classes = HostArray::zeros({DType::kF32, {documents, classes}});
  }
  std::ranges::fill(batch.tokens.as<int32_t>(), pad_id);
  std::ranges::fill(batch.targets.as<int32_t>(), kIgnore);
  return batch;
}

// Sets Batch::segments, which numbers the documents of each line in their order, and Batch::prompts, if there is one.
// `prompt_of` has the number of each document's prompt, by the document's number.
void number_segments(Batch& batch, const std::vector<int32_t>& prompt_of) {
  const std::span<const int32_t> rows = batch.sequence_numbers.as<int32_t>();
  const std::span<int32_t> segments = batch.segments.as<int32_t>();
  const std::span<int32_t> prompts = batch.shape.branched ? batch.prompts.as<int32_t>() : std::span<int32_t>();
  const auto length = static_cast<size_t>(batch.shape.length);
  std::vector<int32_t> segment_of(prompt_of.size());
  for (size_t line = 0; line < rows.size(); line += length) {
    int32_t segment = 0;
    for (size_t t = line; t < line + length; ++t) {
      if (rows[t] == 0) continue;
      if (t == line || rows[t] != rows[t - 1]) ++segment;
      segments[t] = segment;
      segment_of[static_cast<size_t>(rows[t])] = segment;
      if (!prompts.empty()) prompts[t] = segment_of[static_cast<size_t>(prompt_of[static_cast<size_t>(rows[t])])];
    }
  }
}

}  // namespace

Batch fill_batch(const Examples& examples, const std::vector<Sequence>& sequences, const LaidStep& laid,
                 const std::vector<bool>& lines, int32_t pad_id) {
  const auto& [shape, layout] = laid;
  int64_t documents = 0;
  for (const Sequence& sequence : sequences) documents += static_cast<int64_t>(sequence.size());
  const int64_t B = shape.lines, T = shape.length, S = std::max(shape.sequences, documents);
  const int64_t K = examples.classes_per_row();
  Batch batch = empty_batch(shape, S, K, pad_id);
  batch.used = layout.used;
  const auto tokens = batch.tokens.as<int32_t>(), targets = batch.targets.as<int32_t>();
  const auto positions = batch.positions.as<int32_t>(), rows = batch.sequence_numbers.as<int32_t>();
  const auto preferences = batch.preferences.as<int32_t>();
  const auto token_types = K > 0 ? batch.token_types.as<int32_t>() : std::span<int32_t>();
  const auto classes = K > 0 ? batch.classes.as<float>() : std::span<float>();
  const auto weights = shape.weighted ? batch.weights.as<float>() : std::span<float>();
  int64_t row = 0;
  std::vector<int32_t> prompt_of(static_cast<size_t>(S) + 1);  // by the document's number: its prompt's number
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Place& place = layout.places[s];
    const auto prompt = static_cast<int32_t>(row + 1);
    const int64_t after_prompt = batch.shape.branched ? sequences[s][0].length() : 0;
    int64_t at = (place.micro_batch * B + place.line) * T + place.start;
    for (const Document& document : sequences[s]) {
      const int64_t number = row++, before = number + 1 == prompt ? 0 : after_prompt;
      prompt_of[static_cast<size_t>(number) + 1] = prompt;
      if (document.skipped) continue;
      const auto length = static_cast<size_t>(document.length());
      for (size_t i = 0; i < length; ++i, ++at) {
        batch.trained_tokens += i + 1 < length && document[i + 1].label() != kIgnore;
        if (!lines[static_cast<size_t>(place.line)]) continue;
        tokens[at] = document[i].id();
        positions[at] = static_cast<int32_t>(before + static_cast<int64_t>(i));
        rows[at] = static_cast<int32_t>(number + 1);
        if (K > 0) token_types[at] = document[i].second() ? 1 : 0;
        if (i + 1 < length) targets[at] = document[i + 1].label();
        if (!weights.empty() && targets[at] != kIgnore)
          weights[at] = document.weights.empty() ? 1 : document.weights[i + 1];
      }
      batch.real_tokens += document.length();
      const std::span<const float> taught = examples.classes(document.example);
      std::copy(taught.begin(), taught.end(), classes.begin() + static_cast<std::ptrdiff_t>(number) * K);
      batch.trained_tokens += !taught.empty();
      preferences[number] = static_cast<int32_t>(examples.preference(document.example));
      batch.sources[number] = examples.source(document.example);
      if (document.other_reply) batch.sources[number] += kOtherReply;
    }
  }
  number_segments(batch, prompt_of);
  return batch;
}

}  // namespace fettle
