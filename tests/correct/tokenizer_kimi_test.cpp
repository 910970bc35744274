// Tests Kimi's tokenizer, a file of ranks (tiktoken.model) without a tokenizer.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

constexpr int64_t kRanks = 163584;

class KimiTokenizer : public testing::Test {
 protected:
  // Writes a file with all single bytes, these tokens, and others that no test uses.
  Tokenizer with(const std::vector<std::string>& tokens) {
    std::string lines;
    int64_t rank = 0;
    auto add = [&](const std::string& bytes) { lines += encode_base64(bytes) + " " + std::to_string(rank++) + "\n"; };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (const std::string& token : tokens) add(token);
    while (rank < kRanks) add("\x01" + std::to_string(rank));
    write_text(folder_ / "tiktoken.model", lines);
    const nlohmann::json named{{"163584", {{"content", "[BOS]"}, {"special", true}}},
                               {"163586", {{"content", "<|im_end|>"}, {"special", true}}}};
    write_text(folder_ / "tokenizer_config.json",
               nlohmann::json{{"bos_token", "[BOS]"}, {"added_tokens_decoder", named}}.dump());
    return Tokenizer::open(folder_.path());
  }
  TempFolder folder_;
};

TEST_F(KimiTokenizer, HasTheNamedAndTheReservedTokens) {
  const Tokenizer tokenizer = with({});
  EXPECT_EQ(tokenizer.vocab_size(), 163840);
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), 163586);
  EXPECT_EQ(tokenizer.token_id("<|reserved_token_163587|>"), 163587);
  EXPECT_EQ(tokenizer.token_id("<|reserved_token_163586|>"), std::nullopt);
  EXPECT_EQ(tokenizer.encode("a<|im_end|>", true), (std::vector<int32_t>{'a', 163586})) << "no [BOS] is added";
}

// Chinese characters are words of their own; a word ends before a capital letter that follows a small one.
TEST_F(KimiTokenizer, CutsIntoWords) {
  const std::string last = "\xE6\x96\x87";  // the character U+6587
  const Tokenizer tokenizer = with({"\xE6\x96", last, last + "E", "oW", "12", "123", "34", "'s", "d's"});
  EXPECT_EQ(tokenizer.encode(last + "E", false), (std::vector<int32_t>{257, 'E'}));
  EXPECT_EQ(tokenizer.encode("oW", false), (std::vector<int32_t>{'o', 'W'}));
  EXPECT_EQ(tokenizer.encode("1234", false), (std::vector<int32_t>{261, '4'}));
  EXPECT_EQ(tokenizer.encode("d's", false), (std::vector<int32_t>{264}));
}

}  // namespace
}  // namespace fettle
