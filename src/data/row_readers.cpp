#include "data/row_readers.h"

#include <array>

#include "base/error.h"
#include "data/preferences.h"
#include "data/read/columns.h"

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

// Requires that a row that was read as a text is nothing else: a reply beside its prompt, or a message of a tree.
void want_text_alone(const ordered_json& row, const DataSource& source) {
  if (!source.formatting.empty()) return;
  if (has_column(row, "text")) {
    if (row.contains("role") && row.contains("parent_id"))
      bad_row(
          "the columns text, role and parent_id belong to a message tree, so the text is only one message; use a "
          "flattened copy of the data set, such as openassistant-guanaco for oasst1");
    return;
  }
  for (const char* beside : {"question", "prompt", "query", "input", "reasoning_content"}) {
    if (!has_content(row, beside)) continue;
    const bool thinks = has_content(row, "reasoning_content");
    bad_row(
        "the row has '{}' beside 'content', so 'content' may be a reply and no plain text; name the columns in an "
        "entry of dataset_info.json or of `dataset`: \"columns\": {{\"prompt\": \"{}\", \"response\": "
        "\"content\"}}{}; for plain texts, write \"formatting\": \"text\", \"columns\": {{\"text\": \"content\"}}",
        beside, beside == std::string_view("reasoning_content") ? "..." : beside,
        thinks ? " (this leaves out 'reasoning_content'; to train the thoughts, write the rows as `messages` with "
                 "replies that have the field reasoning_content)"
               : "");
  }
}

Sample read_conversation_or_text(const ordered_json& row, const DataSource& source) {
  Sample sample = read_unrated(row, source);
  if (sample.kind == Sample::Kind::kText) want_text_alone(row, source);
  return sample;
}

constexpr std::array kReaders{
    RowReader{.kind = RowKind::kTexts, .name = "plain texts", .read = read_plain_text, .conversations = false},
    RowReader{.kind = RowKind::kConversations, .name = "conversations and texts", .read = read_conversation_or_text},
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
