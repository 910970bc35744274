#include "data/classes/class_counts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace fettle {

int64_t ClassCounts::most() const {
  return std::ranges::max_element(rows) - rows.begin();
}

double ClassCounts::majority() const {
  if (rows.empty() || labelled == 0) return 0;
  return static_cast<double>(rows[static_cast<size_t>(most())]) / static_cast<double>(labelled);
}

ClassCounts count_classes(const Examples& examples, const LabelSet& labels) {
  ClassCounts out;
  const Problem problem = labels.problem;
  if (problem != Problem::kRegression) out.rows.resize(static_cast<size_t>(labels.size()), 0);
  double sum = 0;
  int64_t numbers = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i) {
    const std::span<const float> classes = examples.classes(i);
    ++(classes.empty() ? out.unlabelled : out.labelled);
    if (problem == Problem::kSingleLabel && !classes.empty()) ++out.rows[static_cast<size_t>(classes[0])];
    for (size_t k = 0; k < classes.size(); ++k) {
      if (problem == Problem::kMultiLabel) out.rows[k] += classes[k] != 0;
      if (problem != Problem::kRegression) continue;
      out.lowest = numbers == 0 ? classes[k] : std::min<double>(out.lowest, classes[k]);
      out.highest = numbers == 0 ? classes[k] : std::max<double>(out.highest, classes[k]);
      sum += classes[k];
      ++numbers;
    }
  }
  out.mean = numbers > 0 ? sum / static_cast<double>(numbers) : 0;
  return out;
}

std::string format_classes(const ClassCounts& counts, const LabelSet& labels) {
  const std::string without = counts.unlabelled > 0 ? fmt::format("; {} rows have no label", counts.unlabelled) : "";
  if (labels.problem == Problem::kRegression)
    return fmt::format("regression of {} number{} per row, {:.4g} to {:.4g}, mean {:.4g}{}", labels.size(),
                       labels.size() == 1 ? "" : "s", counts.lowest, counts.highest, counts.mean, without);
  std::vector<int64_t> order(counts.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return counts.rows[static_cast<size_t>(a)] > counts.rows[static_cast<size_t>(b)];
  });
  std::vector<std::string> shown;
  for (const int64_t k : order) {
    if (shown.size() == 8) {
      shown.push_back(
          fmt::format("... {} {}", labels.name(order.back()), counts.rows[static_cast<size_t>(order.back())]));
      break;
    }
    shown.push_back(fmt::format("{} {}", labels.name(k), counts.rows[static_cast<size_t>(k)]));
  }
  const bool single = labels.problem == Problem::kSingleLabel;
  std::string out =
      fmt::format("{}, {} per row: {}{}", labels.size(), single ? "one" : "several", fmt::join(shown, ", "), without);
  if (single && counts.labelled > 0)
    out +=
        fmt::format("; always predicting {} is right in {:.1f} %", labels.name(counts.most()), 100 * counts.majority());
  return out;
}

nlohmann::ordered_json classes_json(const ClassCounts& counts, const LabelSet& labels) {
  nlohmann::ordered_json out{{"labelled", counts.labelled}, {"unlabelled", counts.unlabelled}};
  if (labels.problem == Problem::kRegression) {
    out["lowest"] = counts.lowest, out["highest"] = counts.highest, out["mean"] = counts.mean;
    return out;
  }
  for (int64_t k = 0; k < labels.size(); ++k) out["rows"][labels.name(k)] = counts.rows[static_cast<size_t>(k)];
  out["majority"] = counts.majority();
  return out;
}

}  // namespace fettle
