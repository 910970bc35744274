// Defines decimate, which makes a long series short enough to draw.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "report/view/run_log.h"

namespace fettle {

// Points of a chart. Each point stands for one or more values: `counts` is their number, `mean` is their mean, and
// `low` and `high` are the smallest and the largest of them, so that no peak disappears. All vectors have the same
// length; `low`, `high` and `counts` are empty if every point stands for one value.
struct Curve {
  std::vector<double> x, steps, mean, low, high;
  std::vector<int64_t> counts;
  int64_t values = 0;  // number of values that all points together stand for
};

struct CurveRange {
  double from = -std::numeric_limits<double>::infinity(), to = std::numeric_limits<double>::infinity();
};

// Returns at most `points` points (below 1 counts as 1) for the values whose coordinate on `axis` is in the range, both
// ends included. Divides these values into consecutive groups, one for each point; the sizes of the groups differ by at
// most one. A point has the coordinate and the step of its group's last value.
Curve decimate(const std::vector<LogRow>& rows, const LogSeries& series, LogAxis axis, int64_t points,
               CurveRange range = {});

}  // namespace fettle
