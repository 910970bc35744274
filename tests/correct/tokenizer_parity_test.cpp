// Tests that ids and texts equal those of the reference library for difficult lines (tests/reference/tokenizer).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using nlohmann::json;

const std::filesystem::path kReference = source_folder() / "tests/reference/tokenizer";

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
  const size_t every = reference.value("every", 1);
  const json& rows = reference["ids"];
  ASSERT_EQ(rows.size(), (lines.size() + every - 1) / every);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].is_null()) continue;
    const std::string& line = lines[i * every];
    const auto ids = rows[i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(line, false), ids) << "line " << i * every << ": " << line;
    const json& decoded = reference["decoded"][i];
    EXPECT_EQ(tokenizer.decode(ids, false), decoded.is_null() ? line : decoded.get<std::string>()) << "line " << line;
  }
  const json with_special = reference.value("with_special", json::array());
  for (size_t i = 0; i < with_special.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(lines[i], true), with_special[i].get<std::vector<int32_t>>()) << "line " << i;
  }
  const json without = reference.value("decoded_without_special", json::array());
  for (size_t i = 0; i < without.size(); ++i) {
    const auto ids = rows[rows.size() - without.size() + i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids, true), without[i].get<std::string>());
  }
  const auto tokens = reference.value("tokens", std::vector<std::string>());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(tokenizer.vocab_size() - tokens.size() + i);
    EXPECT_EQ(tokenizer.token(id), tokens[i]);
    EXPECT_EQ(tokenizer.token_id(tokens[i]), id);
  }
}

TEST_P(Parity, StreamsWhatItDecodes) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / GetParam());
  const json reference = read_json(kReference / GetParam() / "ids.json");
  size_t pieces = 0;
  for (const json& row : reference["ids"]) {
    if (row.is_null()) continue;
    const auto ids = row.get<std::vector<int32_t>>();
    StreamDecoder stream(tokenizer, true);
    std::string text;
    for (int32_t id : ids) {
      const std::string piece = stream.push(id);
      pieces += !piece.empty();
      text += piece;
    }
    text += stream.finish();
    EXPECT_EQ(text, tokenizer.decode(ids, true));
  }
  EXPECT_GT(pieces, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Parity,
                         testing::Values("gpt2", "llama3", "qwen2", "edges", "llama2", "bert", "unigram", "sp_bpe",
                                         "sp_unigram", "ranks"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
