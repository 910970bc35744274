// Tests that single normalizers, pre-tokenizers and decoders give the same results as the reference library's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "temp_folder.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using nlohmann::json;

json read_steps() {
  std::ifstream file(source_folder() / "tests/reference/tokenizer/steps.json");
  return json::parse(file);
}

TEST(Steps, PreTokenizersCutAsTheReference) {
  const json steps = read_steps();
  const auto lines = steps["lines"].get<std::vector<std::string>>();
  ASSERT_GT(steps["pre_tokenizers"].size(), 30u);
  for (const json& each : steps["pre_tokenizers"]) {
    const PreTokenizer pre_tokenizer = read_pre_tokenizer(JsonField::of_value(each["config"], "steps.json"));
    const size_t every = each["every"];
    for (size_t i = 0; i < each["pieces"].size(); ++i) {
      Pieces pieces(lines[i * every]);
      pre_tokenizer.apply(pieces);
      if (pre_tokenizer.to_bytes) spell_in_alphabet(pieces);
      std::vector<std::string> found;
      for (const Piece& piece : pieces.list()) found.emplace_back(piece.text);
      EXPECT_EQ(found, each["pieces"][i].get<std::vector<std::string>>())
          << each["config"] << " of " << lines[i * every];
    }
  }
}

TEST(Steps, NormalizersChangeAsTheReference) {
  const json steps = read_steps();
  const auto lines = steps["lines"].get<std::vector<std::string>>();
  ASSERT_GT(steps["normalizers"].size(), 10u);
  for (const json& each : steps["normalizers"]) {
    const Normalizer normalizer = read_normalizer(JsonField::of_value(each["config"], "steps.json"));
    for (size_t i = 0; i < lines.size(); ++i) {
      std::string text = lines[i];
      normalizer(text);
      const auto changed = each["changed"].find(std::to_string(i));
      EXPECT_EQ(text, changed == each["changed"].end() ? lines[i] : changed->get<std::string>())
          << each["config"] << " of " << lines[i];
    }
  }
}

TEST(Steps, DecodersJoinAsTheReference) {
  const json steps = read_steps();
  ASSERT_GT(steps["decoders"].size(), 8u);
  for (const json& each : steps["decoders"]) {
    const Decoder decoder = read_decoder(JsonField::of_value(each["config"], "steps.json"));
    auto decode = [&](std::vector<std::string> tokens) {
      decoder(tokens);
      std::string text;
      for (const std::string& token : tokens) text += token;
      return text;
    };
    auto tokens = steps["tokens"].get<std::vector<std::string>>();
    EXPECT_EQ(decode(tokens), each["text"].get<std::string>()) << each["config"];
    tokens.resize(1);
    EXPECT_EQ(decode(tokens), each["first"].get<std::string>()) << each["config"];
  }
}

// The ids are those of the reference library. The charsmap removes only the character U+0001.
TEST(Steps, ThePrefixSpaceFollowsThePrecompiledNormalizer) {
  const json precompiled = {{"type", "Precompiled"},
                            {"precompiled_charsmap", "AAQAAAAIAAAAAAAAAAAAgAEF" + std::string(1348, 'A')}};
  json file = {
      {"normalizer", precompiled},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"split", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "?"},
        {"continuing_subword_prefix", ""},
        {"max_input_chars_per_word", 100},
        {"vocab", {{"?", 0}, {"_", 1}, {"a", 2}, {"b", 3}}}}}};
  const TempFolder folder;
  using Ids = std::vector<int32_t>;
  auto ids = [&](const std::string& text) {
    write_text(folder / "tokenizer.json", file.dump());
    return Tokenizer::open(folder.path()).encode(text, false);
  };
  EXPECT_EQ(ids("ab"), (Ids{1, 2, 3}));
  EXPECT_EQ(ids("\x01\x01"
                "ab"),
            (Ids{1, 2, 3}));
  EXPECT_EQ(ids("\x01"), Ids{});
  file["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", json::array({precompiled, {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}})}};
  EXPECT_EQ(ids("\x01"
                "ab"),
            (Ids{1, 2, 3}));
  EXPECT_EQ(ids(" ab"), (Ids{2, 3}));
  EXPECT_EQ(ids("\x01 a"), Ids{2});
}

}  // namespace
}  // namespace fettle
