// Tests that broken SentencePiece and rank files, and texts that a model cannot encode, are user errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "paths.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

const fs::path kReference = source_folder() / "tests/reference/tokenizer";

class Models : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("fettle_error_models_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }
  std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string error() {
    try {
      Tokenizer::open(dir_).encode("a", true);
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no UserError";
    return "";
  }

  fs::path dir_;
};

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST_F(Models, TruncatedSentencePiece) {
  const std::string good = read(kReference / "sp_bpe/tokenizer.model");
  ASSERT_GT(good.size(), 1000u);
  write("tokenizer.model", good.substr(0, 777));
  EXPECT_SAYS(error(), "tokenizer.model: not a SentencePiece model: its 777 bytes cannot be parsed; fetch");
  write("tokenizer.model", "");
  EXPECT_SAYS(error(), "it has no pieces");
  write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_SAYS(error(), "tokenizer.model: is a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder");
}

// A changed byte gives an error or another tokenizer, never a crash.
TEST_F(Models, AnyBrokenByteIsAnErrorOrATokenizer) {
  for (const char* name : {"sp_bpe", "sp_unigram"}) {
    const std::string good = read(kReference / name / "tokenizer.model");
    int errors = 0;
    for (size_t at = 0; at < good.size(); at += 97) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      write("tokenizer.model", bad);
      try {
        Tokenizer::open(dir_).encode("some text \xE2\x96\x81 1 \xF0\x9F\x98\x80", true);
      } catch (const UserError&) {
        ++errors;
      }
    }
    EXPECT_GT(errors, 0);
  }
}

TEST_F(Models, IdsOfXlmRobertaNeedItsTokenizerJson) {
  fs::copy(kReference / "sp_unigram/tokenizer.model", dir_ / "tokenizer.model");
  write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  EXPECT_SAYS(error(), "use the model's tokenizer.json");
}

TEST_F(Models, MalformedRankLines) {
  write("tokenizer_config.json", R"({"pat_str": "\\\\w+"})");
  write("x.tiktoken", "YQ== 0\nYg== one\n");
  EXPECT_SAYS(error(), "x.tiktoken:2: found 'Yg== one', wanted base64 and a rank");
  write("x.tiktoken", "YQ== 0\nYg== 0\n");
  EXPECT_SAYS(error(), "x.tiktoken:2: rank 0 is invalid or occurs twice");
  write("x.tiktoken", "YQ== 255868283\n");  // a table of this many ranks would need gigabytes
  EXPECT_SAYS(error(), "x.tiktoken:1: rank 255868283 is invalid or occurs twice");
  write("x.tiktoken", "YQ== 0\n");
  EXPECT_SAYS(error(), "some single bytes have no rank");
}

TEST_F(Models, RanksOfAnUnknownProgram) {
  write("x.tiktoken", "YQ== 0\n");
  EXPECT_SAYS(error(),
              "Fettle does not know how this tokenizer of 1 ranks cuts a text into words; it knows Llama 3 (128000");
}

TEST_F(Models, IncompleteTekken) {
  write("tekken.json", R"({"config": {"default_num_special_tokens": 10, "default_vocab_size": 20}, "vocab": []})");
  EXPECT_SAYS(error(), "tekken.json: config: key 'pattern' is missing");
  write(
      "tekken.json",
      R"({"config": {"default_num_special_tokens": 10, "default_vocab_size": 20, "pattern": "a"}, "vocab": [{"rank": 0}]})");
  EXPECT_SAYS(error(), "tekken.json: vocab: found {\"rank\":0}, wanted");
}

TEST_F(Models, MissingUnknownTokens) {
  write("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]"}})");
  EXPECT_SAYS(error(), "model: unk_token '[UNK]' is not in the vocabulary");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["b", -1.0]], "unk_id": 1}})");
  EXPECT_SAYS(error(), "unk_id is 1, but there are 1 tokens");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["b", -1.0]]}})");
  EXPECT_SAYS(error(), "tokenizer.json: model: the text contains the character 'a', which is not in");
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [["b"]], "unk_id": 0}})");
  EXPECT_SAYS(error(), "model.vocab[0]: wanted a token and its score");
}

TEST_F(Models, MalformedCharsmap) {
  const std::string start = R"({"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 0}, "normalizer": )";
  write("tokenizer.json", start + R"({"type": "Precompiled", "precompiled_charsmap": "?"}})");
  EXPECT_SAYS(error(), "normalizer.precompiled_charsmap: is not base64");
  write("tokenizer.json", start + R"({"type": "Precompiled", "precompiled_charsmap": "AAAB"}})");
  EXPECT_SAYS(error(), "the charsmap is incomplete");
  write("tokenizer.json", start + R"({"type": "Precompiled", "precompiled_charsmap": "/wAAAAAAAAA="}})");
  EXPECT_SAYS(error(), "the charsmap claims a trie of 255 bytes");
}

}  // namespace
}  // namespace fettle
