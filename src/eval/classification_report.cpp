#include "eval/classification_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/output_file.h"
#include "report/confusion_plot.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostInPicture = 100, kMostInText = 60;

std::vector<std::string> names_of(const LabelSet& labels) {
  std::vector<std::string> names;
  for (int64_t k = 0; k < labels.size(); ++k) names.push_back(labels.name(k));
  return names;
}

double row_loss(std::span<const float> logits, std::span<const float> classes, Problem problem) {
  if (problem == Problem::kSingleLabel) {
    const double most = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    return most + std::log(sum) - logits[static_cast<size_t>(classes[0])];
  }
  double sum = 0;
  for (size_t k = 0; k < logits.size(); ++k) {
    const double x = logits[k], y = classes[k];
    sum += problem == Problem::kRegression ? (x - y) * (x - y)
                                           : std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::abs(x)));
  }
  return sum / static_cast<double>(logits.size());
}

ordered_json score_json(const LabelScore& score) {
  return {{"precision", score.precision}, {"recall", score.recall}, {"f1-score", score.f1}, {"support", score.support}};
}

}  // namespace

std::map<std::string, double> ClassificationReport::figures() const {
  if (problem == Problem::kRegression)
    return {{"mse", numbers.mse}, {"mae", numbers.mae}, {"pearson", numbers.pearson}, {"spearman", numbers.spearman}};
  return {{problem == Problem::kSingleLabel ? "accuracy" : "exact_match", scores.accuracy},
          {"f1_macro", scores.macro.f1},
          {"f1_micro", scores.micro.f1}};
}

std::vector<double> probabilities(std::span<const float> logits, Problem problem) {
  std::vector<double> out(logits.begin(), logits.end());
  if (problem == Problem::kRegression) return out;
  if (problem == Problem::kMultiLabel) {
    for (double& value : out) value = 1 / (1 + std::exp(-value));
    return out;
  }
  const double most = *std::ranges::max_element(out);
  double sum = 0;
  for (double& value : out) sum += value = std::exp(value - most);
  for (double& value : out) value /= sum;
  return out;
}

std::vector<float> predicted_classes(std::span<const float> logits, Problem problem) {
  if (problem == Problem::kSingleLabel) return {static_cast<float>(std::ranges::max_element(logits) - logits.begin())};
  std::vector<float> out(logits.begin(), logits.end());
  if (problem == Problem::kMultiLabel)
    for (float& value : out) value = value > 0 ? 1 : 0;
  return out;
}

ClassificationReport classification_report(const Examples& rows, std::span<const float> logits,
                                           const LabelSet& labels) {
  const auto each = static_cast<size_t>(labels.size());
  internal_check(logits.size() == rows.size() * each, "{} logits do not fit {} rows of {} labels", logits.size(),
                 rows.size(), labels.size());
  ClassificationReport out{.problem = labels.problem, .logits = {logits.begin(), logits.end()}};
  std::vector<int64_t> truth, said;
  std::vector<uint8_t> true_sets, said_sets;
  std::vector<double> true_numbers, said_numbers;
  double loss = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> classes = rows.classes(static_cast<int64_t>(i));
    if (classes.empty()) continue;
    const std::span<const float> found = logits.subspan(i * each, each);
    loss += row_loss(found, classes, out.problem);
    ++out.rows;
    const std::vector<float> predicted = predicted_classes(found, out.problem);
    if (out.problem == Problem::kSingleLabel) {
      truth.push_back(static_cast<int64_t>(classes[0]));
      said.push_back(static_cast<int64_t>(predicted[0]));
    } else if (out.problem == Problem::kMultiLabel) {
      true_sets.insert(true_sets.end(), classes.begin(), classes.end());
      said_sets.insert(said_sets.end(), predicted.begin(), predicted.end());
    } else {
      true_numbers.insert(true_numbers.end(), classes.begin(), classes.end());
      said_numbers.insert(said_numbers.end(), predicted.begin(), predicted.end());
    }
  }
  out.loss = loss / static_cast<double>(std::max<int64_t>(out.rows, 1));
  switch (out.problem) {
    case Problem::kSingleLabel: out.scores = score_labels(truth, said, labels.size()); break;
    case Problem::kMultiLabel: out.scores = score_label_sets(true_sets, said_sets, labels.size()); break;
    case Problem::kRegression: out.numbers = score_numbers(true_numbers, said_numbers, labels.size()); break;
  }
  return out;
}

std::string format_class_tables(const ClassificationReport& evaluation, const LabelSet& labels) {
  if (evaluation.problem == Problem::kRegression) return "";
  const std::vector<std::string> names = names_of(labels);
  std::string out = format_scores(evaluation.scores, names);
  if (evaluation.problem == Problem::kSingleLabel && labels.size() <= kMostInText)
    out += "\n" + format_confusion(evaluation.scores, names);
  return out;
}

void write_class_report(const std::filesystem::path& folder, const ClassificationReport& evaluation,
                        const LabelSet& labels) {
  if (evaluation.rows == 0) return;
  const std::vector<std::string> names = names_of(labels);
  const ClassificationMetrics& scores = evaluation.scores;
  ordered_json report{{"rows", evaluation.rows}, {"loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.figures()) report[name] = value;
  if (evaluation.problem != Problem::kRegression) {
    if (evaluation.problem == Problem::kSingleLabel) report["majority"] = scores.majority();
    for (size_t k = 0; k < names.size(); ++k) report["labels"][names[k]] = score_json(scores.labels[k]);
    report["micro avg"] = score_json(scores.micro);
    report["macro avg"] = score_json(scores.macro);
    report["weighted avg"] = score_json(scores.weighted);
  }
  if (!scores.confusion.empty()) {
    ordered_json lines = ordered_json::array();
    for (size_t t = 0; t < names.size(); ++t)
      lines.push_back(
          std::vector<int64_t>(scores.confusion.begin() + static_cast<std::ptrdiff_t>(t * names.size()),
                               scores.confusion.begin() + static_cast<std::ptrdiff_t>((t + 1) * names.size())));
    report["confusion"] = lines;
    if (labels.size() <= kMostInPicture)
      write_confusion_plot(folder / "confusion", {.title = fmt::format("accuracy {:.1f} % on {} rows",
                                                                       100 * scores.accuracy, evaluation.rows),
                                                  .names = names,
                                                  .counts = scores.confusion});
  }
  write_file(folder / "classification_report.json",
             report.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  std::string text = fmt::format("rows {}\nloss {:.4f}\n", evaluation.rows, evaluation.loss);
  for (const auto& [name, value] : evaluation.figures()) text += fmt::format("{} {:.4f}\n", name, value);
  if (evaluation.problem == Problem::kSingleLabel)
    text += fmt::format("accuracy of always predicting the most frequent label {:.4f}\n", scores.majority());
  write_file(folder / "classification_report.txt", text + "\n" + format_class_tables(evaluation, labels));
}

}  // namespace fettle
