// Compares a classifier's metrics with values recorded from scikit-learn and SciPy (tests/reference/class_scores.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "eval/classification_report.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

Json recorded() {
  return Json::parse(std::ifstream(source_folder() / "tests/reference/class_scores.json"));
}

void expect_score(const LabelScore& found, const Json& wanted) {
  EXPECT_NEAR(found.precision, wanted["precision"].get<double>(), 1e-12);
  EXPECT_NEAR(found.recall, wanted["recall"].get<double>(), 1e-12);
  EXPECT_NEAR(found.f1, wanted["f1"].get<double>(), 1e-12);
}

void expect_scores(const ClassificationMetrics& found, const Json& wanted) {
  EXPECT_NEAR(found.accuracy, wanted["accuracy"].get<double>(), 1e-12);
  expect_score(found.micro, wanted["micro"]);
  expect_score(found.macro, wanted["macro"]);
  expect_score(found.weighted, wanted["weighted"]);
  ASSERT_EQ(found.labels.size(), wanted["labels"].size());
  for (size_t k = 0; k < found.labels.size(); ++k) {
    expect_score(found.labels[k], wanted["labels"][k]);
    EXPECT_EQ(found.labels[k].support, wanted["labels"][k]["support"].get<int64_t>());
  }
}

template <typename T>
std::vector<T> list(const Json& values) {
  return values.get<std::vector<T>>();
}

TEST(ClassificationMetrics, WithOneLabelEqualTheRecorded) {
  const Json all = recorded();
  for (const Json& one : all["single"]) {
    const ClassificationMetrics found =
        score_labels(list<int64_t>(one["truth"]), list<int64_t>(one["said"]), one["num_labels"]);
    expect_scores(found, one["scores"]);
    EXPECT_EQ(found.confusion, list<int64_t>(one["confusion"]));
  }
  const Json& first = all["single"][0];
  const ClassificationMetrics found = score_labels(list<int64_t>(first["truth"]), list<int64_t>(first["said"]), 3);
  EXPECT_EQ(format_scores(found, {"admin", "libs", "x11"}), all["report"].get<std::string>());
  EXPECT_NEAR(found.majority(), 19.0 / 40, 1e-12);
}

TEST(ClassificationMetrics, WithSeveralLabelsOrNumbersEqualTheRecorded) {
  const Json all = recorded();
  for (const Json& one : all["several"])
    expect_scores(score_label_sets(list<uint8_t>(one["truth"]), list<uint8_t>(one["said"]), one["num_labels"]),
                  one["scores"]);
  for (const Json& one : all["numbers"]) {
    const RegressionMetrics found =
        score_numbers(list<double>(one["truth"]), list<double>(one["said"]), one["numbers"]);
    EXPECT_NEAR(found.mse, one["mse"].get<double>(), 1e-12);
    EXPECT_NEAR(found.mae, one["mae"].get<double>(), 1e-12);
    EXPECT_NEAR(found.pearson, one["pearson"].get<double>(), 1e-12);
    EXPECT_NEAR(found.spearman, one["spearman"].get<double>(), 1e-12);
  }
}

TEST(ClassificationMetrics, OfPredictionsThatAreNotFiniteAreNotANumber) {
  const std::vector<double> truth = {1, 2, 3}, said = {1, NAN, 2};
  const RegressionMetrics found = score_numbers(truth, said, 1);
  for (const double value : {found.mse, found.mae, found.pearson, found.spearman}) EXPECT_TRUE(std::isnan(value));
}

TEST(ClassificationMetrics, OfManyLabelsHaveNoConfusionTable) {
  const std::vector<int64_t> truth = {0, 19'999, 7}, said = {0, 19'999, 8};
  const ClassificationMetrics found = score_labels(truth, said, 20'000);
  EXPECT_TRUE(found.confusion.empty());
  EXPECT_NEAR(found.accuracy, 2.0 / 3, 1e-12);
  EXPECT_NEAR(found.macro.f1, 2.0 / 4, 1e-12);
  EXPECT_NE(format_scores(found, std::vector<std::string>(20'000, "x")).find("accuracy"), std::string::npos);
}

TEST(ClassificationMetrics, TheConfusionAsText) {
  const std::vector<int64_t> truth = {0, 0, 1, 1, 1}, said = {0, 1, 1, 1, 1};
  EXPECT_EQ(format_confusion(score_labels(truth, said, 2), {"ham", "spam"}),
            "lines: true labels; columns: predicted labels\n"
            "\n"
            "        0 1\n"
            "0 ham   1 1\n"
            "1 spam  . 3\n");
}

Examples rows_of(const std::vector<std::vector<float>>& classes) {
  std::vector<Example> rows;
  for (const auto& one : classes) {
    Example row{{1}, {kIgnore}, "rows.jsonl:1"};
    row.classes = one;
    rows.push_back(row);
  }
  return rows;
}

TEST(ClassificationReport, LossesAreThoseOfTransformers) {
  const LabelSet names{Problem::kSingleLabel, {"a", "b"}};
  const std::vector<float> logits = {1, 2, 0, 0, 5, 5};
  // The last row has no label.
  const ClassificationReport one = classification_report(rows_of({{0}, {1}, {}}), logits, names);
  EXPECT_EQ(one.rows, 2);
  EXPECT_NEAR(one.loss, (std::log(1 + std::exp(1)) + std::log(2)) / 2, 1e-12);
  EXPECT_NEAR(one.figures().at("accuracy"), 0, 1e-12);
  const LabelSet sets{Problem::kMultiLabel, {"a", "b"}};
  const ClassificationReport several = classification_report(rows_of({{1, 0}}), std::vector<float>{1, -2}, sets);
  EXPECT_NEAR(several.loss, (std::log1p(std::exp(-1)) + std::log1p(std::exp(-2))) / 2, 1e-12);
  EXPECT_EQ(several.figures().at("exact_match"), 1);
  const LabelSet numbers{Problem::kRegression, {"LABEL_0"}};
  EXPECT_NEAR(classification_report(rows_of({{1}, {2}}), std::vector<float>{1.5, 4}, numbers).loss, (0.25 + 4) / 2,
              1e-12);
}

TEST(ClassificationReport, ProbabilitiesOfLargeLogitsAreFinite) {
  const std::vector<double> shares = probabilities(std::vector<float>{1000, 999}, Problem::kSingleLabel);
  EXPECT_NEAR(shares[0], 1 / (1 + std::exp(-1)), 1e-12);
  EXPECT_NEAR(probabilities(std::vector<float>{-500}, Problem::kMultiLabel)[0], 0, 1e-12);
}

TEST(ClassificationReport, WritesTheReportAndThePicture) {
  const TempFolder folder;
  const LabelSet names{Problem::kSingleLabel, {"ham & eggs", "spam"}};
  const ClassificationReport found =
      classification_report(rows_of({{0}, {1}, {1}}), std::vector<float>{2, 1, 3, 0, 0, 1}, names);
  write_class_report(folder.path(), found, names);
  const Json report = Json::parse(std::ifstream(folder.path() / "classification_report.json"));
  EXPECT_NEAR(report["accuracy"].get<double>(), 2.0 / 3, 1e-12);
  EXPECT_EQ(report["confusion"], (Json{{1, 0}, {1, 1}}));
  EXPECT_EQ(report["labels"]["spam"]["support"], 2);
  auto text = [&](const char* name) {
    std::ifstream file(folder.path() / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_NE(text("classification_report.txt").find("macro avg"), std::string::npos);
  const std::string picture = text("confusion.svg");
  EXPECT_NE(picture.find("<svg"), std::string::npos);
  write_class_report(folder.path(), found, names);
  EXPECT_EQ(text("confusion.svg"), picture);
  EXPECT_EQ(text("confusion.png").substr(1, 3), "PNG");
}

}  // namespace
}  // namespace fettle
