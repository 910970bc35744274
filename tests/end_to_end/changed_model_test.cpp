// Tests keys that change a model before it is trained. The result has the changes, and a run continues only with the
// same keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<std::string> long_rows(const std::filesystem::path& output) {
  return with(train_words(output, "qwen3"),
              {"finetuning_type=full", "cutoff_len=500", "save_strategy=steps", "save_steps=3", "rope_scaling=yarn"});
}

TEST(RopeScaling, IsInTheResultAndInTheCheckpoint) {
  const TempFolder folder;
  const Outcome run = run_fettle(folder, long_rows(folder / "out"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rope_scaling: yarn with factor 4: the model takes 512 positions instead of 128"));
  const auto config = nlohmann::json::parse(read_text(folder / "out/config.json"));
  EXPECT_EQ(config["rope_parameters"]["rope_type"], "yarn");
  EXPECT_EQ(config["rope_parameters"]["factor"], 4.0);
  EXPECT_EQ(config["max_position_embeddings"], 512);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "out/tokenizer.json"));
  const auto losses = logged_losses(folder / "out");

  std::filesystem::remove_all(folder / "out/checkpoint-6");
  const Outcome other =
      run_fettle(folder, with(long_rows(folder / "out"), {"resume_from_checkpoint=true", "rope_scaling=linear"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("rope_scaling = \"yarn 4\""), HasSubstr("\"linear 4\"")));
  const Outcome resumed = run_fettle(folder, with(long_rows(folder / "out"), {"resume_from_checkpoint=true"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(logged_losses(folder / "out"), ElementsAreArray(losses));

  // The result is a model of the new length. It needs no further scaling.
  const Outcome plan = run_fettle(
      folder, {"data", "model_name_or_path=" + (folder / "out").string(),
               "dataset=" + (reference_model("qwen3").parent_path() / "rows.jsonl").string(), "cutoff_len=400"});
  EXPECT_EQ(plan.code, 0) << plan.err;
}

// Returns the words of a run. Its rows have tokens that the model does not have yet.
std::vector<std::string> new_token_words(const TempFolder& folder, const std::string& output,
                                         const std::string& family) {
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += nlohmann::json{{"text", "<svg>ab" + std::to_string(i) + "</svg> c"}}.dump() + "\n";
  write_text(folder / "rows.jsonl", rows);
  return with(train_words(folder / output, family),
              {"stage=pt", "packing=false", "dataset=" + (folder / "rows.jsonl").string(), "save_strategy=steps",
               "save_steps=3", "add_special_tokens=<svg>,</svg>"});
}

// Returns the numbers in the output line of the loss: one for a single model, two for the base and the tuned model.
std::vector<double> figures_of_loss(const Outcome& evaluated) {
  std::istringstream line(evaluated.out.substr(std::min(evaluated.out.size(), evaluated.out.find(" loss ") + 6)));
  std::vector<double> figures;
  for (double figure = 0; line >> figure;) figures.push_back(figure);
  return figures;
}

// llama has a head of its own. llama2's head is its embedding.
TEST(NewTokens, AreTrainedResumedEvaluatedAndExported) {
  for (const std::string family : {"llama", "llama2"}) {
    SCOPED_TRACE(family);
    const TempFolder folder;
    const auto words = new_token_words(folder, "out", family);
    const Outcome run = run_fettle(folder, words);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("2 from id 256 on"), HasSubstr("320 rows, 256 before"),
                               HasSubstr("additional_target is set to embed_tokens")));
    const SafetensorsFile adapter = SafetensorsFile::open(folder / "out/adapter_model.safetensors");
    for (const char* name : {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"}) {
      ASSERT_NE(adapter.find(name), nullptr) << name;
      EXPECT_EQ(adapter.find(name)->shape.dims[0], 320) << name;
    }
    EXPECT_THAT(read_text(folder / "out/tokenizer.json"), HasSubstr("</svg>"));
    const auto config = nlohmann::json::parse(read_text(folder / "out/adapter_config.json"));
    EXPECT_EQ(config["modules_to_save"].size(), 2u);
    EXPECT_EQ(config["base_model_name_or_path"], reference_model(family).string());

    const auto losses = logged_losses(folder / "out");
    const std::string weights = read_text(folder / "out/adapter_model.safetensors");
    std::filesystem::remove_all(folder / "out/checkpoint-6");
    const Outcome other = run_fettle(folder, with(words, {"resume_from_checkpoint=true", "add_special_tokens=<svg>"}));
    EXPECT_EQ(other.code, 2) << other.err;
    const Outcome resumed = run_fettle(folder, with(words, {"resume_from_checkpoint=true"}));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(logged_losses(folder / "out"), ElementsAreArray(losses));
    EXPECT_EQ(read_text(folder / "out/adapter_model.safetensors"), weights);

    const std::vector<std::string> tuned{"model_name_or_path=" + reference_model(family).string(),
                                         "adapter_name_or_path=" + (folder / "out").string(),
                                         "add_special_tokens=<svg>,</svg>", "plugin=cpu"};
    const std::string rows = (folder / "rows.jsonl").string();
    std::vector<std::string> eval{"eval"}, exported{"export"}, plain{"export"};
    eval.insert(eval.end(), tuned.begin(), tuned.end());
    const Outcome evaluated = run_fettle(folder, with(eval, {"stage=pt", "eval_dataset=" + rows}));
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
    exported.insert(exported.end(), tuned.begin(), tuned.end());
    const Outcome merged = run_fettle(folder, with(exported, {"export_dir=" + (folder / "merged").string()}));
    ASSERT_EQ(merged.code, 0) << merged.err;
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "merged/config.json"))["vocab_size"], 320);
    EXPECT_THAT(read_text(folder / "merged/tokenizer.json"), HasSubstr("</svg>"));
    // The merged model has the tokens. Its loss equals the loss of the base with the adapter.
    const Outcome again = run_fettle(folder, {"eval", "model_name_or_path=" + (folder / "merged").string(), "stage=pt",
                                              "eval_dataset=" + rows, "plugin=cpu"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NEAR(figures_of_loss(again).at(0), figures_of_loss(evaluated).at(1), 1e-4) << again.out << evaluated.out;
    // Without the tokens, the adapter does not fit, and the message says why.
    const Outcome without =
        run_fettle(folder, {"export", tuned[0], tuned[1], "plugin=cpu", "export_dir=" + (folder / "wrong").string()});
    EXPECT_EQ(without.code, 2);
    EXPECT_THAT(without.err, HasSubstr("add_special_tokens"));
  }
}

// The names of the model's stored tensors differ from the names in the adapter.
TEST(NewTokens, OfAModelWithImages) {
  const TempFolder folder;
  const Outcome run = run_fettle(folder, new_token_words(folder, "out", "gemma3_wrapped"));
  ASSERT_EQ(run.code, 0) << run.err;
  const Outcome merged =
      run_fettle(folder, {"export", "model_name_or_path=" + reference_model("gemma3_wrapped").string(),
                          "adapter_name_or_path=" + (folder / "out").string(), "add_special_tokens=<svg>,</svg>",
                          "plugin=cpu", "export_dir=" + (folder / "merged").string()});
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(folder / "merged/config.json"))["text_config"]["vocab_size"], 320);
  const SafetensorsFile adapter = SafetensorsFile::open(folder / "out/adapter_model.safetensors"),
                        model = SafetensorsFile::open(folder / "merged/model.safetensors");
  const TensorEntry *trained = adapter.find("base_model.model.model.language_model.embed_tokens.weight"),
                    *written = model.find("language_model.model.embed_tokens.weight");
  ASSERT_TRUE(trained != nullptr && written != nullptr);
  const HostArray wanted = adapter.read(*trained), got = model.read(*written);
  ASSERT_EQ(got.shape(), wanted.shape());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(wanted.bytes())), 0);
}

TEST(NewTokens, InFullTuningAndPlan) {
  const TempFolder folder;
  auto words = with(new_token_words(folder, "full", "llama2"), {"finetuning_type=full", "add_tokens=<more>"});
  ASSERT_EQ(run_fettle(folder, words).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_text(folder / "full/config.json"))["vocab_size"], 320);
  const SafetensorsFile model = SafetensorsFile::open(folder / "full/model.safetensors");
  EXPECT_EQ(model.find("model.embed_tokens.weight")->shape.dims[0], 320);
  for (const char* command : {"plan", "data"}) {
    words[0] = command;
    const Outcome outcome = run_fettle(folder, words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

// Returns the rows of the embedding in a model folder.
std::vector<std::vector<float>> embedding_of(const std::filesystem::path& model) {
  const SafetensorsFile file = SafetensorsFile::open(model / "model.safetensors");
  const HostArray table = file.read(*file.find("model.embed_tokens.weight"));
  const auto columns = static_cast<size_t>(table.shape().dims[1]);
  std::vector<std::vector<float>> rows(static_cast<size_t>(table.shape().dims[0]), std::vector<float>(columns));
  for (size_t row = 0; row < rows.size(); ++row)
    std::memcpy(rows[row].data(), table.data() + row * columns * sizeof(float), columns * sizeof(float));
  return rows;
}

// The tokenizer of this model has one token more than the embedding has rows.
TEST(NewTokens, OfTheTokenizerGetRows) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "model");
  for (const char* name : {"config.json", "model.safetensors", "tokenizer_config.json"})
    std::filesystem::copy(reference_model("llama") / name, folder / "model");
  auto tokenizer = nlohmann::json::parse(read_text(reference_model("llama") / "tokenizer.json"));
  auto token = tokenizer["added_tokens"].back();
  token["id"] = 256;
  token["content"] = "<svg>";
  tokenizer["added_tokens"].push_back(token);
  write_text(folder / "model/tokenizer.json", tokenizer.dump());
  write_text(folder / "rows.jsonl", "{\"text\": \"<svg>ab c\"}\n{\"text\": \"<svg>ab d\"}\n");
  const std::string model = "model_name_or_path=" + (folder / "model").string();
  const auto words = with(train_words(folder / "out"), {model, "dataset=" + (folder / "rows.jsonl").string(),
                                                        "stage=pt", "packing=false", "finetuning_type=full"});
  const Outcome without = run_fettle(folder, words);
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("token id 256 ('<svg>') is beyond the model's vocabulary of 256"));
  const Outcome run = run_fettle(folder, with(words, {"resize_vocab=true"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(folder / "out/config.json"))["vocab_size"], 320);
  EXPECT_EQ(embedding_of(folder / "out").size(), 320u);
  // Nothing is trained here, so the first 256 rows are the model's, and the new rows are near their mean.
  const Outcome exported =
      run_fettle(folder, {"export", model, "resize_vocab=true", "export_dir=" + (folder / "resized").string()});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const auto before = embedding_of(folder / "model"), after = embedding_of(folder / "resized");
  ASSERT_EQ(after.size(), 320u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
  EXPECT_NE(after[256], before[255]);
  EXPECT_NE(after[256], after[257]);  // the noise differs
}

TEST(NewTokens, StartAsTheMeanOfTheirDescription) {
  const TempFolder folder;
  write_text(folder / "tokens.yaml", "'<svg>': ab c\n'<dog>': d\n");
  write_text(folder / "texts", "ab c\nd\n<svg><dog>\n");
  const std::string model = reference_model("llama").string();
  const Outcome exported = run_fettle(folder, {"export", "model_name_or_path=" + model, "init_special_tokens=desc_init",
                                               "new_special_tokens_config=" + (folder / "tokens.yaml").string(),
                                               "export_dir=" + (folder / "new").string()});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Outcome ids =
      run_fettle(folder, {"tokenize", (folder / "new").string(), (folder / "texts").string(), "--no-special"});
  ASSERT_EQ(ids.out, "[10,11,94,12]\n[13]\n[256,257]\n");
  const auto before = embedding_of(model), after = embedding_of(folder / "new");
  for (size_t column = 0; column < before[0].size(); ++column) {
    const float mean = (before[10][column] + before[11][column] + before[94][column] + before[12][column]) / 4;
    EXPECT_NEAR(after[256][column], mean, 1e-7) << column;
    EXPECT_EQ(after[257][column], before[13][column]) << column;
  }
  write_text(folder / "tokens.yaml", "- <svg>\n");
  const Outcome bad =
      run_fettle(folder, {"export", "model_name_or_path=" + model, "export_dir=" + (folder / "bad").string(),
                          "new_special_tokens_config=" + (folder / "tokens.yaml").string()});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("wanted lines such as '<token>': its description"));
}

}  // namespace
}  // namespace fettle
