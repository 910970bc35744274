// Tests broken UTF-8, many threads, very long words and incomplete characters.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "paths.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

const std::filesystem::path kReference = source_folder() / "tests/reference/tokenizer";

TEST(Text, BrokenBytesBecomeReplacementCharactersAsInPython) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), r);
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8z"), r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));
  EXPECT_TRUE(is_valid_utf8("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"));
}

TEST(Text, EncodeTakesBrokenBytesAsReplacementCharacters) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "gpt2");
  EXPECT_EQ(tokenizer.encode("ab\xFF", false), tokenizer.encode("ab\xEF\xBF\xBD", false));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\xFFz", false), false), "\xEF\xBF\xBDz");
}

TEST(Text, TextPairsEqualTheReference) {
  using nlohmann::json;
  std::ifstream file(kReference / "pairs.json");
  const json recorded = json::parse(file);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("fettle-pairs-" + std::to_string(getpid()));
  for (const json& one : recorded["cases"]) {
    std::filesystem::create_directories(folder);
    std::ifstream own(kReference / one["tokenizer"].get<std::string>() / "tokenizer.json");
    json config = json::parse(own);
    if (!one["post_processor"].is_null()) config["post_processor"] = one["post_processor"];
    std::ofstream(folder / "tokenizer.json") << config;
    const Tokenizer tokenizer = Tokenizer::open(folder);
    size_t row = 0;
    for (const json& texts : recorded["texts"]) {
      std::optional<std::string> second;
      if (!texts[1].is_null()) second = texts[1].get<std::string>();
      for (const json& length : recorded["lengths"]) {
        const Tokenizer::Texts found = tokenizer.encode_texts(texts[0].get<std::string>(), second, length);
        const json& wanted = one["rows"][row++];
        EXPECT_EQ(found.ids, wanted["ids"].get<std::vector<int32_t>>()) << one["tokenizer"] << one["kind"] << texts;
        EXPECT_EQ(found.types, wanted["types"].get<std::vector<uint8_t>>()) << one["tokenizer"] << one["kind"] << texts;
        EXPECT_GE(found.whole, static_cast<int64_t>(found.ids.size()));
      }
    }
    EXPECT_EQ(row, one["rows"].size());
  }
  std::filesystem::remove_all(folder);
}

TEST(Text, ManyThreadsGetTheSameIds) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "llama3");
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i)
    texts.push_back("word" + std::to_string(i * 7919) + " of the \xE6\xBC\xA2 text <|eot_id|>");
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text, true));
  std::vector<int> wrong(8, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t which = (i * 31 + t * 17) % texts.size();
        wrong[t] += tokenizer.encode(texts[which], true) != expected[which];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

// Encoding a word of a million random letters takes little time, and decoding restores the word.
TEST(Text, AMillionLettersWithoutASpaceAreOneWord) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "gpt2");
  std::string word;
  for (uint32_t i = 0, x = 1; i < 1000000; ++i)
    word.push_back(static_cast<char>('a' + (x = x * 1103515245 + 12345) % 26 / 2));
  const auto ids = tokenizer.encode(word, false);
  EXPECT_LT(ids.size(), word.size());
  EXPECT_EQ(tokenizer.decode(ids, false), word);
}

TEST(Text, HalfACharacterWaits) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "gpt2");
  const std::string text = "a\xE9\xBE\x98\xF0\x9F\xAB\xA8z";
  const auto ids = tokenizer.encode(text, false);
  ASSERT_GT(ids.size(), 5u);
  StreamDecoder stream(tokenizer, false);
  std::string all;
  for (int32_t id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
    all += piece;
  }
  EXPECT_EQ(all + stream.finish(), text);
}

TEST(Text, BrokenBytesAtTheEndComeOutOfFinish) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "gpt2");
  auto ids = tokenizer.encode("ok\xF0\x9F\xAB\xA8", false);
  ids.pop_back();
  StreamDecoder stream(tokenizer, false);
  std::string all;
  for (int32_t id : ids) all += stream.push(id);
  EXPECT_EQ(all, "ok");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(tokenizer.encode("z", false)[0]), "z");
}

// The decoder of Llama 2 replaces all bytes of a row when one of them is broken.
TEST(Text, ABrokenByteAfterACharacterOfBytesDelaysNoOtherText) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "llama2");
  const auto byte = [&](const char* token) { return tokenizer.token_id(token).value(); };
  const std::vector<int32_t> emoji = {byte("<0xF0>"), byte("<0x9F>"), byte("<0x98>"), byte("<0x80>")};
  const int32_t broken = byte("<0xE4>"), letter = tokenizer.token_id("a").value();
  StreamDecoder stream(tokenizer, false);
  const auto push = [&](const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    return text;
  };
  EXPECT_EQ(push({letter}), "a");
  EXPECT_EQ(push(emoji), "\xF0\x9F\x98\x80");
  EXPECT_EQ(push(emoji), "\xF0\x9F\x98\x80") << "a second character is still complete";
  EXPECT_EQ(push({broken}), "") << "the byte may begin another character";
  EXPECT_EQ(push({letter}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(push({letter}), "a");
  push(emoji);
  EXPECT_NE(push(std::vector<int32_t>(40, broken)), "") << "so many bytes are no character";
  EXPECT_TRUE(push({letter}).ends_with("a"));
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace fettle
