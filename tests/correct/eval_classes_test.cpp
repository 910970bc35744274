// Tests `fettle eval` on a classifier of tests/reference: metrics, predictions, rows without a label.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "correct/generate_models.h"
#include "eval/eval.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class EvalClasses : public testing::Test {
 protected:
  // Makes an encoder with three labels and a tokenizer.
  EvalClasses() {
    const fs::path model = temp / "model";
    fs::create_directories(model);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy(kReferenceModels / "bert" / file, model);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy(kReferenceModels / "llama" / file, model);
    recipe.model_name_or_path = model.string();
    recipe.data_cache = "off";
    recipe.plugin = "cpu";
    recipe.per_device_eval_batch_size = 4;
    recipe.output_dir = (temp / "out").string();
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(temp / name) << text;
    return (temp / name).string();
  }
  Json lines(const fs::path& path) {
    Json out = Json::array();
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  }
  TempFolder temp;
  Recipe recipe;
};

TEST_F(EvalClasses, FiguresAndPredictions) {
  recipe.eval_dataset = {
      file("rows.csv", "text,label\nsome words,0\nother words,1\nand more of them,2\nmore,0\nlast,1\n"),
      file("bare.jsonl", "{\"sentence1\": \"some\", \"sentence2\": \"words\"}\n")};
  EXPECT_TRUE(Request(recipe, Command::kEval).stage().head == Head::kLabels);
  std::ostringstream out;
  EXPECT_EQ(run_eval(Request(recipe, Command::kEval), true, out), 0);
  const Json result = Json::parse(out.str());
  EXPECT_EQ(result["sets"][0]["task"], "classes");
  EXPECT_EQ(result["sets"][0]["items"], 5);
  EXPECT_EQ(result["sets"][0]["model"]["majority"], 40);
  EXPECT_TRUE(result["sets"][1]["model"].empty());
  // The metrics are computed from what the predictions file contains.
  fs::path folder;
  for (const auto& entry : fs::directory_iterator(temp / "out"))
    if (entry.is_directory() && entry.path().string().ends_with("rows.csv")) folder = entry.path();
  const Json rows = lines(folder / "predictions.jsonl");
  ASSERT_EQ(rows.size(), 5u);
  int right = 0;
  double loss = 0;
  for (const Json& row : rows) {
    double sum = 0;
    std::string best;
    for (const auto& [name, share] : row["probabilities"].items()) {
      sum += share.get<double>();
      if (best.empty() || share > row["probabilities"][best]) best = name;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_EQ(row["predict"], best);
    right += row["predict"] == row["label"];
    loss -= std::log(row["probabilities"][row["label"].get<std::string>()].get<double>());
  }
  EXPECT_EQ(rows[4]["source"], recipe.eval_dataset[0] + ":6");
  EXPECT_DOUBLE_EQ(result["sets"][0]["model"]["accuracy"], 20.0 * right);
  EXPECT_NEAR(result["sets"][0]["model"]["loss"], loss / 5, 1e-6);
  EXPECT_TRUE(fs::exists(folder / "confusion.svg"));
}

// A path may be longer than the name of a folder.
TEST_F(EvalClasses, SetsWithLongNamesHaveTheirOwnFiles) {
  const std::string deep = std::string(150, 'd') + "/" + std::string(150, 'e') + "/";
  fs::create_directories(temp / deep);
  for (const char* name : {"a.csv", "b.csv"})
    recipe.eval_dataset.push_back(file(deep + name, "text,label\nsome words,0\nother words,1\n"));
  std::ostringstream out;
  EXPECT_EQ(run_eval(Request(recipe, Command::kEval), true, out), 0);
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(temp / "out"))
    if (entry.is_directory()) folders += lines(entry.path() / "predictions.jsonl").size() == 2;
  EXPECT_EQ(folders, 2u);
}

TEST_F(EvalClasses, SetsWhoseNamesDifferOnlyInASlashHaveTheirOwnFiles) {
  fs::create_directories(temp / "a");
  recipe.eval_dataset = {file("a/b.csv", "text,label\nsome words,0\nother words,1\n"),
                         file("a_b.csv", "text,label\nsome words,0\nother words,1\nmore,2\n")};
  std::ostringstream out;
  EXPECT_EQ(run_eval(Request(recipe, Command::kEval), true, out), 0);
  std::vector<size_t> sizes;
  for (const auto& entry : fs::directory_iterator(temp / "out"))
    if (entry.is_directory()) sizes.push_back(lines(entry.path() / "predictions.jsonl").size());
  EXPECT_THAT(sizes, testing::UnorderedElementsAre(2u, 3u));
}

TEST_F(EvalClasses, AModelThatWasMadeFromScratchIsTheOneOnTheDisk) {
  recipe.stage = "cls";
  recipe.eval_dataset = {file("rows.csv", "text,label\nsome words,0\nother words,1\n")};
  auto measured = [&] {
    std::ostringstream out;
    run_eval(Request(recipe, Command::kEval), true, out);
    return Json::parse(out.str())["sets"];
  };
  const Json wanted = measured();
  recipe.train_from_scratch = true;
  EXPECT_EQ(measured(), wanted);
}

TEST_F(EvalClasses, ImpossibleRequestsAreRefused) {
  recipe.eval_dataset = {file("rows.csv", "text,label\nsome words,7\n")};
  auto said = [&] {
    return user_error([&] {
      std::ostringstream out;
      run_eval(Request(recipe, Command::kEval), false, out);
    });
  };
  EXPECT_THAT(said(), HasSubstr("rows.csv:2: the label \"7\" is not one of the 3 labels"));
  recipe.eval_task = {"choice"};
  EXPECT_THAT(said(), HasSubstr("eval_task: choice asks for text"));
  recipe.eval_task = {"auto"};
  recipe.stage = "cls";
  recipe.model_name_or_path = (kReferenceModels / "llama").string();
  EXPECT_THAT(said(), HasSubstr("neither this model nor an adapter was trained to give labels"));
  fs::create_directories(temp / "adapter");
  recipe.adapter_name_or_path = {(temp / "adapter").string()};
  EXPECT_THAT(said(), HasSubstr("adapter_config.json is missing; set adapter_name_or_path to a folder"));
}

TEST_F(EvalClasses, RequestsThatWouldGiveWrongMetricsAreRefused) {
  recipe.eval_dataset = {file("rows.csv", "text,label\nsome words,0\nother words,1\n")};
  auto said = [&] {
    return user_error([&] {
      std::ostringstream out;
      run_eval(Request(recipe, Command::kEval), false, out);
    });
  };
  recipe.eval_base_model = (kReferenceModels / "llama").string();
  EXPECT_THAT(said(), HasSubstr("was not trained to give labels; name a classifier with the same labels"));
  Json config = Json::parse(std::ifstream(temp / "model/config.json"));
  config["id2label"] = {{"0", "red"}, {"1", "green"}, {"2", "blue"}};
  std::ofstream(temp / "model/config.json") << config;
  recipe.eval_dataset = {file("named.csv", "text,label\nsome words,red\nother words,blue\n")};
  recipe.eval_base_model = (kReferenceModels / "bert").string();
  EXPECT_THAT(said(), HasSubstr("has other labels than"));
  recipe.eval_base_model.clear();
  recipe.id2label = {"blue", "green", "red"};
  EXPECT_THAT(said(), HasSubstr("the order of these names is [red, green, blue]"));
  recipe.id2label.clear();
  std::string words;
  for (int i = 0; i < 400; ++i) words += " w" + std::to_string(i);
  recipe.eval_dataset = {file("long.csv", "text,label\n" + words + ",red\nsome,blue\n")};
  recipe.cutoff_len = 2048;
  recipe.places.set("cutoff_len", "override");
  EXPECT_THAT(said(), HasSubstr("but the model has learned embeddings for"));
}

TEST(EvalReward, CountsThePairsInTheRightOrder) {
  const TempFolder temp;
  Recipe recipe;
  recipe.stage = "rm";
  recipe.model_name_or_path = (kReferenceModels / "llama").string();
  recipe.template_name = "vicuna";
  recipe.data_cache = "off";
  recipe.plugin = "cpu";
  recipe.per_device_eval_batch_size = 2;
  std::ofstream(temp / "rows.jsonl") << R"({"prompt": "a b", "chosen": "c d", "rejected": "e f g"})"
                                     << "\n"
                                     << R"({"prompt": "a b", "chosen": "e f g", "rejected": "c d"})"
                                     << "\n";
  recipe.eval_dataset = {(temp / "rows.jsonl").string()};
  std::ostringstream out;
  EXPECT_THAT(user_error([&] { run_eval(Request(recipe, Command::kEval), true, out); }),
              HasSubstr("neither this model nor an adapter was trained to give scores"));
  recipe.adapter_name_or_path = {(kReferenceModels / "llama/adapter_final").string()};
  EXPECT_THAT(user_error([&] { run_eval(Request(recipe, Command::kEval), true, out); }),
              HasSubstr("neither this model nor an adapter was trained to give scores"));
  recipe.adapter_name_or_path = {(kReferenceModels / "llama/reward_init").string()};
  EXPECT_EQ(run_eval(Request(recipe, Command::kEval), true, out), 0);
  const Json found = Json::parse(out.str())["sets"][0]["model"];
  EXPECT_EQ(found["accuracy"], 50) << "the second pair is the first one with its replies swapped";
  EXPECT_NEAR(found["margin"], 0, 1e-6);
  EXPECT_GT(found["loss"], std::log(2.0)) << "the two scores differ";
}

}  // namespace
}  // namespace fettle
