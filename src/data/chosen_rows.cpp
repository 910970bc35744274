#include "data/chosen_rows.h"

#include <algorithm>
#include <cmath>

#include "data/batches/order.h"

namespace fettle {
namespace {

constexpr uint64_t kSampleStream = uint64_t{1} << 62;

}  // namespace

ChosenRows chosen_rows(int64_t count, const DataSource& source, const DataSpec& spec) {
  ChosenRows out;
  if (source.first_rows || source.first_share) {
    const int64_t slice =
        source.first_rows ? *source.first_rows : std::llround(*source.first_share * static_cast<double>(count));
    count = std::min(count, slice);
    out.by.emplace_back("the slice in `split`");
  }
  const int64_t wanted = source.num_samples.value_or(count);
  const int64_t kept = std::min(wanted, spec.max_samples.value_or(INT64_MAX));
  if (source.num_samples) out.by.emplace_back("num_samples");
  if (kept < wanted) out.by.emplace_back("max_samples");
  if (count == 0) return out;
  const int64_t in_order = source.num_samples ? kept / count * count : kept;
  for (int64_t i = 0; i < in_order; ++i) out.rows.push_back(i % count);
  for (int64_t i = 0; i < kept - in_order; ++i) out.rows.push_back(permuted_index(i, count, spec.seed, kSampleStream));
  std::sort(out.rows.begin() + in_order, out.rows.end());
  return out;
}

}  // namespace fettle
