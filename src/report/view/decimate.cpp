#include "report/view/decimate.h"

#include <algorithm>

namespace fettle {

Curve decimate(const std::vector<LogRow>& rows, const LogSeries& series, LogAxis axis, int64_t points,
               CurveRange range) {
  const auto place = [&](uint32_t row) { return rows[row].at(axis); };
  // In a log that Fettle wrote, coordinates never decrease, so the rows of the range are consecutive.
  const auto first = std::ranges::lower_bound(series.rows, range.from, {}, place);
  const auto last = std::ranges::upper_bound(first, series.rows.end(), range.to, {}, place);
  const int64_t begin = first - series.rows.begin(), count = last - first;
  const int64_t shown = std::min(count, std::max<int64_t>(1, points));
  Curve out;
  out.values = count;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t from = begin + i * count / shown, to = begin + (i + 1) * count / shown;
    double sum = 0, low = series.values[from], high = low;
    for (int64_t k = from; k < to; ++k) {
      sum += series.values[k];
      low = std::min(low, series.values[k]);
      high = std::max(high, series.values[k]);
    }
    const LogRow& row = rows[series.rows[to - 1]];
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
