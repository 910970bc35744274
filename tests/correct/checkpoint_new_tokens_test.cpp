// Tests new tokens: their ids, their rows, and the table with the model's own rows and the new rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files/json_file.h"
#include "checkpoint/changed/changed_folder.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/table/joined_tensors.h"
#include "paths.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using testing::ElementsAre;
namespace fs = std::filesystem;

const fs::path kModel = source_folder() / "tests/reference/models/llama";

NewTokens three_tokens() {
  return {.plain = {"<plain>"}, .special = {"<one>", "<two>"}, .at = "r"};
}

fs::path changed(const NewTokens& tokens, const fs::path& model = kModel) {
  return changed_folder(model, {.rope = {}, .tokens = tokens}, ModelRepository::Weights::kRequired);
}

HostArray table(const fs::path& folder, const std::string& name) {
  const ModelRepository repository = ModelRepository::open(folder);
  const StoredTensor stored = repository.find(name);
  return stored.file->read(*stored.entry).to(DType::kF32);
}

std::vector<float> row_of(const HostArray& table, int64_t row) {
  const auto width = static_cast<size_t>(table.shape().dims[1]);
  const auto values = table.as<float>().subspan(static_cast<size_t>(row) * width, width);
  return {values.begin(), values.end()};
}

std::vector<double> mean_of(const HostArray& table, const std::vector<int64_t>& rows) {
  std::vector<double> mean(static_cast<size_t>(table.shape().dims[1]), 0);
  for (const int64_t row : rows) {
    const std::vector<float> values = row_of(table, row);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += values[i] / static_cast<double>(rows.size());
  }
  return mean;
}

TEST(NewTokens, StandBehindTheTokenizersOwn) {
  const fs::path folder = changed(three_tokens());
  const Tokenizer before = Tokenizer::open(kModel), after = Tokenizer::open(folder);
  ASSERT_EQ(before.vocab_size(), 256);
  EXPECT_EQ(after.vocab_size(), 259);
  EXPECT_EQ(after.token_id("<plain>"), 256);
  EXPECT_EQ(after.token_id("<two>"), 258);
  EXPECT_FALSE(after.is_special(256));
  EXPECT_TRUE(after.is_special(257));
  std::vector<int32_t> wanted = before.encode("a b", false);
  wanted.push_back(257);
  for (const int32_t id : before.encode("cd", false)) wanted.push_back(id);
  wanted.push_back(256);
  EXPECT_EQ(after.encode("a b<one>cd<plain>", false), wanted);
  EXPECT_EQ(after.decode(std::vector<int32_t>{256, 257, 258}, true), "<plain>");
  EXPECT_EQ(read_json_file(folder / "config.json")["vocab_size"], 320) << "a multiple of 64";
  EXPECT_TRUE(fs::is_symlink(folder / "model.safetensors"));
}

// A known eos_token keeps its id and needs no row. A new one gets an id and a row.
TEST(NewTokens, OneMayEndTheTexts) {
  const Tokenizer before = Tokenizer::open(kModel);
  const int32_t known = before.encode("a", false).at(0);
  ASSERT_NE(before.eos_id(), known);
  const fs::path folder = changed({.eos = before.decode(std::vector<int32_t>{known}, false), .at = "r"});
  EXPECT_EQ(Tokenizer::open(folder).eos_id(), known);
  EXPECT_TRUE(Tokenizer::open(folder).is_special(known));
  EXPECT_EQ(read_json_file(folder / "config.json")["eos_token_id"], known);
  EXPECT_FALSE(fs::exists(folder / kNewRows));
  const fs::path more = changed({.eos = "<end>", .at = "r"});
  EXPECT_EQ(Tokenizer::open(more).eos_id(), 256);
  EXPECT_EQ(read_json_file(more / "config.json")["vocab_size"], 320);
  EXPECT_EQ(changed({.eos = before.eos_token(), .at = "r"}), kModel);
}

// Without tokenizer.json, the tokens are written to the files beside the vocabulary.
TEST(NewTokens, OfASentencePieceModel) {
  const TempFolder folder;
  const fs::path source = source_folder() / "tests/reference/tokenizer/sp_bpe";
  for (const auto& file : fs::directory_iterator(source))
    if (file.path().filename() != "tokenizer.json") fs::copy(file.path(), folder.path(), fs::copy_options::recursive);
  const int64_t size = Tokenizer::open(folder.path()).vocab_size();
  write_json_file(folder / "config.json", {{"model_type", "none"}, {"vocab_size", size}});
  const ModelChanges changes{.rope = {}, .tokens = three_tokens()};
  const Tokenizer after = Tokenizer::open(changed_folder(folder.path(), changes, ModelRepository::Weights::kIgnored));
  EXPECT_EQ(after.token_id("<two>"), size + 2);
  EXPECT_TRUE(after.is_special(static_cast<int32_t>(size + 1)));
  const std::vector<int32_t> ids = after.encode("<one>", false);
  EXPECT_THAT(ids, testing::Contains(static_cast<int32_t>(size + 1)));
}

TEST(NewTokens, RowsStartNearTheMeanAndOldRowsStay) {
  const fs::path folder = changed(three_tokens());
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const HostArray before = table(kModel, name), after = table(folder, name);
    ASSERT_EQ(after.shape().dims, (Dims{320, 64}));
    EXPECT_EQ(std::memcmp(before.data(), after.data(), static_cast<size_t>(before.bytes())), 0) << name;
    std::vector<int64_t> old(256);
    for (size_t i = 0; i < old.size(); ++i) old[i] = static_cast<int64_t>(i);
    const std::vector<double> mean = mean_of(before, old);
    double squares = 0, sum = 0;
    for (int64_t row = 256; row < 320; ++row)
      for (size_t i = 0; i < mean.size(); ++i) {
        const double noise = row_of(after, row)[i] - mean[i];
        squares += noise * noise, sum += noise;
      }
    const double count = 64 * 64;
    EXPECT_NEAR(std::sqrt(squares / count), 1 / std::sqrt(64.0), 0.03 / 8) << name;
    EXPECT_NEAR(sum / count, 0, 3 / std::sqrt(64 * count)) << name;
  }
  NewTokens other = three_tokens();
  EXPECT_EQ(changed(other), folder) << "the same folder for the same tokens and seed";
  other.seed = 7;
  const fs::path reseeded = changed(other);
  EXPECT_NE(row_of(table(reseeded, "lm_head.weight"), 256), row_of(table(folder, "lm_head.weight"), 256));
}

TEST(NewTokens, RowsStartFromDescriptions) {
  NewTokens tokens = three_tokens();
  tokens.from_descriptions = true;
  tokens.with_noise = false;
  tokens.descriptions = {{"<one>", "the first <two>"}, {"<two>", "a second"}};
  const fs::path folder = changed(tokens);
  const Tokenizer tokenizer = Tokenizer::open(kModel);
  const HostArray after = table(folder, "lm_head.weight");
  const std::vector<int32_t> ids = tokenizer.encode("a second", false);
  const std::vector<double> mean = mean_of(after, {ids.begin(), ids.end()});
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(row_of(after, 258)[i], mean[i], 1e-6);
  tokens.with_noise = true;
  EXPECT_NE(row_of(table(changed(tokens), "lm_head.weight"), 258), row_of(after, 258));
}

// A model may have more rows than its tokenizer has tokens. New tokens get the first free rows.
TEST(NewTokens, TakeRowsThatNoTokenHas) {
  const TempFolder folder;
  const ModelRepository model = ModelRepository::open(kModel);
  for (const auto& file : fs::directory_iterator(kModel))
    if (file.path().filename() != "model.safetensors") fs::copy(file.path(), folder / file.path().filename().string());
  nlohmann::json config = read_json_file(kModel / "config.json");
  config["vocab_size"] = 320;
  write_json_file(folder / "config.json", config);
  NamedShapes shapes;
  for (const std::string& name : model.names()) {
    Shape shape = model.find(name).entry->shape;
    if (shape.dims[0] == 256 && shape.rank() == 2) shape.dims[0] = 320;
    shapes.emplace_back(name, shape);
  }
  SafetensorsWriter writer(folder / "model.safetensors", shapes);
  for (const auto& [name, shape] : shapes) {
    const HostArray values = model.find(name).file->read(*model.find(name).entry);
    std::vector<std::byte> bytes(static_cast<size_t>(shape.bytes()));
    std::memcpy(bytes.data(), values.data(), static_cast<size_t>(values.bytes()));
    writer.write(name, bytes);
  }
  writer.finish();

  const fs::path grown = changed({.plain = {"<more>"}, .at = "r"}, folder.path());
  EXPECT_EQ(Tokenizer::open(grown).token_id("<more>"), 256);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const HostArray before = table(folder.path(), name), after = table(grown, name);
    ASSERT_EQ(after.shape(), before.shape());
    for (int64_t row = 0; row < 320; ++row) EXPECT_EQ(row_of(before, row) == row_of(after, row), row != 256) << row;
  }
}

TEST(NewTokens, KnownTokensChangeNothing) {
  EXPECT_EQ(changed({.plain = {"a"}, .special = {"<|eos|>"}, .resize = true, .at = "r"}), kModel);
}

// Reads boxes that begin in the old rows, begin in the new rows, or contain both.
TEST(NewTokens, AnyBoxOfTheTable) {
  const fs::path folder = changed(three_tokens());
  const ModelRepository repository = ModelRepository::open(folder);
  const StoredTensor stored = repository.find("lm_head.weight");
  const HostArray whole = stored.file->read(*stored.entry);
  for (const int64_t first : {0, 200, 255, 256, 300})
    for (const int64_t rows : {1, 2, 20}) {
      const Box box{{first, 3}, {rows, 5}};
      std::vector<float> got(static_cast<size_t>(rows * 5));
      stored.file->read_slice(*stored.entry, box, reinterpret_cast<std::byte*>(got.data()));
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < 5; ++i)
          EXPECT_EQ(got[static_cast<size_t>(row * 5 + i)], row_of(whole, first + row)[static_cast<size_t>(3 + i)]);
    }
}

}  // namespace
}  // namespace fettle
