#include "data/row_readers.h"

#include <array>

#include "base/error.h"
#include "data/preferences.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Reads a text. Its part beyond cutoff_len becomes further examples.
Sample read_plain_text(const ordered_json& row, const DataSource& source) {
  Sample sample = read_unrated(row, source);
  if (sample.kind == Sample::Kind::kChat)
    throw BadRow(
        "this row is a conversation, but the stage reads plain texts (a column `text` or `content`); set stage: sft to "
        "train on conversations");
  sample.continues = true;
  return sample;
}

constexpr std::array kReaders{
    RowReader{.kind = RowKind::kTexts, .name = "plain texts", .read = read_plain_text, .conversations = false},
    RowReader{.kind = RowKind::kConversations, .name = "conversations and texts", .read = read_unrated},
    RowReader{.kind = RowKind::kLabelled, .name = "texts with labels", .read = nullptr},
    RowReader{.kind = RowKind::kPreferencePairs,
              .name = "preference pairs",
              .read = read_pair,
              .has_columns = has_pair_columns,
              .examples_per_row = 2,
              .ranked = true},
    RowReader{.kind = RowKind::kRatedReplies,
              .name = "rated replies",
              .read = read_rated,
              .has_columns = has_rating_columns,
              .ranked = true},
};

}  // namespace

const RowReader& row_reader(RowKind kind) {
  const RowReader& reader = kReaders.at(static_cast<size_t>(kind));
  internal_check(reader.kind == kind, "the table of row readers is out of order at {}", reader.name);
  return reader;
}

std::span<const RowReader> row_readers() {
  return kReaders;
}

}  // namespace fettle
