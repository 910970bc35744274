#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "data/batches/batches.h"
#include "data/batches/order.h"
#include "data/batches/packing.h"
#include "data/batches/prefetcher.h"

namespace fettle {
namespace {

// Returns example i with the tokens i*100, i*100+1, ...; the first `prompt` of its `length` tokens are not trained.
Example example(int32_t i, int64_t length, int64_t prompt = 0) {
  Example e;
  for (int32_t t = 0; t < length; ++t) {
    e.input_ids.push_back(i * 100 + t);
    e.labels.push_back(t < prompt ? kIgnore : i * 100 + t);
  }
  e.source = "rows.jsonl:" + std::to_string(i + 1);
  return e;
}

std::vector<int32_t> row(const HostArray& array, int64_t index) {
  const int64_t T = array.shape().dims[2];
  auto all = array.as<int32_t>();
  return {all.begin() + index * T, all.begin() + (index + 1) * T};
}

std::vector<std::string> sources_of_epoch(const Batches& batches, int64_t epoch) {
  std::vector<std::string> sources;
  for (int64_t s = 0; s < batches.steps_per_epoch(); ++s)
    for (const auto& source : batches.at(epoch * batches.steps_per_epoch() + s).sources)
      if (!source.empty()) sources.push_back(source);
  return sources;
}

TEST(SkippedRows, LeaveFillerInTheirPlaces) {
  const std::vector<Example> rows{example(1, 5), example(2, 6), example(3, 7), example(4, 8)};
  const BatchSpec spec{.sequences = 2, .max_length = 16, .shuffle = false};
  BatchSpec without = spec;
  without.skip_rows = {"rows.jsonl:3"};
  const Batches all(rows, spec, 9), some(rows, without, 9);
  EXPECT_EQ(some.identity().digest, all.identity().digest) << "a checkpoint of the run fits";
  EXPECT_EQ(some.steps_per_epoch(), 2);
  EXPECT_EQ(row(some.at(0).tokens, 0), row(all.at(0).tokens, 0));
  EXPECT_EQ(row(some.at(0).tokens, 1), std::vector<int32_t>(16, 9));
  EXPECT_EQ(row(some.at(0).targets, 1), std::vector<int32_t>(16, kIgnore));
  EXPECT_EQ(row(some.at(0).segments, 1), std::vector<int32_t>(16, 0));
  EXPECT_EQ(some.at(0).sources, (std::vector<std::string>{"rows.jsonl:2", ""}));
  EXPECT_EQ(some.at(0).trained_tokens, 4);
  EXPECT_EQ(some.at(0).real_tokens, 5);
  EXPECT_EQ(row(some.at(1).tokens, 0), row(all.at(1).tokens, 0));
}

TEST(SkippedRows, OfAPackedSequenceLeaveTheOthers) {
  const std::vector<Example> rows{example(1, 5), example(2, 6), example(3, 5)};
  BatchSpec spec{.sequences = 1, .max_length = 16, .packing = true, .shuffle = false};
  spec.skip_rows = {"rows.jsonl:3"};
  const Batch batch = Batches(rows, spec).at(0);
  EXPECT_EQ(batch.real_tokens, 10);
  EXPECT_EQ(batch.sources, (std::vector<std::string>{"rows.jsonl:2", "", "rows.jsonl:4"}));
}

// KTO's batches combine each prompt with the reply of another row. The reply of a skipped row must not be used.
TEST(SkippedRows, GiveNoReplyToOthers) {
  const std::vector<Example> rows{example(1, 6, 2), example(2, 6, 2), example(3, 6, 2)};
  BatchSpec spec{.sequences = 6, .max_length = 8, .grouping = RowGrouping::kWithMismatched, .shuffle = false};
  spec.skip_rows = {"rows.jsonl:3"};
  const Batch batch = Batches(rows, spec).at(0);
  EXPECT_EQ(row(batch.tokens, 1), (std::vector<int32_t>{100, 101, 302, 303, 304, 305, 0, 0}));
  EXPECT_EQ(row(batch.segments, 2), std::vector<int32_t>(8, 0));
  EXPECT_EQ(row(batch.segments, 3), std::vector<int32_t>(8, 0));
}

TEST(SkippedRows, MustBeThereAndLeaveSomething) {
  const std::vector<Example> rows{example(1, 5), example(2, 6)};
  const auto error = [&](const std::vector<std::string>& skipped) -> std::string {
    try {
      Batches(rows, {.sequences = 1, .max_length = 8, .skip_rows = skipped});
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({"rows.jsonl:2"}), "no error");
  EXPECT_NE(error({"rows.jsonl:4"}).find("'rows.jsonl:4' is not a row to train"), std::string::npos);
  EXPECT_NE(error({"rows.jsonl:2", "rows.jsonl:3"}).find("skip_rows names every row"), std::string::npos);
}

TEST(Order, IsAPermutationOfEverySize) {
  for (int64_t count : {1, 2, 3, 7, 16, 17, 255, 256, 257, 1000, 65537}) {
    std::vector<bool> seen(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = permuted_index(i, count, 42, 3);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, count);
      ASSERT_FALSE(seen[at]) << count;
      seen[at] = true;
    }
  }
}

TEST(Order, IsTheSameOnEveryPlatform) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) order.push_back(permuted_index(i, 10, 42, 0));
  EXPECT_EQ(order, (std::vector<int64_t>{5, 1, 0, 8, 9, 7, 2, 4, 3, 6}));
}

TEST(Order, PutsEveryElementEverywhereAboutEquallyOften) {
  std::map<std::pair<int64_t, int64_t>, int> counts;
  for (uint64_t stream = 0; stream < 5000; ++stream)
    for (int64_t i = 0; i < 5; ++i) ++counts[{i, permuted_index(i, 5, 7, stream)}];
  EXPECT_EQ(counts.size(), 25u);
  for (const auto& [place, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Batches, ContainTheRowsClasses) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 3; ++i) {
    Example e = example(i, 3 + i, 3 + i);
    e.classes = {static_cast<float>(i), 1};
    e.second_text.assign(e.input_ids.size(), 0);
    e.second_text.back() = 1;
    examples.push_back(e);
  }
  examples[1].classes.clear();  // this row has no label
  const Batches batches(examples, {.micro_batches = 2, .sequences = 2, .max_length = 8, .shuffle = false});
  const Batch batch = batches.at(0);
  EXPECT_EQ(batch.classes.shape().dims, (Dims{4, 2}));
  const auto classes = batch.classes.as<float>();
  EXPECT_EQ(std::vector<float>(classes.begin(), classes.end()), (std::vector<float>{0, 1, 0, 0, 2, 1, 0, 0}));
  EXPECT_EQ(row(batch.token_types, 1), (std::vector<int32_t>{0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.segments, 3), std::vector<int32_t>(8, 0));
  EXPECT_EQ(batch.trained_tokens, 2);
  EXPECT_THROW(Batches(examples, {.packing = true}), UserError);
}

TEST(Batches, ShiftsTargetsAndPads) {
  std::vector<Example> examples = {example(1, 3, 2), example(2, 2)};
  Batches batches(examples, {.sequences = 2, .max_length = 4, .shuffle = false}, 9);
  EXPECT_EQ(batches.steps_per_epoch(), 1);
  Batch batch = batches.at(0);
  EXPECT_EQ(batch.tokens.shape().dims, (Dims{1, 2, 8}));
  EXPECT_EQ(row(batch.tokens, 0), (std::vector<int32_t>{100, 101, 102, 9, 9, 9, 9, 9}));
  EXPECT_EQ(row(batch.targets, 0),
            (std::vector<int32_t>{kIgnore, 102, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore}));
  EXPECT_EQ(row(batch.positions, 0), (std::vector<int32_t>{0, 1, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.segments, 0), (std::vector<int32_t>{1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.targets, 1),
            (std::vector<int32_t>{201, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore}));
  EXPECT_EQ(batch.trained_tokens, 2);
  EXPECT_EQ(batch.real_tokens, 5);
  EXPECT_EQ(batch.sources, (std::vector<std::string>{"rows.jsonl:2", "rows.jsonl:3"}));
}

TEST(Batches, AnEndTokenThatIsAlsoThePaddingIsTrained) {
  const std::vector<Example> examples = {{{7, 8, 2}, {kIgnore, 8, 2}, "a:1"}};
  const Batch batch = Batches(examples, {.max_length = 8, .shuffle = false}, 2).at(0);
  EXPECT_EQ(row(batch.tokens, 0), (std::vector<int32_t>{7, 8, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(row(batch.targets, 0), (std::vector<int32_t>{8, 2, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore}));
}

TEST(Batches, FillsTheLastStepOfAnEpoch) {
  std::vector<Example> examples = {example(0, 3), example(1, 3), example(2, 3)};
  Batches batches(examples, {.micro_batches = 2, .sequences = 1, .max_length = 8, .shuffle = false});
  EXPECT_EQ(batches.steps_per_epoch(), 2);
  Batch last = batches.at(1);
  EXPECT_EQ(last.tokens.shape().dims, (Dims{2, 1, 8}));
  EXPECT_EQ(last.sources, (std::vector<std::string>{"rows.jsonl:3", ""}));
  EXPECT_EQ(row(last.segments, 1), std::vector<int32_t>(8, 0));
  EXPECT_EQ(row(last.targets, 1), std::vector<int32_t>(8, kIgnore));
  EXPECT_EQ(batches.at(2).sources, batches.at(0).sources);
}

std::vector<int64_t> lengths_of(const Batches& batches) {
  std::vector<int64_t> out;
  for (const BatchShape& shape : batches.shapes()) out.push_back(shape.length);
  return out;
}

TEST(Batches, ChoosesTheSmallestLengthThatHolds) {
  std::vector<Example> examples = {example(0, 10), example(1, 64), example(2, 65), example(3, 250)};
  Batches batches(examples, {.max_length = 250, .shuffle = false});
  EXPECT_EQ(lengths_of(batches), (std::vector<int64_t>{64, 128, 256}));
  EXPECT_EQ(batches.at(0).tokens.shape().dims[2], 64);
  EXPECT_EQ(batches.at(1).tokens.shape().dims[2], 64);
  EXPECT_EQ(batches.at(2).tokens.shape().dims[2], 128);
  EXPECT_EQ(batches.at(3).tokens.shape().dims[2], 256);
  EXPECT_EQ(lengths_of(Batches(examples, {.max_length = 250, .multiple = 48})), (std::vector<int64_t>{96, 144, 288}));
}

TEST(Batches, EveryEpochHasEveryRowOnceInAnotherOrder) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 203; ++i) examples.push_back(example(i, 1 + i * 7 % 90));
  Batches batches(examples, {.micro_batches = 2, .sequences = 2, .max_length = 96});
  auto first = sources_of_epoch(batches, 0), second = sources_of_epoch(batches, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 203u);
  EXPECT_EQ(first.size(), 203u);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 203u);
  Batches other(examples, {.micro_batches = 2, .sequences = 2, .max_length = 96, .seed = 43});
  EXPECT_NE(sources_of_epoch(other, 0), first);
}

TEST(Batches, GroupingByLengthReducesPadding) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 512; ++i) examples.push_back(example(i, 1 + (i * 37) % 250));
  BatchSpec options{.sequences = 8, .max_length = 256};
  Batches grouped(examples, options);
  options.like_length = false;
  Batches plain(examples, options);
  EXPECT_GT(grouped.use(), plain.use() + 0.1);
}

TEST(Batches, PackingKeepsDocumentsApart) {
  std::vector<Example> examples = {example(1, 5, 2), example(2, 3), example(3, 8, 7)};
  Batches batches(examples, {.max_length = 8, .packing = true, .shuffle = false}, 9);
  EXPECT_EQ(batches.steps_per_epoch(), 2);
  Batch batch = batches.at(0);
  EXPECT_EQ(row(batch.tokens, 0), (std::vector<int32_t>{100, 101, 102, 103, 104, 200, 201, 202}));
  EXPECT_EQ(row(batch.segments, 0), (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(row(batch.positions, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2}));
  // The last token of a document has no target, so it does not predict the first token of the next document.
  EXPECT_EQ(row(batch.targets, 0), (std::vector<int32_t>{kIgnore, 102, 103, 104, kIgnore, 201, 202, kIgnore}));
  EXPECT_EQ(batch.sources, (std::vector<std::string>{"rows.jsonl:2", "rows.jsonl:3"}));
  EXPECT_EQ(row(batch.sequence_numbers, 0), (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2}));
  EXPECT_DOUBLE_EQ(batches.use(), 1.0);
}

// Two groups of a step share a line: a prompt of 3 tokens with two branches, and a prompt of 2 tokens with one branch.
TEST(Batches, BranchesGoOnAfterTheirPrompt) {
  const BatchSpec spec{.sequences = 2,
                       .max_length = 16,
                       .lines = Lines::kRegrouped,
                       .grouping = RowGrouping::kBranches,
                       .shuffle = false};
  const std::vector<Example> rows{example(1, 3, 3), example(2, 2, 1), example(3, 5, 1), example(4, 2, 2),
                                  example(5, 2, 1), example(6, 3, 3), example(7, 4, 1)};
  const Batches batches(rows, spec, 9);
  EXPECT_EQ(batches.groups(), 3);
  ASSERT_EQ(batches.steps_per_epoch(), 2);
  const Batch batch = batches.at(0);
  ASSERT_EQ(batch.shape.lines, 1);
  ASSERT_EQ(batch.shape.length, 16);
  EXPECT_TRUE(batch.shape.branched);
  const int32_t k = kIgnore;
  using Row = std::vector<int32_t>;
  EXPECT_EQ(row(batch.tokens, 0), (Row{100, 101, 102, 200, 201, 300, 301, 302, 303, 304, 400, 401, 500, 501, 9, 9}));
  EXPECT_EQ(row(batch.targets, 0), (Row{k, k, k, 201, k, 301, 302, 303, 304, k, k, k, 501, k, k, k}));
  EXPECT_EQ(row(batch.positions, 0), (Row{0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(row(batch.segments, 0), (Row{1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5, 0, 0}));
  EXPECT_EQ(row(batch.prompts, 0), (Row{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 0, 0}));
  EXPECT_EQ(row(batch.sequence_numbers, 0), (Row{1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5, 0, 0}));
  EXPECT_EQ(batches.at(1).shape.sequences, batch.shape.sequences) << "one program for all steps";
  EXPECT_EQ(batches.at(1).sources[1], "rows.jsonl:8");
  const std::vector<Example> longer{example(1, 3, 3), example(2, 8, 1), example(3, 8, 1)};
  EXPECT_THROW(Batches(longer, spec), UserError) << "19 of 16 tokens";
}

TEST(Packing, FillsRowsWithFewDocumentsOfSimilarLengths) {
  // A row has room for about five documents. With best fit alone, 4 % of the positions would stay empty.
  std::vector<int64_t> lengths;
  int64_t sum = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    lengths.push_back(static_cast<int64_t>(35 + mix_bits(7, i) % 20 + mix_bits(8, i) % 20));
    sum += lengths.back();
  }
  const auto rows = pack_lengths(lengths, 256);
  EXPECT_GT(static_cast<double>(sum) / (256.0 * static_cast<double>(rows.size())), 0.99);
  std::vector<bool> seen(lengths.size());
  for (const auto& row : rows) {
    int64_t used = 0;
    for (int64_t i : row) {
      ASSERT_FALSE(seen[static_cast<size_t>(i)]);
      seen[static_cast<size_t>(i)] = true;
      used += lengths[static_cast<size_t>(i)];
    }
    ASSERT_LE(used, 256);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 4000);
}

TEST(Packing, FindsExactFills) {
  EXPECT_EQ(pack_lengths({6, 3, 4, 3}, 10), (std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(pack_lengths({5, 5, 5, 5}, 10).size(), 2u);
  EXPECT_EQ(pack_lengths({7, 2, 1, 3, 3, 4}, 10).size(), 2u);
  EXPECT_EQ(pack_lengths({}, 10).size(), 0u);
}

TEST(Batches, PackingFillsRowsAndKeepsEveryExample) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 3000; ++i) examples.push_back(example(i, 1 + mix_bits(1, i) % 400));
  Batches batches(examples, {.sequences = 4, .max_length = 1024, .packing = true});
  EXPECT_GT(batches.use(), 0.99);
  std::multiset<int32_t> starts;
  int64_t trained = 0, expected = 0;
  for (int64_t s = 0; s < batches.steps_per_epoch(); ++s) {
    Batch batch = batches.at(s);
    trained += batch.trained_tokens;
    for (int64_t r = 0; r < 4; ++r) {
      auto tokens = row(batch.tokens, r), positions = row(batch.positions, r), segments = row(batch.segments, r);
      for (size_t t = 0; t < tokens.size(); ++t)
        if (segments[t] > 0 && positions[t] == 0) starts.insert(tokens[t]);
    }
  }
  for (const Example& e : examples) expected += e.trained_tokens();
  EXPECT_EQ(starts.size(), 3000u);
  EXPECT_EQ(std::set(starts.begin(), starts.end()).size(), 3000u);
  EXPECT_EQ(trained, expected);
}

// On a mesh with sp = 8, lengths are multiples of 16, so 3000 tokens are rounded up to 3008. A run that is resumed on
// another mesh must have the same sequences.
TEST(Batches, PackTheSameSequencesOnAnyMesh) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 60; ++i) examples.push_back(example(i, i % 2 == 0 ? 1504 : i % 4 == 1 ? 1500 : 1496));
  const auto groups = [&](int64_t multiple) {
    const Batches batches(examples, {.max_length = 3000, .multiple = multiple, .packing = true});
    std::vector<std::vector<std::string>> out;
    for (int64_t step = 0; step < batches.steps_per_epoch(); ++step) {
      const Batch batch = batches.at(step);
      EXPECT_EQ(batch.tokens.shape().dims[2] % multiple, 0);
      out.push_back(batch.sources);
    }
    return out;
  };
  EXPECT_EQ(groups(8), groups(16));
}

// KTO's prompt with another row's reply is cut to the same length on any mesh.
TEST(Batches, CutMismatchedRepliesTheSameOnAnyMesh) {
  const std::vector<Example> examples{example(1, 90, 80), example(2, 95, 10), example(3, 20, 8)};
  const auto tokens = [&](int64_t max_length, int64_t multiple) {
    const BatchSpec spec{.sequences = 6,
                         .max_length = max_length,
                         .multiple = multiple,
                         .grouping = RowGrouping::kWithMismatched,
                         .shuffle = false};
    return Batches(examples, spec).at(0).real_tokens;
  };
  for (const int64_t multiple : {8, 16, 24, 48}) {
    EXPECT_EQ(tokens(100, multiple), 90 + 95 + 20 + 104 + (10 + 12) + (8 + 10)) << multiple;
    EXPECT_EQ(tokens(2048, multiple), 90 + 95 + 20 + (80 + 85) + (10 + 12) + (8 + 10)) << multiple;
  }
}

TEST(Batches, AreIdentifiedByTheirTokensAndLabels) {
  auto digest = [](const std::vector<Example>& examples, bool packing = false) {
    return Batches(examples, {.max_length = 32, .packing = packing, .seed = packing ? 1u : 2u}).identity().digest;
  };
  std::vector<Example> examples = {example(1, 5), example(2, 3, 1)};
  const std::string first = digest(examples);
  EXPECT_EQ(digest(examples, true), first);
  examples[0].source = "elsewhere.jsonl:1";
  EXPECT_EQ(digest(examples), first);
  examples[1].labels[2] = kIgnore;
  EXPECT_NE(digest(examples), first);
  EXPECT_NE(digest({example(2, 3, 1), example(1, 5)}), first);
}

// With several processes, each fills only the lines that its devices read, but counts the tokens of all lines.
TEST(Batches, FillOnlyTheLinesThatAreNeeded) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 8; ++i) examples.push_back(example(i, 5 + i, 2));
  const Batches batches(examples, {.micro_batches = 2, .sequences = 4, .max_length = 16, .shuffle = false}, 9);
  const Batch all = batches.at(0);
  int64_t lines = 0;
  const Batch some = batches.at(0, [&](const BatchShape& shape) {
    lines = shape.lines;
    std::vector<bool> own(static_cast<size_t>(shape.lines), false);
    own[1] = true;
    return own;
  });
  ASSERT_EQ(lines, all.shape.lines);
  ASSERT_EQ(some.tokens.shape(), all.tokens.shape());
  for (const auto part :
       {&Batch::tokens, &Batch::targets, &Batch::positions, &Batch::segments, &Batch::sequence_numbers})
    for (int64_t line = 0; line < 2 * lines; ++line) {
      const int32_t filler = part == &Batch::tokens ? 9 : part == &Batch::targets ? kIgnore : 0;
      EXPECT_EQ(row(some.*part, line), line % lines == 1
                                           ? row(all.*part, line)
                                           : std::vector<int32_t>(static_cast<size_t>(all.shape.length), filler));
    }
  EXPECT_EQ(some.trained_tokens, all.trained_tokens);
  EXPECT_EQ(some.real_tokens, all.real_tokens);
  EXPECT_EQ(some.sources, all.sources);
}

TEST(Batches, SeekingGivesTheSameBytes) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 50; ++i) examples.push_back(example(i, 1 + i % 30));
  Batches one(examples, {.sequences = 4, .max_length = 32}), other(examples, {.sequences = 4, .max_length = 32});
  for (int64_t s = 0; s < 30; ++s) one.at(s);
  Batch a = one.at(31), b = other.at(31);
  EXPECT_EQ(row(a.tokens, 2), row(b.tokens, 2));
  EXPECT_EQ(a.sources, b.sources);
  BatchPrefetcher ahead(one);
  for (int64_t s : {0, 1, 2, 9, 31, 31}) EXPECT_EQ(ahead.at(s).sources, one.at(s).sources) << s;
}

}  // namespace
}  // namespace fettle
