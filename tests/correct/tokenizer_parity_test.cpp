// Ids and texts equal those that the reference library gave for the hard lines (tests/reference/tokenizer).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using nlohmann::json;

const std::filesystem::path kReference = std::filesystem::path(FETTLE_SOURCE_DIR) / "tests/reference/tokenizer";

json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, EncodesAndDecodesAsTheReference) {
  const std::filesystem::path folder = kReference / GetParam();
  const Tokenizer tokenizer = Tokenizer::open(folder);
  const auto lines = read_json(kReference / "lines.json").get<std::vector<std::string>>();
  const json reference = read_json(folder / "ids.json");
  ASSERT_EQ(lines.size(), reference["ids"].size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto ids = reference["ids"][i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(lines[i], false), ids) << "line " << i << ": " << lines[i];
    const json& decoded = reference["decoded"][i];
    EXPECT_EQ(tokenizer.decode(ids, false), decoded.is_null() ? lines[i] : decoded.get<std::string>()) << "line " << i;
  }
  const json& with_special = reference["with_special"];
  for (size_t i = 0; i < with_special.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(lines[i], true), with_special[i].get<std::vector<int32_t>>()) << "line " << i;
  }
  const json& without = reference["decoded_without_special"];
  for (size_t i = 0; i < without.size(); ++i) {
    const auto ids = reference["ids"][lines.size() - without.size() + i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids, true), without[i].get<std::string>());
  }
  const auto tokens = reference["tokens"].get<std::vector<std::string>>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(tokenizer.vocab_size() - tokens.size() + i);
    EXPECT_EQ(tokenizer.token(id), tokens[i]);
    EXPECT_EQ(tokenizer.token_id(tokens[i]), id);
  }
}

TEST_P(Parity, StreamsWhatItDecodes) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / GetParam());
  for (const json& row : read_json(kReference / GetParam() / "ids.json")["ids"]) {
    const auto ids = row.get<std::vector<int32_t>>();
    StreamDecoder stream(tokenizer, true);
    std::string text;
    for (int32_t id : ids) text += stream.push(id);
    text += stream.finish();
    EXPECT_EQ(text, tokenizer.decode(ids, true));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Parity, testing::Values("gpt2", "llama3", "qwen2", "edges"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
