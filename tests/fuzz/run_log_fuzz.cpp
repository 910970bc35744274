// Reads any bytes as trainer_log.jsonl: at once, as a file that grows, and with only the last values kept. All must
// give the same figures. Then shortens every series.
#include <algorithm>

#include "fuzz/fuzzed.h"
#include "report/view/decimate.h"
#include "report/view/run_log.h"
#include "temp_folder.h"

using namespace fettle;

namespace {

constexpr const char* kLog = "trainer_log.jsonl";

void check(bool holds) {
  if (!holds) abort();
}

bool same(const RunLog& a, const RunLog& b) {
  const auto same_series = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.rows == y.second.rows && x.second.values == y.second.values;
  };
  return a.rows().size() == b.rows().size() && a.damaged() == b.damaged() && a.total_steps() == b.total_steps() &&
         std::ranges::equal(a.series(), b.series(), same_series);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  const FolderFiles files(folder.path());
  const std::string text(reinterpret_cast<const char*>(data), size), half = text.substr(0, size / 2);
  return take_input(data, half.size(), folder / kLog, [&] {
    RunLog grown, whole, end(RunLog::Keep::kLast);
    grown.update(files, kLog);
    std::ofstream(folder / kLog, std::ios::binary | std::ios::app) << text.substr(half.size());
    grown.update(files, kLog);
    whole.update(files, kLog);
    end.update(files, kLog);
    check(same(grown, whole));
    check(end.rows().size() == std::min<size_t>(1, whole.rows().size()) && end.damaged() == whole.damaged());
    check(end.rows().empty() || end.rows()[0].seconds == whole.rows().back().seconds);
    for (const auto& [name, series] : whole.series()) {
      // A value before the last row may be older than that of kLast, because rows were removed when the step went back.
      const std::optional<double> last = end.last(name);
      check(!last || series.rows.back() + 1 != whole.rows().size() || last == whole.last(name));
      for (const LogAxis axis : {LogAxis::kStep, LogAxis::kSeconds, LogAxis::kTokens, LogAxis::kEpoch}) {
        const Curve curve = decimate(whole.rows(), series, axis, 3, {.from = -1e300, .to = 1e300});
        int64_t values = curve.counts.empty() ? std::ssize(curve.x) : 0;
        for (const int64_t count : curve.counts) values += count;
        check(curve.x.size() <= 3 && values == curve.values && curve.values <= std::ssize(series.values));
      }
    }
  });
}
