// Tests broken tokenizer files: the user error names the file and the fault.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::UnitTest;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("fettle_error_" + std::string(UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const std::string& name, const std::string& content) { std::ofstream(dir_ / name) << content; }

  // Returns the message of the UserError that opening throws. The test fails if it throws none.
  std::string error() {
    try {
      Tokenizer::open(dir_);
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no UserError";
    return "";
  }
  std::string error_of(const std::string& tokenizer_json) {
    write("tokenizer.json", tokenizer_json);
    return error();
  }

  fs::path dir_;
};

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

const std::string kVocab = R"("vocab": {"a": 0, "b": 1, "ab": 2})";

std::string model(const std::string& rest) {
  return R"({"model": {"type": "BPE", )" + rest + "}}";
}

TEST_F(Files, NoTokenizerJson) {
  const std::string message = error();
  EXPECT_SAYS(message, dir_.string());
  EXPECT_SAYS(message, "tokenizer.json");
}

TEST_F(Files, APointerOfGitLfsIsNamed) {
  write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  EXPECT_SAYS(error(), "tokenizer.json: is a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder");
}

TEST_F(Files, BrokenVocabularyFilesAreNamed) {
  write("config.json", R"({"model_type": "bert"})");
  write("vocab.txt", "[UNK]\n[CLS]\na\n");
  EXPECT_SAYS(error(), "vocab.txt: the token '[SEP]', which goes around each text, is missing");
  write("vocab.txt", "[UNK]\n\xFF\n");
  EXPECT_SAYS(error(), "vocab.txt: is not UTF-8");
  fs::remove(dir_ / "vocab.txt");
  write("config.json", R"({"model_type": "gpt2"})");
  write("vocab.json", "[1]");
  write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_SAYS(error(), "vocab.json: model.vocab");
  write("vocab.json", R"({"a": 0, "b": 1})");
  EXPECT_SAYS(error(), "vocab.json: model.merges");
  fs::remove(dir_ / "vocab.json");
  EXPECT_SAYS(error(), "there is no tokenizer in this folder");
  write("config.json", R"({"model_type": "xlm-roberta"})");
  write("sentencepiece.bpe.model", "\x01");
  EXPECT_SAYS(error(), "sentencepiece.bpe.model: not a SentencePiece model");
}

TEST_F(Files, BrokenJsonIsReportedWithItsPlace) {
  EXPECT_SAYS(error_of("{\n  \"model\": {,\n"), "tokenizer.json: is not valid JSON: syntax error at line 2, column 13");
  EXPECT_SAYS(error_of(""), "tokenizer.json: is not valid JSON: the text ends too early");
  EXPECT_SAYS(error_of("{\"model\": {\"type\": \"BP"), "tokenizer.json: is not valid JSON: the text ends too early");
  EXPECT_SAYS(error_of("{\"model\": 1e999}"), "tokenizer.json: is not valid JSON: a number is too large");
  EXPECT_SAYS(error_of("[1, 2]"), "wanted an object");
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_SAYS(error_of(deep), "tokenizer.json: is not valid JSON: values are nested more than 100 deep");
}

TEST_F(Files, BrokenConfigIsReportedWithItsPlace) {
  write("tokenizer.json", model(kVocab + R"(, "merges": ["a b"])"));
  write("tokenizer_config.json", "{\"eos_token\": 5}");
  EXPECT_SAYS(error(), "tokenizer_config.json: eos_token: found number (5), wanted a string");
  write("tokenizer_config.json", "{\"eos_token\": \"a\"");
  EXPECT_SAYS(error(), "tokenizer_config.json: is not valid JSON: the text ends too early");
}

TEST_F(Files, UnknownTypesAreNamedWithTheKnownOnes) {
  std::string message = error_of(R"({"model": {"type": "CharLevel"}})");
  EXPECT_SAYS(message, "tokenizer.json: model: the model type 'CharLevel' is not supported; supported are BPE");
  const std::string good = R"({"model": {"type": "BPE", )" + kVocab + R"(, "merges": []}, )";
  message = error_of(good + R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Guess"}]}})");
  EXPECT_SAYS(message, "pre_tokenizer.pretokenizers[0]: the pre_tokenizer type 'Guess' is not supported");
  EXPECT_SAYS(message, "ByteLevel");
  EXPECT_SAYS(error_of(good + R"("normalizer": {"type": "Guess"}})"), "normalizer type 'Guess'");
  EXPECT_SAYS(error_of(good + R"("decoder": {"type": "Guess"}})"), "decoder type 'Guess'");
  EXPECT_SAYS(error_of(good + R"("post_processor": {"type": "Guess"}})"), "post_processor type 'Guess'");
  EXPECT_SAYS(error_of(good + R"("decoder": {}})"), "tokenizer.json: decoder: key 'type' is missing");
}

TEST_F(Files, UnknownKeysAreRefused) {
  const std::string good = R"({"model": {"type": "BPE", )" + kVocab + R"(, "merges": []}, )";
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": [], "temperature": 0.5)")),
              "tokenizer.json: model: 'temperature' is not supported; supported are type, dropout");
  EXPECT_SAYS(error_of(good + R"("normalizer": {"type": "Strip", "middle": true}})"), "'middle' is not supported");
  EXPECT_SAYS(error_of(good + R"("pre_tokenizer": {"type": "Digits", "runs": 3}})"), "'runs' is not supported");
  EXPECT_SAYS(error_of(good + R"("decoder": {"type": "Fuse", "by": " "}})"), "'by' is not supported");
  EXPECT_SAYS(error_of(good + R"("post_processor": {"type": "ByteLevel", "by": " "}})"), "'by' is not supported");
  EXPECT_SAYS(error_of(good + R"("classifier": {}})"), "'classifier' is not supported");
  const std::string single =
      R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "special_tokens": {}})";
  EXPECT_SAYS(
      error_of(good + R"("post_processor": {"type": "Sequence", "processors": [)" + single + "," + single + "]}}"),
      "processors[1]: found a TemplateProcessing after a TemplateProcessing; only ByteLevel may follow");
}

TEST_F(Files, NestedTooDeeply) {
  std::string steps = R"({"type": "NFC"})";
  for (int i = 0; i < 40; ++i) steps = R"({"type": "Sequence", "normalizers": [)" + steps + "]}";
  EXPECT_SAYS(error_of(R"({"model": {"type": "BPE", )" + kVocab + R"(, "merges": []}, "normalizer": )" + steps + "}"),
              "nested more than 64 deep");
}

TEST_F(Files, BadPatternsAndBehaviours) {
  const std::string start =
      R"({"model": {"type": "BPE", )" + kVocab + R"(, "merges": []}, "pre_tokenizer": {"type": "Split", )";
  EXPECT_SAYS(error_of(start + R"("pattern": {"Regex": "a("}, "behavior": "Isolated"}})"), "the pattern 'a('");
  EXPECT_SAYS(error_of(start + R"("pattern": {"Regex": "a"}, "behavior": "Melted"}})"),
              "found 'Melted', wanted Removed");
  EXPECT_SAYS(error_of(start + R"("pattern": {"Glob": "a"}, "behavior": "Isolated"}})"), "pre_tokenizer.pattern");
}

// Each of these patterns can match the text in more ways than a computer can try.
TEST_F(Files, PatternsThatBacktrackForeverAreRefused) {
  const std::string text = std::string(5000, 'x') + "b";
  for (const std::string pattern : {"(x+)+$", "(?:x|x)+$", "(x+x+)+[yz]", "(?:x*)*[yz]", "(.*)*[yz]"}) {
    SCOPED_TRACE(pattern);
    write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"x": 0, "b": 1}, "merges": []}, "pre_tokenizer":)"
                            R"({"type": "Split", "pattern": {"Regex": ")" +
                                pattern + R"("}, "behavior": "Isolated"}})");
    const Tokenizer tokenizer = Tokenizer::open(dir_);
    EXPECT_EQ(tokenizer.encode("b", false), std::vector<int32_t>{1});
    try {
      tokenizer.encode(text, false);
      ADD_FAILURE() << "no UserError";
    } catch (const UserError& error) {
      const std::string message = error.what();
      EXPECT_SAYS(message, (dir_ / "tokenizer.json").string() + ": pre_tokenizer.pattern.Regex");
      EXPECT_SAYS(message, "the pattern '" + pattern + "' needs more than");
      EXPECT_SAYS(message, "a text of 5001 bytes; rewrite it");
    }
  }
}

TEST_F(Files, MergesOfMissingTokens) {
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": ["a b", "a c"])")), "merge 1 ('a' and 'c') needs the token 'c'");
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": [["b", "a"]])")), "needs the token 'ba'");
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": ["ab"])")), "merge 0 is 'ab', wanted two tokens");
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": [["a"]])")), "merge 0 is [\"a\"], wanted");
  EXPECT_SAYS(error_of(model(kVocab)), "key 'merges' is missing");
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": [], "unk_token": "<unk>")")), "'<unk>' is not in the vocabulary");
  EXPECT_SAYS(error_of(model(kVocab + R"(, "merges": [], "dropout": "much")")), "model.dropout");
}

TEST_F(Files, InvalidAndDuplicateIds) {
  EXPECT_SAYS(error_of(model(R"("vocab": {"a": 0, "b": 0}, "merges": [])")), "tokens 'a' and 'b' have the same id 0");
  EXPECT_SAYS(error_of(model(R"("vocab": {"a": -1}, "merges": [])")), "the id of token 'a' is -1");
  EXPECT_SAYS(error_of(model(R"("vocab": {"a": "x"}, "merges": [])")), "the id of token 'a' is \"x\"");
  EXPECT_SAYS(error_of(model(R"("vocab": {"a": 99999999999}, "merges": [])")), "which is not a valid id");
  EXPECT_SAYS(error_of(model(R"("vocab": ["a"], "merges": [])")), "model.vocab");
}

TEST_F(Files, AddedTokensThatShareAnId) {
  const std::string start = R"({"model": {"type": "BPE", )" + kVocab + R"(, "merges": []}, "added_tokens": [)";
  EXPECT_SAYS(error_of(start + R"({"id": 3, "content": "x"}, {"id": 3, "content": "y"}]})"),
              "added_tokens[1]: id 3 belongs to 'x' and to 'y'");
  EXPECT_SAYS(error_of(start + R"({"id": 1, "content": "x"}]})"), "id 1 belongs to 'b' in model.vocab");
  EXPECT_SAYS(error_of(start + R"({"id": -3, "content": "x"}]})"), "id -3 is not a valid token id");
  EXPECT_SAYS(error_of(start + R"({"content": "x"}]})"), "added_tokens[0]: key 'id' is missing");
}

TEST_F(Files, TemplatesOfMissingTokens) {
  const std::string start = R"({"model": {"type": "BPE", )" + kVocab +
                            R"(, "merges": []}, "post_processor": {"type": "TemplateProcessing", "pair": [], )";
  EXPECT_SAYS(error_of(start + R"("special_tokens": {}, "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]}})"),
              "the token '<s>' is not in special_tokens");
}

}  // namespace
}  // namespace fettle
