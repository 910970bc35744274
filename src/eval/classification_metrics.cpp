#include "eval/classification_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace fettle {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Counts of rows for one label: `truth` counts rows that have the label, `said` counts rows for which the label was
// predicted, and `hits` counts rows that have the label and for which it was predicted.
struct LabelCounts {
  int64_t hits = 0, said = 0, truth = 0;
};

LabelScore score_of(const LabelCounts& counts) {
  return {share(counts.hits, counts.said), share(counts.hits, counts.truth),
          share(2 * counts.hits, counts.said + counts.truth), counts.truth};
}

void add_averages(ClassificationMetrics& scores, const std::vector<LabelCounts>& counts, bool only_met) {
  LabelCounts all;
  double met = 0;
  int64_t support = 0;
  for (const LabelCounts& one : counts) {
    const LabelScore score = score_of(one);
    scores.labels.push_back(score);
    all.hits += one.hits, all.said += one.said, all.truth += one.truth;
    support += one.truth;
    if (only_met && one.said + one.truth == 0) continue;
    met += 1;
    const auto weight = static_cast<double>(one.truth);
    scores.macro.precision += score.precision, scores.weighted.precision += weight * score.precision;
    scores.macro.recall += score.recall, scores.weighted.recall += weight * score.recall;
    scores.macro.f1 += score.f1, scores.weighted.f1 += weight * score.f1;
  }
  auto divide = [support](LabelScore& score, double by) {
    for (double* value : {&score.precision, &score.recall, &score.f1}) *value = by > 0 ? *value / by : 0;
    score.support = support;
  };
  divide(scores.macro, met);
  divide(scores.weighted, static_cast<double>(support));
  scores.micro = score_of(all);
}

// Returns the rank of each value in ascending order, counted from 1. Equal values share the mean of their ranks. No
// value may be NaN.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) out[order[j]] = (static_cast<double>(i + end) + 1) / 2;
    i = end;
  }
  return out;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto count = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

size_t widest(const std::vector<std::string>& names, size_t least) {
  for (const std::string& name : names) least = std::max(least, name.size());
  return least;
}

}  // namespace

double ClassificationMetrics::majority() const {
  int64_t most = 0;
  for (const LabelScore& label : labels) most = std::max(most, label.support);
  return share(most, rows);
}

ClassificationMetrics score_labels(std::span<const int64_t> truth, std::span<const int64_t> said, int64_t num_labels) {
  internal_check(truth.size() == said.size(), "score_labels: {} true labels, but {} predicted labels", truth.size(),
                 said.size());
  ClassificationMetrics out{.rows = static_cast<int64_t>(truth.size()), .one_label = true};
  if (num_labels <= kMostLabelsInConfusion) out.confusion.resize(static_cast<size_t>(num_labels * num_labels));
  std::vector<LabelCounts> counts(static_cast<size_t>(num_labels));
  int64_t right = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (!out.confusion.empty()) ++out.confusion[static_cast<size_t>(truth[i] * num_labels + said[i])];
    ++counts[static_cast<size_t>(truth[i])].truth;
    ++counts[static_cast<size_t>(said[i])].said;
    if (truth[i] != said[i]) continue;
    ++counts[static_cast<size_t>(said[i])].hits;
    ++right;
  }
  out.accuracy = share(right, out.rows);
  add_averages(out, counts, true);
  return out;
}

ClassificationMetrics score_label_sets(std::span<const uint8_t> truth, std::span<const uint8_t> said,
                                       int64_t num_labels) {
  internal_check(truth.size() == said.size(), "score_label_sets: {} true values, but {} predicted values", truth.size(),
                 said.size());
  ClassificationMetrics out{.rows = static_cast<int64_t>(truth.size()) / num_labels};
  std::vector<LabelCounts> counts(static_cast<size_t>(num_labels));
  int64_t right = 0;
  for (int64_t row = 0; row < out.rows; ++row) {
    bool equal = true;
    for (int64_t k = 0; k < num_labels; ++k) {
      const auto at = static_cast<size_t>(row * num_labels + k);
      LabelCounts& of_label = counts[static_cast<size_t>(k)];
      of_label.truth += truth[at];
      of_label.said += said[at];
      of_label.hits += truth[at] & said[at];
      equal = equal && truth[at] == said[at];
    }
    right += equal;
  }
  out.accuracy = share(right, out.rows);
  add_averages(out, counts, false);
  return out;
}

RegressionMetrics score_numbers(std::span<const double> truth, std::span<const double> said, int64_t numbers) {
  internal_check(truth.size() == said.size(), "score_numbers: {} true values, but {} predicted values", truth.size(),
                 said.size());
  RegressionMetrics out;
  const auto each = static_cast<size_t>(numbers);
  for (size_t n = 0; n < each && !truth.empty(); ++n) {
    std::vector<double> wanted, found;
    for (size_t i = n; i < truth.size(); i += each) wanted.push_back(truth[i]), found.push_back(said[i]);
    double squares = 0, distances = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      squares += (wanted[i] - found[i]) * (wanted[i] - found[i]);
      distances += std::abs(wanted[i] - found[i]);
    }
    const auto rows = static_cast<double>(wanted.size()), parts = static_cast<double>(numbers);
    out.mse += squares / rows / parts;
    out.mae += distances / rows / parts;
    const bool finite = std::ranges::all_of(found, [](double value) { return std::isfinite(value); });
    out.pearson += finite ? correlation(wanted, found) / parts : NAN;
    out.spearman += finite ? correlation(ranks(wanted), ranks(found)) / parts : NAN;
  }
  return out;
}

std::string format_scores(const ClassificationMetrics& scores, const std::vector<std::string>& names) {
  const size_t width = widest(names, std::string_view("weighted avg").size());
  std::string out = fmt::format("{:>{}}  precision    recall  f1-score   support\n\n", "", width);
  auto line = [&](const std::string& name, const LabelScore& score) {
    out += fmt::format("{:>{}} {:10.3f}{:10.3f}{:10.3f}{:10}\n", name, width, score.precision, score.recall, score.f1,
                       score.support);
  };
  for (size_t k = 0; k < names.size(); ++k) line(names[k], scores.labels[k]);
  out += "\n";
  if (scores.one_label)
    out += fmt::format("{:>{}} {:30.3f}{:10}\n", "accuracy", width, scores.accuracy, scores.rows);
  else
    line("micro avg", scores.micro);
  line("macro avg", scores.macro);
  line("weighted avg", scores.weighted);
  return out;
}

std::string format_confusion(const ClassificationMetrics& scores, const std::vector<std::string>& names) {
  const size_t labels = names.size();
  int64_t most = static_cast<int64_t>(labels);
  for (const int64_t count : scores.confusion) most = std::max(most, count);
  const size_t cell = std::to_string(most).size() + 1, width = widest(names, 4), number = std::to_string(labels).size();
  std::string out = fmt::format("lines: true labels; columns: predicted labels\n\n{:{}}", "", number + 1 + width + 1);
  for (size_t k = 0; k < labels; ++k) out += fmt::format("{:>{}}", k, cell);
  for (size_t t = 0; t < labels; ++t) {
    out += fmt::format("\n{:>{}} {:<{}} ", t, number, names[t], width);
    for (size_t k = 0; k < labels; ++k) {
      const int64_t count = scores.confusion[t * labels + k];
      out += fmt::format("{:>{}}", count == 0 ? "." : std::to_string(count), cell);
    }
  }
  return out + "\n";
}

}  // namespace fettle
