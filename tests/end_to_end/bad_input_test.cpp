// Tests bad input: exit code 2 (or 4), one message with what was found and the remedy, and no half-written files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct BadCase {
  const char* name;
  std::vector<std::string> words;  // added to a valid run
  int code;
  std::vector<std::string> said;
};

class BadInput : public testing::TestWithParam<BadCase> {};

TEST_P(BadInput, IsRefusedWithARemedy) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with(train_words(folder / "out"), GetParam().words));
  EXPECT_EQ(run.code, GetParam().code) << run.err;
  for (const std::string& text : GetParam().said) EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/adapter_model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "no empty folder may stay";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadInput,
    testing::Values(BadCase{"MisspeltKey", {"lerning_rate=1"}, 2, {"lerning_rate", "learning_rate"}},
                    BadCase{"IllTypedKey", {"learning_rate=fast"}, 2, {"learning_rate", "fast"}},
                    BadCase{"MissingModel", {"model_name_or_path=/nowhere/model"}, 2, {"/nowhere/model"}},
                    BadCase{"MissingDataset", {"dataset=/nowhere/rows.jsonl"}, 2, {"/nowhere/rows.jsonl"}},
                    BadCase{"UnknownTarget", {"lora_target=q_prj"}, 2, {"q_prj", "self_attn.q_proj"}},
                    BadCase{"UnknownSchedule", {"lr_scheduler_type=cosinus"}, 2, {"cosinus", "cosine"}},
                    BadCase{"PluginMissing", {"plugin=/nowhere/plugin.so"}, 4, {"/nowhere/plugin.so"}},
                    BadCase{"NotAPlugin", {"plugin=" + (source_folder() / "Makefile").string()}, 4, {"Makefile"}},
                    BadCase{"UnevenMesh", {"mesh.fsdp=3", "device_count=3"}, 2, {"fsdp", "divide"}},
                    BadCase{"UnwritableOutput", {"output_dir=/proc/nowhere"}, 2, {"/proc/nowhere"}},
                    BadCase{"AdapterOfAnotherModel",
                            {"adapter_name_or_path=" + (reference_model("gpt2") / "adapter_init").string()},
                            2,
                            {"adapter"}}),
    [](const auto& info) { return info.param.name; });

// Copies the llama reference model with one file changed. Returns the folder of the copy.
std::filesystem::path spoiled_model(const TempFolder& folder, const std::string& file,
                                    const std::function<std::string(std::string)>& change) {
  const std::filesystem::path model = folder / "model";
  std::filesystem::create_directories(model);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(reference_model("llama") / name, model / name);
  write_text(model / file, change(read_text(model / file)));
  return model;
}

Outcome train_on(const TempFolder& folder, const std::filesystem::path& model) {
  return run_fettle(folder, with(train_words(folder / "out"), {"model_name_or_path=" + model.string()}));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(BadModel, UnknownFamilyNamesTheListInTheDocs) {
  TempFolder folder;
  const Outcome run = train_on(folder, spoiled_model(folder, "config.json", [](const std::string& text) {
                                 return replaced(text, "\"llama\"", "\"mamba\"");
                               }));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("mamba"), HasSubstr("docs/models.md lists the families")));
}

TEST(BadModel, ShapesAgainstTheConfig) {
  TempFolder folder;
  const Outcome run = train_on(folder, spoiled_model(folder, "config.json", [](const std::string& text) {
                                 return replaced(text, "\"intermediate_size\": 96", "\"intermediate_size\": 128");
                               }));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("mlp"), HasSubstr("[96, 64]"), HasSubstr("[128, 64]")));
}

TEST(BadModel, MissingTensor) {
  TempFolder folder;
  const Outcome run = train_on(folder, spoiled_model(folder, "config.json", [](const std::string& text) {
                                 return replaced(text, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
                               }));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("model.layers.2."));
}

TEST(BadModel, TruncatedWeights) {
  TempFolder folder;
  const Outcome run = train_on(folder, spoiled_model(folder, "model.safetensors", [](const std::string& bytes) {
                                 return bytes.substr(0, bytes.size() / 2);
                               }));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("model.safetensors"));
}

Outcome train_rows(const TempFolder& folder, const std::string& rows) {
  write_text(folder / "rows.jsonl", rows);
  return run_fettle(folder, with(train_words(folder / "out"), {"dataset=" + (folder / "rows.jsonl").string()}));
}

TEST(BadRows, BrokenJsonIsNamedByFileAndLine) {
  TempFolder folder;
  const Outcome run = train_rows(folder, "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n{\"input_ids\": [1, 2,\n");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("rows.jsonl:2"));
}

TEST(BadRows, IdBeyondTheVocabulary) {
  TempFolder folder;
  const Outcome run = train_rows(folder, "{\"input_ids\": [1, 2, 999], \"labels\": [1, 2, 999]}\n");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("999"), HasSubstr("256")));
}

TEST(BadRows, NoTrainedTokenAtAll) {
  TempFolder folder;
  const Outcome run = train_rows(folder, "{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, -100]}\n");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("trained"));
}

// Returns a row of 129 tokens. The models have 128 positions.
std::string long_row() {
  std::string ids = "1";
  for (int i = 1; i < 129; ++i) ids += ", 2";
  return "{\"input_ids\": [" + ids + "]}\n";
}

Outcome train_long(const TempFolder& folder, const std::string& family) {
  write_text(folder / "rows.jsonl", long_row());
  return run_fettle(folder, with(train_words(folder / "out", family),
                                 {"dataset=" + (folder / "rows.jsonl").string(), "cutoff_len=256", "max_steps=1"}));
}

TEST(BadRows, LongerThanTheTableOfPositionsIsAnError) {
  TempFolder folder;
  const Outcome run = train_long(folder, "gpt2");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("129 tokens"), HasSubstr("cutoff_len: 128")));
}

TEST(BadRows, LongerThanTheRopeLengthIsReported) {
  TempFolder folder;
  const Outcome run = train_long(folder, "llama");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("trained for 128")));
}

TEST(BadRecipe, FileAndLineAreNamed) {
  TempFolder folder;
  write_text(folder / "recipe.yaml", "model_name_or_path: x\nstage: sft\nlora_rnk: 8\n");
  const Outcome run = run_fettle(folder, {"train", (folder / "recipe.yaml").string()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("recipe.yaml:3"), HasSubstr("lora_rnk"), HasSubstr("lora_rank")));
}

TEST(BadRecipe, MissingKeysAreNamed) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, {"train", "dataset=x"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("model_name_or_path"), HasSubstr("output_dir")));
}

}  // namespace
}  // namespace fettle
