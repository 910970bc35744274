#include "report/view/decimate.h"

#include <algorithm>

namespace fettle {

Curve decimate(const std::vector<LogRow>& rows, const LogSeries& series, LogAxis axis, int64_t points,
               CurveRange range) {
  // In the log of another program, the number of tokens may decrease, so the values in the range may not be
  // consecutive.
  std::vector<size_t> inside;
  for (size_t i = 0; i < series.rows.size(); ++i)
    if (const double x = rows[series.rows[i]].at(axis); x >= range.from && x <= range.to) inside.push_back(i);
  const auto count = static_cast<int64_t>(inside.size());
  const int64_t shown = std::min(count, std::max<int64_t>(1, points));
  Curve out;
  out.values = count;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t from = i * count / shown, to = (i + 1) * count / shown;
    double sum = 0, low = series.values[inside[from]], high = low;
    for (int64_t k = from; k < to; ++k) {
      const double value = series.values[inside[k]];
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const LogRow& row = rows[series.rows[inside[to - 1]]];
    out.x.push_back(row.at(axis));
    out.steps.push_back(row.step);
    out.mean.push_back(sum / static_cast<double>(to - from));
    if (shown == count) continue;
    out.low.push_back(low);
    out.high.push_back(high);
    out.counts.push_back(to - from);
  }
  return out;
}

}  // namespace fettle
