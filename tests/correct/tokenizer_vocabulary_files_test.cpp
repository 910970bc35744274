// Tests that vocabulary files without a tokenizer.json, and BertTokenizer's settings beside one, give Transformers' ids
// (tests/reference/tokenizer/make_vocabularies.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "paths.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const fs::path kReference = source_folder() / "tests/reference/tokenizer";

json read_json(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Writes the files of a case, as make_vocabularies.py does.
void write_files(const json& one, const fs::path& folder) {
  const std::string kind = one["files"];
  if (kind == "tokenizer.json") {
    json content = read_json(kReference / "bert" / kind);
    content["model"]["max_input_chars_per_word"] = 100;
    write(folder / kind, content.dump());
  }
  if (kind == "sentencepiece.bpe.model") fs::copy(kReference / "sp_unigram/tokenizer.model", folder / kind);
  if (kind == "vocab.txt") {
    const json vocab = read_json(kReference / "bert/tokenizer.json")["model"]["vocab"];
    std::vector<std::string> words(vocab.size());
    for (const auto& [word, id] : vocab.items()) words[id.get<size_t>()] = word;
    std::string text;
    for (const std::string& word : words) text += word + "\n";
    write(folder / kind, text);
  }
  if (kind == "merges.txt") {
    json model = read_json(kReference / "gpt2/tokenizer.json")["model"];
    for (const char* token : {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"})
      model["vocab"][token] = model["vocab"].size();
    write(folder / "vocab.json", model["vocab"].dump());
    std::string text = "#version: 0.2\n";
    for (const json& merge : model["merges"]) text += merge.get<std::string>() + "\n";
    write(folder / kind, text);
  }
  write(folder / "config.json", one["config"].dump());
  if (!one["tokenizer_config"].is_null()) write(folder / "tokenizer_config.json", one["tokenizer_config"].dump());
}

TEST(VocabularyFiles, GiveTheIdsOfTransformers) {
  const json recorded = read_json(kReference / "vocabularies.json");
  for (const json& one : recorded["cases"]) {
    SCOPED_TRACE(one["files"].dump() + one["config"].dump() + one["tokenizer_config"].dump());
    const TempFolder folder;
    write_files(one, folder.path());
    const Tokenizer tokenizer = Tokenizer::open(folder.path());
    EXPECT_EQ(tokenizer.vocab_size(), one["size"]);
    for (size_t i = 0; i < recorded["lines"].size(); ++i)
      EXPECT_EQ(json(tokenizer.encode(recorded["lines"][i].get<std::string>(), true)), one["ids"][i])
          << recorded["lines"][i];
    const Tokenizer::Texts pair = tokenizer.encode_texts("Who wrote it?", "Many people.", 100);
    EXPECT_EQ(json(pair.ids), one["pair"][0]);
    EXPECT_EQ(json(pair.types), one["pair"][1]);
    if (one["files"] == "tokenizer.json") continue;  // a tokenizer.json does not name the special tokens
    json named = json::array();
    for (const std::string& token :
         {tokenizer.bos_token(), tokenizer.eos_token(), tokenizer.pad_token(), tokenizer.unk_token()})
      named.push_back(token.empty() ? json() : json(token));
    EXPECT_EQ(named, one["named"]);
    EXPECT_THAT(tokenizer.decode(tokenizer.encode("many people", false), true), HasSubstr("many people"));
  }
}

TEST(VocabularyFiles, AddedTokensOfTheFolderCount) {
  const TempFolder folder;
  write_files({{"files", "vocab.txt"}, {"config", {{"model_type", "bert"}}}, {"tokenizer_config", nullptr}},
              folder.path());
  write(folder.path() / "added_tokens.json", R"({"[NEW]": 900})");
  write(folder.path() / "config.json", R"({"model_type": "bert", "some_limit": Infinity})");
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  EXPECT_EQ(tokenizer.encode("[NEW]", true), (std::vector<int32_t>{2, 900, 3}));
  std::vector<std::string> files;
  for (const fs::path& file : tokenizer.files()) files.push_back(file.filename());
  EXPECT_EQ(files, (std::vector<std::string>{"vocab.txt", "added_tokens.json"}));
}

TEST(VocabularyFiles, OtherClassesAreRefusedWithTheRemedy) {
  const TempFolder folder;
  write_files({{"files", "vocab.txt"},
               {"config", {{"model_type", "bert"}, {"tokenizer_class", "BertJapaneseTokenizer"}}},
               {"tokenizer_config", nullptr}},
              folder.path());
  try {
    Tokenizer::open(folder.path());
    FAIL() << "no UserError";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("vocab.txt: Fettle does not read this file for the tokenizer class "
                                        "'BertJapaneseTokenizer'"));
    EXPECT_THAT(error.what(), HasSubstr("AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"));
  }
}

}  // namespace
}  // namespace fettle
