// Tests that patterns match the same characters as in Hugging Face's engine
// (tests/reference/tokenizer/properties.json), and that matching a long text does not exceed the limit of steps.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "paths.h"
#include "tokenizer/text/intervals.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

using nlohmann::json;

// Counts characters and hashes their code points with 64-bit FNV-1a. Each code point is 4 bytes, little endian.
struct Characters {
  int64_t count = 0;
  uint64_t hash = 0xCBF29CE484222325;

  void add(char32_t c) {
    ++count;
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((c >> 8 * byte) & 0xFF)) * 0x100000001B3;
  }
};

TEST(Patterns, PropertiesHoldTheReferencesCharacters) {
  constexpr char kMark = '\x01';  // separates the characters
  std::vector<std::string> texts(1);
  int in_text = 0;
  for (char32_t c = 2; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    append_utf8(texts.back(), c);
    texts.back() += kMark;
    if (++in_text % 64 == 0) texts.emplace_back();
  }
  std::ifstream file(source_folder() / "tests/reference/tokenizer/properties.json");
  const json recorded = json::parse(file);
  ASSERT_GT(recorded["properties"].size(), 30u);
  for (const json& row : recorded["properties"]) {
    const auto pattern = row["pattern"].get<std::string>();
    const Regex regex("(?:" + pattern + ")(?=\\x01)|\\x01", "test");
    Characters found;
    for (const std::string& text : texts) {
      regex.cover(text, [&](size_t start, size_t, bool is_match) {
        if (is_match && text[start] != kMark) found.add(next_char(text, start));
      });
    }
    EXPECT_EQ(found.count, row["characters"].get<int64_t>()) << pattern;
    EXPECT_EQ(found.hash, row["fnv1a"].get<uint64_t>()) << pattern;
  }
}

// The matches are those of Hugging Face's library.
TEST(Patterns, AnIntervalWithAPlusRepeats) {
  const auto matches = [](const std::string& pattern, std::string_view text) {
    std::vector<std::string> found;
    Regex(pattern, "test").cover(text, [&](size_t start, size_t end, bool is_match) {
      if (is_match) found.emplace_back(text.substr(start, end - start));
    });
    return found;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(matches(R"(\p{N}{1,3})", "1234567"), (Texts{"123", "456", "7"}));
  EXPECT_EQ(matches(R"(\p{N}{1,3}+)", "1234567"), (Texts{"1234567"}));
  EXPECT_EQ(matches(R"((?:ab|c){2}+)", "ababccc"), (Texts{"ababcc"}));
  EXPECT_EQ(matches(R"(a{1,3}+a)", "aaaaaaaab"), (Texts{"aaaaaaaa"}));
  EXPECT_EQ(matches(R"(a{2,}+a)", "aaaaaaaab"), (Texts{"aaaaaaaa"}));
  EXPECT_EQ(matches(R"([a[bc]]{1,2}+)", "abcabcd"), (Texts{"abcabc"}));
  EXPECT_EQ(matches(R"([]a]{1,2}+)", "]a]a{1"), (Texts{"]a]a"}));
  EXPECT_EQ(matches(R"(\u0061{1,2}+|\x{62}{2}+)", "aaabbbb"), (Texts{"aaa", "bbbb"}));
  EXPECT_EQ(matches(R"(\x61{2}+)", "aaaab"), (Texts{"aaaa"}));
  EXPECT_EQ(matches("é{1,2}+", "éééa"), (Texts{"ééé"}));
  EXPECT_EQ(matches(R"(\{1,2}+|a{x}+)", "{1,2}}a{x}}"), (Texts{"{1,2}}", "a{x}}"}));
  EXPECT_EQ(regroup_intervals(R"((\p{N}|[a\]]){1,3}+x{2}y+)", IntervalPlus::kPossessive),
            R"((?>(\p{N}|[a\]]){1,3})x{2}y+)");
  EXPECT_EQ(matches(regroup_intervals("a{1,3}+a?", IntervalPlus::kPossessive), "aaaaa"), (Texts{"aaaa", "a"}));
}

TEST(Patterns, LongTextsAreMatchedToTheirEnd) {
  std::string text;
  for (int i = 0; i < 2'000'000; ++i) text += i % 3 == 0 ? "\xC3\xA9" : "ab";
  for (const char* pattern : {R"((?:a|b|é)+)", R"((?:ab|é)++)", R"([^\s]+(?!\S))", R"(\w+?$)"}) {
    size_t matches = 0, end = 0;
    Regex(pattern, "test").cover(text, [&](size_t, size_t stop, bool is_match) {
      matches += is_match;
      end = stop;
    });
    EXPECT_EQ(matches, 1u) << pattern;
    EXPECT_EQ(end, text.size()) << pattern;
  }
}

}  // namespace
}  // namespace fettle
