// Tests which rows val_size, num_samples, max_samples and slices of splits choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "data/dataset.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

struct RowCounts : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = [this] {
    TestTokenizer().save(folder.path());
    return Tokenizer::open(folder.path());
  }();
  DataSpec spec;

  RowCounts() {
    spec.template_name = "none";
    spec.dataset_dir = folder.path();
    spec.cache = "off";
  }
  // Makes `rows` texts the data set. With cutoff_len 4, each has `pieces` examples.
  void texts(int rows, int pieces, const std::string& entry = "") {
    spec.rows = RowKind::kTexts;
    spec.cutoff_len = 4;
    std::string lines;
    for (int i = 0; i < rows; ++i)
      lines += nlohmann::json{{"text", std::string(static_cast<size_t>(4 * pieces - 1), static_cast<char>('a' + i))}}
                   .dump() +
               "\n";
    folder.write("rows.jsonl", lines);
    folder.write("dataset_info.json", R"({"mine": {"file_name": "rows.jsonl")" + entry + "}}");
    spec.sets = {"mine"};
  }
  Datasets load() { return load_datasets(spec, tokenizer, tokenizer.vocab_size()); }
  // Returns the number of examples by line of the file.
  static std::map<std::string, int> lines(const Examples& examples) {
    std::map<std::string, int> out;
    for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i) {
      const std::string source = examples.source(i);
      ++out[source.substr(source.rfind(':') + 1)];
    }
    return out;
  }
};

using Lines = std::map<std::string, int>;

TEST_F(RowCounts, ATextThatContinuesIsOneRow) {
  texts(10, 3, R"(, "formatting": "text")");
  ASSERT_EQ(load().train.size(), 30u);
  spec.val_size = 0.2;
  const Datasets held = load();
  const Lines train = lines(held.train), eval = lines(held.eval);
  EXPECT_EQ(train.size(), 8u);
  EXPECT_EQ(eval.size(), 2u);
  for (const auto& [line, count] : eval) {
    EXPECT_EQ(count, 3) << line;
    EXPECT_FALSE(train.contains(line)) << "parts of a text are on both sides";
  }
  spec.cache = (folder.path() / "cache").string();
  load();
  EXPECT_EQ(lines(load().eval), eval) << "the rows come from the store";
  spec.cache = "off";
  spec.val_size = 0;
  texts(10, 3, R"(, "formatting": "text", "split": "train[:2]")");
  EXPECT_EQ(lines(load().train), (Lines{{"1", 3}, {"2", 3}}));
  texts(10, 3, R"(, "formatting": "text", "split": "train[:30%]")");
  EXPECT_EQ(lines(load().train), (Lines{{"1", 3}, {"2", 3}, {"3", 3}}));
  texts(10, 3, R"(, "formatting": "text", "num_samples": 12)");
  const Examples sampled = load().train;
  EXPECT_EQ(sampled.size(), 36u);
  for (const auto& [line, count] : lines(sampled)) EXPECT_EQ(count % 3, 0) << line;
}

TEST_F(RowCounts, PartsOfATextStayTogetherAmongOtherDataSets) {
  texts(6, 3, R"(, "formatting": "text")");
  folder.write("short.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n{\"text\": \"z\"}\n");
  spec.sets = {"mine", (folder.path() / "short.jsonl").string()};
  spec.mix = Mix::kInterleaveOver;
  spec.val_size = 3;
  const Datasets data = load();
  std::set<std::string> train, eval;
  for (int64_t i = 0; i < static_cast<int64_t>(data.train.size()); ++i) train.insert(data.train.source(i));
  for (int64_t i = 0; i < static_cast<int64_t>(data.eval.size()); ++i) eval.insert(data.eval.source(i));
  EXPECT_EQ(eval.size(), 3u);
  for (const std::string& source : eval) EXPECT_FALSE(train.contains(source)) << source;
}

// Both texts have the same part in the middle, and one text occurs twice.
TEST_F(RowCounts, RemoveDuplicatesComparesWholeTexts) {
  texts(0, 3, R"(, "formatting": "text")");
  folder.write("rows.jsonl", "{\"text\": \"aaaabbbbccc\"}\n{\"text\": \"ddddbbbbeee\"}\n{\"text\": \"aaaabbbbccc\"}\n");
  ASSERT_EQ(lines(load().train), (Lines{{"1", 3}, {"2", 3}, {"3", 3}}));
  EXPECT_EQ(load().report.duplicates, 1);
  spec.remove_duplicates = true;
  EXPECT_EQ(lines(load().train), (Lines{{"1", 3}, {"2", 3}}));
}

// A run that is resumed needs the same rows, so these must not change.
TEST_F(RowCounts, RowsOfOneExampleAreChosenAsBefore) {
  texts(10, 1, R"(, "num_samples": 4)");
  EXPECT_EQ(lines(load().train), (Lines{{"1", 1}, {"6", 1}, {"8", 1}, {"9", 1}}));
  texts(10, 1);
  spec.val_size = 3;
  EXPECT_EQ(lines(load().eval), (Lines{{"1", 1}, {"3", 1}, {"10", 1}}));
  // All rows of this file are in line 1.
  spec.sets = {folder.write("one.json", R"([{"text": "a"}, {"text": "b"}, {"text": "c"}, {"text": "d"}])").string()};
  EXPECT_EQ(load().eval.size(), 3u);
}

// As in LLaMA-Factory, num_samples chooses among all rows.
TEST_F(RowCounts, MaxSamplesLimitsTheChosenRows) {
  texts(20, 1, R"(, "num_samples": 12)");
  spec.max_samples = 5;
  const Lines few = lines(load().train);
  EXPECT_EQ(few.size(), 5u) << "no row is repeated";
  EXPECT_GT(few.size(), static_cast<size_t>(std::count_if(few.begin(), few.end(),
                                                          [](const auto& line) { return std::stoi(line.first) <= 5; })))
      << "the rows are chosen among all";
  EXPECT_THAT(load().report.chosen_by, testing::ElementsAre("num_samples", "max_samples"));
  spec.max_samples = 15;
  EXPECT_EQ(load().train.size(), 12u);
  texts(20, 1, R"(, "split": "train[:50%]")");
  spec.max_samples = 8;
  EXPECT_EQ(load().train.size(), 8u) << "half of the 20 rows are 10";
  EXPECT_THAT(load().report.chosen_by, testing::ElementsAre("the slice in `split`", "max_samples"));
}

}  // namespace
}  // namespace fettle
