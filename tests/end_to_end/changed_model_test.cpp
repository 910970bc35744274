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
  EXPECT_THAT(run.err, HasSubstr("rope_scaling: yarn by 4: the model takes 512 positions instead of 128"));
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
                               HasSubstr("additional_target: embed_tokens")));
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

}  // namespace
}  // namespace fettle
