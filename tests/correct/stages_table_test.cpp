// Tests that every row of the stage table is complete: the keys that it reads exist, its counts and losses have the
// shapes that their callers expect, and its metrics read all of its sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/keys.h"
#include "config/recipe.h"
#include "graph_run.h"
#include "stages/stages.h"

namespace fettle {
namespace {

class EveryStage : public testing::TestWithParam<const Stage*> {
 protected:
  const Stage& stage = *GetParam();
  bool reads(BatchPart part) const { return std::ranges::find(stage.batch, part) != stage.batch.end(); }
};

TEST_P(EveryStage, HasANameOfItsOwn) {
  EXPECT_EQ(&stage_named(stage.name, "recipe"), &stage);
  EXPECT_EQ(std::ranges::count(stages(), stage.name, [](const Stage* one) { return one->name; }), 1);
}

TEST_P(EveryStage, NamesKeysThatExist) {
  for (const std::string_view key : stage.keys) EXPECT_NE(find_key(key), nullptr) << key;
  for (const RefusedKey& refused : stage.refused) {
    EXPECT_NE(find_key(refused.key), nullptr) << refused.key;
    EXPECT_FALSE(refused.reason.empty());
    EXPECT_EQ(std::ranges::find(stage.keys, refused.key), stage.keys.end()) << refused.key << " is one of its own keys";
  }
}

TEST_P(EveryStage, ReadsWhatItsHeadNeeds) {
  for (const BatchPart part : {BatchPart::kTokens, BatchPart::kPositions, BatchPart::kSegments, BatchPart::kSequences})
    EXPECT_TRUE(reads(part));
  EXPECT_EQ(reads(BatchPart::kTargets), stage.head == Head::kTokens);
  EXPECT_EQ(reads(BatchPart::kClasses), stage.head == Head::kLabels);
  EXPECT_EQ(std::set<BatchPart>(stage.batch.begin(), stage.batch.end()).size(), stage.batch.size());
  if (stage.head == Head::kLabels) {
    EXPECT_TRUE(row_reader(stage.rows).labelled());
  }
  EXPECT_EQ(stage.grouping != RowGrouping::kNone,
            stage.rows == RowKind::kPreferencePairs || stage.rows == RowKind::kRatedReplies);
  EXPECT_EQ(stage.can_pack(), stage.head == Head::kTokens && stage.grouping == RowGrouping::kNone)
      << "Batches packs neither grouped rows nor rows with labels";
  EXPECT_TRUE(stage.can_pack() || !stage.packs);
}

// The batch has four sequences of three positions. The last two sequences are filler.
TEST_P(EveryStage, CountsFillerAsNothing) {
  GraphRun run;
  BatchInputs batch;
  batch.sequences = 4;
  batch[BatchPart::kTargets] = run.input(i32({4, 3}, {-100, 5, 6, -100, 7, 8, -100, -100, -100, -100, -100, -100}));
  batch[BatchPart::kSequences] = run.input(i32({4, 3}, {1, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0}));
  const Tensor counts = stage.counts(batch);
  const int64_t rows = 4 / stage.sequences_per_row();
  ASSERT_EQ(counts.dims(), (Dims{rows}));
  run.output("counts", counts);
  const std::vector<double> got = run.run().at("counts").elements;
  for (int64_t row = 0; row < rows; ++row) EXPECT_EQ(got[row] > 0, row < rows / 2) << row;
}

TEST_P(EveryStage, SaysWhatItsModelGives) {
  EXPECT_EQ(stage.output == Stage().output, stage.head == Head::kTokens);
  EXPECT_EQ(stage.model == Stage().model, stage.head == Head::kTokens);
}

TEST_P(EveryStage, MetricsReadTheirSums) {
  EXPECT_EQ(stage.metric_sums > 0, stage.metrics != nullptr);
  if (stage.metrics == nullptr) return;
  const KeyValues keys{Recipe()};
  const std::vector<float> some(static_cast<size_t>(stage.metric_sums), 2), none(some.size(), 0);
  EXPECT_FALSE(stage.metrics(keys, some).empty());
  for (const auto& [name, value] : stage.metrics(keys, some)) EXPECT_TRUE(std::isfinite(value)) << name;
  for (const auto& [name, value] : stage.metrics(keys, none)) EXPECT_TRUE(std::isfinite(value)) << name;
}

TEST_P(EveryStage, IsEvaluatedByAStageWithTheSameHead) {
  if (stage.measured_as == nullptr) return;
  EXPECT_EQ(stage.measured_as().head, stage.head);
  EXPECT_EQ(stage.measured_as().measured_as, nullptr);
  EXPECT_NE(row_reader(stage.rows).has_columns, nullptr) << "its rows must be recognised";
}

INSTANTIATE_TEST_SUITE_P(Stages, EveryStage, testing::ValuesIn(stages()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace fettle
