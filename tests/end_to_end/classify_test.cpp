// Tests a classifier as a user does: labels from the rows, metrics during training, and the same metrics from `eval`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Returns rows with three labels. The first word of a text decides its label.
std::string rows_text(int count) {
  const char* const labels[] = {"red", "green", "blue"};
  std::string lines = "text,label\n";
  for (int i = 0; i < count; ++i)
    lines += std::string(labels[i % 3]) + " number " + std::to_string(i) + "," + labels[i % 3] + "\n";
  return lines;
}

std::string encoder(const TempFolder& folder) {
  const std::filesystem::path model = folder / "model";
  std::filesystem::create_directories(model);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(reference_model("bert") / file, model);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(reference_model("llama") / file, model);
  // With this architecture, the copy is an encoder that is not a classifier yet.
  json config = json::parse(read_text(model / "config.json"));
  config["architectures"] = {"BertModel"};
  write_text(model / "config.json", config.dump());
  return model.string();
}

TEST(Classify, TrainAndEvalReportTheSameMetrics) {
  TempFolder folder;
  write_text(folder / "rows.csv", rows_text(24));
  const std::string model = encoder(folder), out = (folder / "out").string();
  const Outcome run =
      run_fettle(folder, with(train_words(out), {"model_name_or_path=" + model, "stage=cls", "finetuning_type=lora",
                                                 "dataset=" + (folder / "rows.csv").string(),
                                                 "eval_dataset=" + (folder / "rows.csv").string(), "max_steps=12",
                                                 "learning_rate=0.01", "eval_strategy=steps", "eval_steps=12"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("labels: 3, one per row: blue 8, green 8, red 8; always predicting blue is right in 33.3 %"));
  const json results = json::parse(read_text(folder / "out/all_results.json"));
  EXPECT_GT(results["eval_accuracy"].get<double>(), 0.5);
  EXPECT_TRUE(results.contains("eval_f1_macro"));
  EXPECT_FALSE(results.contains("eval_perplexity"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/confusion.svg"));
  const json report = json::parse(read_text(folder / "out/classification_report.json"));
  EXPECT_EQ(report["accuracy"], results["eval_accuracy"]);

  // The adapter's folder has the labels, so the key `stage` is not needed.
  write_text(folder / "bare.jsonl", "{\"text\": \"red number 99\"}\n");
  const Outcome eval =
      run_fettle(folder, {"eval", "model_name_or_path=" + model, "adapter_name_or_path=" + out, "plugin=cpu",
                          "data_cache=off", "--json", "eval_dataset=" + (folder / "rows.csv").string()});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const json figures = json::parse(eval.out)["sets"][0]["model"];
  EXPECT_NEAR(figures["loss"].get<double>(), results["eval_loss"].get<double>(), 1e-5);
  EXPECT_NEAR(figures["accuracy"].get<double>(), 100 * results["eval_accuracy"].get<double>(), 1e-9);
  const Outcome bare = run_fettle(
      folder, {"eval", "model_name_or_path=" + model, "adapter_name_or_path=" + out, "plugin=cpu", "data_cache=off",
               "output_dir=" + (folder / "said").string(), "eval_dataset=" + (folder / "bare.jsonl").string()});
  ASSERT_EQ(bare.code, 0) << bare.err;
  const json said = json::parse(read_text(folder / "said/predictions.jsonl"));
  EXPECT_TRUE(said["probabilities"].contains(said["predict"].get<std::string>()));
  EXPECT_FALSE(said.contains("label"));
}

}  // namespace
}  // namespace fettle
