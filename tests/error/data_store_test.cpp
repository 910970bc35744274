#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "data/batches/batches.h"
#include "data/batches/mix.h"
#include "data/dataset.h"
#include "data/store/row_pipeline.h"
#include "data/store/token_store.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

TEST(Mix, RefusesToRepeatForever) {
  try {
    mix_sets({10, 10}, Mix::kInterleaveOver, {1, 1e-9}, 1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("interleave_over would repeat the"), std::string::npos) << error.what();
  }
}

TEST(TokenWriter, NamesAFolderThatCannotBeCreated) {
  const TempFolder folder;
  const auto file = folder.write("file", "");
  try {
    TokenWriter writer(file / "store");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be created"), std::string::npos) << error.what();
  }
}

TEST(TokenStore, IsAbsentWhenTheFileIsMissing) {
  const TempFolder folder;
  std::string problem;
  EXPECT_EQ(TokenStore::open(folder.path() / "none", &problem), nullptr);
  EXPECT_EQ(problem, "");
  for (const char* text : {"[]", "{", "", R"({"store": {"format": 2}, "xxh3": 0})", R"({"store": 1, "xxh3": "a"})"}) {
    folder.write("a/store.json", text);
    EXPECT_EQ(TokenStore::open(folder.path() / "a", &problem), nullptr);
    EXPECT_EQ(problem, "store.json is damaged");
  }
}

TEST(TokenStore, FilesThatLoseBytesAreNoticed) {
  for (const char* name : {"tokens", "rows"}) {
    const TempFolder folder;
    const auto place = folder.path() / "store";
    TokenWriter writer(folder.path() / "draft");
    const std::vector<int32_t> ids(1000, 7);
    const Example example{.input_ids = ids, .labels = ids, .source = "x"};
    for (int64_t i = 0; i < 1000; ++i) writer.add(example, 0, i + 1);
    const Batches batches(Examples(writer.finish({}, place), {"rows.jsonl"}), {.sequences = 8, .lengths = {1000}});
    EXPECT_NO_THROW(batches.at(0));
    std::filesystem::resize_file(place / name, 4096);
    try {
      for (int64_t step = 0; step < batches.steps_per_epoch(); ++step) batches.at(step);
      ADD_FAILURE() << name;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("the stored tokens became shorter"), std::string::npos) << error.what();
    }
  }
}

struct Filling : ::testing::Test {
  TempFolder folder;
  DataSpec spec;

  Filling() {
    TestTokenizer().save(folder.path());
    spec.template_name = "none";
    spec.cache = (folder.path() / "cache").string();
  }
  std::string failure() {
    const Tokenizer tokenizer = Tokenizer::open(folder.path());
    try {
      load_datasets(spec, tokenizer, 0);
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
      return error.what();
    }
    return "no error";
  }
  int code = 0;
};

TEST_F(Filling, AFileThatGrowsDuringReadingIsNotStored) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "{\"text\": \"row " + std::to_string(i) + std::string(200, 'x') + "\"}\n";
  const auto file = folder.write("rows.jsonl", text);
  spec.sets = {file.string()};
  // The draft of the store appears after the file's key was computed and before the file's rows are read.
  std::thread writer([&] {
    std::error_code none;
    while (!std::filesystem::exists(spec.cache, none) || std::filesystem::is_empty(spec.cache, none)) {
    }
    std::ofstream(file, std::ios::app) << "{\"text\": \"one more\"}\n";
  });
  const std::string said = failure();
  writer.join();
  EXPECT_NE(said.find("rows.jsonl changed while it was read"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::is_empty(spec.cache));
}

// These keys change no row, so the second load finds the rows that the first one stored.
TEST_F(Filling, KeysThatDoNotFitTheTokenizerAreRefusedForStoredRows) {
  spec.sets = {folder.write("rows.jsonl", "{\"text\": \"a\"}\n").string()};
  spec.eos_token = "</s>";
  EXPECT_EQ(failure(), "no error");
  spec.eos_token = "<|im_end|>";
  EXPECT_NE(failure().find("eos_token: found '<|im_end|>', but the tokenizer's eos_token is '</s>'"),
            std::string::npos);
  spec.eos_token = "";
  spec.tool_format = "nothing";
  EXPECT_NE(failure().find("tool_format: "), std::string::npos);
}

TEST_F(Filling, StopsWhileTheFilesAreInspected) {
  spec.sets = {folder.write("rows.jsonl", "{\"text\": \"a\"}\n").string()};
  const InterruptScope scope;
  std::raise(SIGINT);
  EXPECT_EQ(failure(), "interrupted while the data files were hashed");
  EXPECT_EQ(code, 130);
}

// Exceptions in the pipeline's threads are rethrown in the calling thread, and the pipeline's threads end.
TEST_F(Filling, ExceptionsOfThreadsAreRethrown) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "{\"text\": \"" + std::string(100, 'x') + "\"}\n";
  const std::vector<std::filesystem::path> files = {folder.write("rows.jsonl", text)};
  const auto nothing = [](Row&, const std::string&) { return Outcome{}; };
  const auto fails = [](Row&, const std::string& where) -> Outcome {
    if (where.ends_with(":9000")) throw std::bad_alloc();
    return {};
  };
  EXPECT_THROW(for_each_row(files, INT64_MAX, fails, [](uint32_t, int64_t, Outcome&) {}), std::bad_alloc);
  int64_t taken = 0;
  const auto stops = [&](uint32_t, int64_t, Outcome&) {
    if (++taken == 1000) throw UserError("enough");
  };
  EXPECT_THROW(for_each_row(files, INT64_MAX, nothing, stops), UserError);
  EXPECT_EQ(taken, 1000);
  taken = 0;
  for_each_row(files, 500, nothing, [&](uint32_t, int64_t, Outcome&) { ++taken; });
  EXPECT_EQ(taken, 500);
}

}  // namespace
}  // namespace fettle
