// Tests every table row of the row readers with example rows (example_rows.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/dataset.h"
#include "data/formats.h"
#include "data_fixtures.h"
#include "example_rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

struct EveryRowReader : ::testing::TestWithParam<RowReader> {
  const RowReader& reader = GetParam();
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;

  EveryRowReader() {
    spec.rows = reader.kind;
    spec.template_name = "none";
    spec.dataset_dir = folder.path();
    spec.cache = "off";
    if (reader.labelled()) spec.labels = LabelSet{.problem = Problem::kSingleLabel, .id2label = {"a", "b", "c"}};
  }
  Examples load(const std::string& entry = "") {
    std::string lines;
    for (int i = 0; i < 4; ++i) lines += example_row(reader.kind, i).dump() + "\n";
    folder.write("rows.jsonl", lines);
    folder.write("dataset_info.json", R"({"mine": {"file_name": "rows.jsonl")" + entry + "}}");
    spec.sets = {"mine"};
    return load_datasets(spec, tokenizer, 0).train;
  }
};

TEST(RowReaders, AreInOrderAndNamedOnce) {
  std::set<std::string_view> names;
  for (const RowReader& reader : row_readers()) {
    EXPECT_EQ(row_reader(reader.kind).name, reader.name);
    EXPECT_TRUE(names.insert(reader.name).second) << reader.name;
  }
}

TEST_P(EveryRowReader, GivesTheStatedNumberOfExamples) {
  EXPECT_EQ(static_cast<int64_t>(load().size()), 4 * reader.examples_per_row);
}

TEST_P(EveryRowReader, RecognisesOnlyItsOwnRows) {
  if (reader.has_columns == nullptr) return;
  for (const RowReader& other : row_readers())
    EXPECT_EQ(
        reader.has_columns(ordered_json(example_row(other.kind, 1)), {}),
        other.kind == reader.kind || (reader.kind == RowKind::kRatedReplies && other.kind == RowKind::kPreferencePairs))
        << other.name << "; a pair is also two rated replies";
}

TEST_P(EveryRowReader, TakesSetsOfPreferencePairsIfItIsRanked) {
  if (reader.ranked)
    EXPECT_EQ(static_cast<int64_t>(load(R"(, "ranking": true)").size()), 4 * reader.examples_per_row);
  else
    EXPECT_THROW(load(R"(, "ranking": true)"), UserError);
}

TEST_P(EveryRowReader, RefusesConversationsUnlessItStatesThem) {
  if (reader.labelled()) return;
  const ordered_json row{
      {"messages", {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}}},
      {"rejected_response", "b"},
      {"kto_tag", true}};
  if (reader.conversations)
    EXPECT_EQ(reader.read(row, {}).kind, Sample::Kind::kChat);
  else
    EXPECT_THROW(reader.read(row, {}), BadRow);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryRowReader, testing::ValuesIn(row_readers().begin(), row_readers().end()),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace fettle
