#include "plan/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/size_text.h"
#include "plan/say_work.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

constexpr int64_t kMostRows = 65536;  // upper limit of the search
constexpr int64_t kPadding = 8;       // rows are padded to a multiple of this many tokens

const char* key_of(FitBy by) {
  return by == FitBy::kBatch ? "per_device_train_batch_size" : "cutoff_len";
}

Variant with_size(Variant variant, FitBy by, int64_t size) {
  (by == FitBy::kBatch ? variant.per_device_train_batch_size : variant.cutoff_len) = size;
  return variant;
}

// Returns the distance between the sequence lengths that the search tries near `length`. There are at most 64 such
// lengths between one power of two and the next.
int64_t sequence_grain(int64_t length, int64_t splits) {
  const int64_t fine = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length))) / 64;
  return std::max(fine, kPadding * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(splits))));
}

}  // namespace

std::optional<int64_t> largest_size(const std::function<SizeTried(int64_t)>& try_size, int64_t start,
                                    const std::function<int64_t(int64_t)>& grain, int64_t most) {
  auto round_down = [&](int64_t size) { return size / grain(size) * grain(size); };
  const int64_t smallest = grain(1);
  most = round_down(most);
  if (most < smallest) return std::nullopt;
  auto on_grain = [&](double size) {
    const double within = std::clamp(size, static_cast<double>(smallest), static_cast<double>(most));
    return std::max(smallest, round_down(static_cast<int64_t>(within)));
  };
  std::optional<SizeTried> low, high;  // of the sizes tried, the largest that fits and the smallest that does not fit
  std::optional<SizeTried> before, last;
  int64_t next = on_grain(static_cast<double>(start));
  while (true) {
    const SizeTried tried = try_size(next);
    before = std::exchange(last, tried);
    std::optional<SizeTried>& side = tried.fits() ? low : high;
    side = tried;
    const int64_t least = low ? low->size + grain(low->size) : smallest;
    const int64_t greatest = high ? round_down(high->size - 1) : most;
    if (least > greatest) break;
    if (!before) {
      next = std::clamp(on_grain(static_cast<double>(tried.size) * (tried.fits() ? 2 : 0.5)), least, greatest);
      continue;
    }
    const double slope =
        static_cast<double>(tried.needed_bytes - before->needed_bytes) / static_cast<double>(tried.size - before->size);
    const double room = static_cast<double>(tried.limit_bytes - tried.needed_bytes);
    // When memory does not grow with the size, the next guess is the middle of the remaining range, or twice the size
    // when all sizes so far fit.
    const double guess = slope > 0 ? static_cast<double>(tried.size) + room / slope
                                   : static_cast<double>(high ? (least + greatest) / 2 : tried.size * 2);
    next = std::clamp(on_grain(guess), least, greatest);
  }
  return low ? std::optional(low->size) : std::nullopt;
}

StepPlan largest_fit(const Request& request, Variant variant, const Machine& machine, FitBy by) {
  if (machine.memory().limit == 0) throw UserError("--fit: the memory of {} is not known", machine.title());
  const Run run = request.resolve(machine.run_target(), Purpose::kTraining, variant);
  const int64_t splits = run.sharding.mesh().size_of("sp");
  if (variant.mesh && by == FitBy::kBatch)
    info("mesh: auto chose {}; set it in the recipe to use the batch size that is found here",
         mesh_title(run.sharding.mesh()));
  // The result is for a recipe that names the mesh. There, the recipe's own per_device_eval_batch_size counts for the
  // mesh.
  if (variant.mesh && by == FitBy::kBatch) variant.per_device_eval_batch_size.reset();
  const int64_t start = by == FitBy::kBatch ? run.rows_per_device : run.data.cutoff_len;
  const int64_t most = by == FitBy::kBatch ? kMostRows : std::max(run.model.config.max_position_embeddings, start);
  std::map<int64_t, StepPlan> plans;
  auto try_size = [&](int64_t size) -> SizeTried {
    say_work(fmt::format("compiling the step for {} with {} {}", machine.title(), key_of(by), size));
    StepPlan plan = plan_step(request, with_size(variant, by, size), machine);
    const MemoryTable memory = plan.memory;
    info("{} {}: {} of {}, {}", key_of(by), size, size_text(memory.peak), size_text(memory.share.limit),
         memory.fits() ? "fits" : "does not fit");
    plans.insert_or_assign(size, std::move(plan));
    return {size, memory.peak, memory.share.limit};
  };
  auto grain = [&](int64_t size) { return by == FitBy::kBatch ? 1 : sequence_grain(size, splits); };
  const auto best = largest_size(try_size, start, grain, most);
  if (!best) info("no {} fits {}", key_of(by), machine.title());
  return std::move(best ? plans.at(*best) : plans.begin()->second);
}

}  // namespace fettle
