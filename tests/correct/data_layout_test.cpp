// Tests the layout of sequences in lines: no row is divided, few positions stay empty, and the layout of a step does
// not depend on the steps that were laid out before.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "data/batches/batches.h"

namespace fettle {
namespace {

// Returns rows of 20 to 700 tokens with a median of 110, as in chat data sets. Token t of row i is 1000 i + t.
std::vector<Example> uneven_rows(int64_t count) {
  std::vector<Example> rows;
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0;  // sum of 12 uniform numbers: about normal, with variance 1
    for (uint64_t k = 0; k < 12; ++k) sum += uniform(static_cast<uint64_t>(i), k);
    const auto length = std::clamp<int64_t>(std::llround(110 * std::exp(0.85 * (sum - 6))), 20, 700);
    Example row{.source = "rows.jsonl:" + std::to_string(i + 1)};
    for (int64_t t = 0; t < length; ++t) row.input_ids.push_back(static_cast<int32_t>(1000 * i + t));
    row.labels = row.input_ids;
    row.labels[0] = kIgnore;
    rows.push_back(std::move(row));
  }
  return rows;
}

struct Found {
  std::vector<int32_t> tokens;
  int64_t micro_batch = 0, line = 0;
};

// Returns the rows of a batch by their numbers. Checks that the tokens of each row are adjacent.
std::map<int32_t, Found> rows_in(const Batch& batch) {
  std::map<int32_t, Found> out;
  const auto tokens = batch.tokens.as<int32_t>(), rows = batch.sequence_numbers.as<int32_t>();
  const auto positions = batch.positions.as<int32_t>(), segments = batch.segments.as<int32_t>();
  const auto targets = batch.targets.as<int32_t>();
  const int64_t T = batch.shape.length, lines = batch.shape.micro_batches * batch.shape.lines;
  for (int64_t line = 0; line < lines; ++line) {
    std::map<int32_t, int32_t> numbers;  // the row of each segment
    for (int64_t t = 0; t < T; ++t) {
      const auto at = static_cast<size_t>(line * T + t);
      EXPECT_EQ(rows[at] == 0, segments[at] == 0);
      if (rows[at] == 0) {
        EXPECT_EQ(targets[at], kIgnore);
        continue;
      }
      EXPECT_EQ(numbers.emplace(segments[at], rows[at]).first->second, rows[at]) << "one row in a segment";
      Found& found = out[rows[at]];
      if (positions[at] == 0) {
        EXPECT_TRUE(found.tokens.empty()) << "row " << rows[at] << " lies twice";
        found.micro_batch = line / batch.shape.lines;
        found.line = line;
      } else {
        EXPECT_EQ(rows[at], rows[at - 1]);
        EXPECT_EQ(found.line, line);
      }
      EXPECT_EQ(positions[at], static_cast<int32_t>(found.tokens.size()));
      found.tokens.push_back(tokens[at]);
    }
    EXPECT_TRUE(numbers.empty() || numbers.rbegin()->first == static_cast<int32_t>(numbers.size()));
  }
  for (const auto& [number, found] : out) EXPECT_LT(found.micro_batch, batch.used);
  return out;
}

BatchSpec spec_of(Lines lines, int64_t micro_batches = 1, int64_t sequences = 8) {
  return {.micro_batches = micro_batches, .sequences = sequences, .max_length = 2048, .lines = lines};
}

TEST(Layout, FillsNineTenthsOfThePositions) {
  for (const int64_t count : {91, 1000}) {
    const std::vector<Example> rows = uneven_rows(count);
    const Batches padded(rows, spec_of(Lines::kOwn)), laid(rows, spec_of(Lines::kRegrouped));
    EXPECT_LE(laid.shapes().size(), kMostShapes);
    EXPECT_GE(laid.use(), count == 91 ? 0.9 : 0.88) << count;
    EXPECT_LT(padded.use(), 0.7);
    std::printf("%d rows: %.3f of the positions hold tokens, padded %.3f; %s\n", static_cast<int>(count), laid.use(),
                padded.use(), format_batches(laid, "").c_str());
  }
}

TEST(Layout, KeepsTheRowsOfEachStepAndTheirNumbers) {
  std::vector<Example> rows = uneven_rows(203);
  for (const RowGrouping grouping : {RowGrouping::kNone, RowGrouping::kPairs, RowGrouping::kWithMismatched}) {
    BatchSpec spec = spec_of(Lines::kOwn, 3, 6);
    spec.grouping = grouping;
    if (grouping == RowGrouping::kPairs) rows.pop_back();
    const Batches own(rows, spec);
    for (const Lines lines : {Lines::kShared, Lines::kRegrouped}) {
      spec.lines = lines;
      const Batches laid(rows, spec);
      ASSERT_EQ(laid.steps_per_epoch(), own.steps_per_epoch());
      EXPECT_LE(laid.shapes().size(), kMostShapes);
      for (int64_t step = 0; step < own.steps_per_epoch() + 2; ++step) {
        const Batch wanted = own.at(step), got = laid.at(step);
        EXPECT_EQ(got.sources, wanted.sources);
        EXPECT_EQ(got.real_tokens, wanted.real_tokens);
        EXPECT_EQ(got.trained_tokens, wanted.trained_tokens);
        EXPECT_EQ(std::ranges::count(laid.shapes(), got.shape), 1);
        const std::map<int32_t, Found> there = rows_in(wanted), here = rows_in(got);
        ASSERT_EQ(here.size(), there.size());
        for (const auto& [number, row] : there) {
          ASSERT_TRUE(here.contains(number));
          EXPECT_EQ(here.at(number).tokens, row.tokens);
          if (lines == Lines::kShared) {
            EXPECT_EQ(here.at(number).micro_batch, row.micro_batch);
          }
          if (grouping != RowGrouping::kNone && number % 2 == 0) {
            EXPECT_EQ(here.at(number).micro_batch, here.at(number - 1).micro_batch) << "both replies of a row";
          }
        }
      }
    }
  }
}

TEST(Layout, IsAPureFunctionOfTheStep) {
  const std::vector<Example> rows = uneven_rows(120);
  const Batches one(rows, spec_of(Lines::kRegrouped)), other(rows, spec_of(Lines::kRegrouped));
  for (int64_t step = 0; step < 20; ++step) one.at(step);
  for (const int64_t step : {33, 7, 14}) {
    const Batch a = one.at(step), b = other.at(step);
    EXPECT_EQ(a.shape, b.shape);
    for (const auto part :
         {&Batch::tokens, &Batch::targets, &Batch::positions, &Batch::segments, &Batch::sequence_numbers})
      EXPECT_TRUE(std::ranges::equal((a.*part).as<int32_t>(), (b.*part).as<int32_t>()));
  }
}

TEST(Layout, DividesLinesOverDevices) {
  BatchSpec spec = spec_of(Lines::kRegrouped, 2, 32);
  spec.shards = 8;
  spec.multiple = 24;
  const Batches laid(uneven_rows(400), spec);
  for (const BatchShape& shape : laid.shapes()) {
    EXPECT_EQ(shape.lines % 8, 0);
    EXPECT_EQ(shape.length % 24, 0);
    EXPECT_LE(shape.lines * shape.length, 32 * 1032) << "no more memory than padded rows";
    EXPECT_LE(shape.lines * shape.length, fullest_shape(spec).lines * fullest_shape(spec).length);
  }
}

// Devices along ep also share lines, but only if their number divides the number of lines.
TEST(Layout, DividesLinesOverDevicesOfExperts) {
  BatchSpec spec = spec_of(Lines::kRegrouped, 2, 16);
  spec.shards = 2;
  spec.ep = 4;
  const Batches even(uneven_rows(400), spec);
  for (const BatchShape& shape : even.shapes()) EXPECT_EQ(shape.lines % 8, 0);
  const auto per_device = [&](int64_t lines, int64_t length) {
    return positions_per_device({.lines = lines, .length = length}, spec);
  };
  EXPECT_EQ(per_device(16, 100), 200);
  EXPECT_EQ(per_device(12, 100), 600);
  EXPECT_EQ(layout_cost({.used = 1}, {.lines = 8, .length = 64}, spec),
            layout_cost({.used = 1}, {.lines = 2, .length = 64}, spec));
  spec.sequences = 12;
  const Batches uneven(uneven_rows(400), spec);
  for (const BatchShape& shape : uneven.shapes())
    EXPECT_LE(positions_per_device(shape, spec), positions_per_device(uneven.fullest(), spec));
}

TEST(Layout, TakesLittleTimeForLargeSteps) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < 8192; ++i) lengths.push_back(static_cast<int64_t>(20 + mix_bits(3, i) % 600));
  BatchSpec spec = spec_of(Lines::kRegrouped, 32, 256);
  const std::vector<BatchShape> shapes = choose_shapes({lengths}, spec, 620, 1024);
  const auto layout = lay_out(lengths, shapes.front(), spec);
  ASSERT_TRUE(layout);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_GT(static_cast<double>(tokens),
            0.98 * static_cast<double>(layout->used * shapes.front().lines * shapes.front().length));
}

TEST(Layout, LeavesOutSkippedRows) {
  const std::vector<Example> rows = uneven_rows(16);
  BatchSpec spec = spec_of(Lines::kRegrouped);
  spec.shuffle = false;
  spec.skip_rows = {"rows.jsonl:3"};
  const Batch batch = Batches(rows, spec).at(0);
  EXPECT_EQ(batch.sources[2], "");
  EXPECT_FALSE(rows_in(batch).contains(3));
  EXPECT_EQ(rows_in(batch).size(), 7u);
}

// A pipeline of 4 stages needs 3 turns more than it has micro-batches. Each turn costs as much as a micro-batch; a
// micro-batch that is not used costs nothing.
TEST(Layout, IdleStagesCostTime) {
  BatchSpec spec = spec_of(Lines::kRegrouped);
  const BatchShape shape{.micro_batches = 4, .lines = 8, .length = 64};
  const int64_t three = layout_cost({.used = 3}, shape, spec);
  EXPECT_GT(three, 0);
  spec.stages = 4;
  EXPECT_EQ(layout_cost({.used = 3}, shape, spec), 2 * three);
}

TEST(Layout, EveryShapeHoldsSomeStep) {
  const BatchSpec spec{.sequences = 4, .max_length = 128, .lines = Lines::kRegrouped};
  const std::vector<std::vector<int64_t>> steps{{96, 106, 96, 98}, {99, 95, 93, 96}, {95, 102}};
  for (const BatchShape& shape : choose_shapes(steps, spec, 106, 128))
    EXPECT_TRUE(std::ranges::any_of(steps, [&](const auto& step) { return lay_out(step, shape, spec).has_value(); }))
        << shape.lines << " x " << shape.length;
}

TEST(Layout, PlacesTheLongestFirst) {
  const BatchSpec spec{.sequences = 4, .lines = Lines::kRegrouped};
  const BatchShape shape{.micro_batches = 4, .lines = 1, .length = 10, .sequences = 4, .counted = true};
  const auto layout = lay_out({3, 6, 4, 7}, shape, spec);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->used, 2);
  EXPECT_EQ(layout->places, (std::vector<Place>{{0, 0, 7}, {1, 0, 0}, {1, 0, 6}, {0, 0, 0}}));
  EXPECT_FALSE(lay_out({3, 6, 11, 7}, shape, spec));
  EXPECT_FALSE(lay_out({6, 6, 6, 6, 6}, shape, spec)) << "five micro-batches";
}

}  // namespace
}  // namespace fettle
