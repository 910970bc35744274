#include "data/batches/prefetcher.h"

namespace fettle {

Batch BatchPrefetcher::at(int64_t step) {
  Batch batch = coming_step_ == step && coming_.valid() ? coming_.get() : batches_.at(step, own_);
  coming_step_ = step + 1;
  coming_ = std::async(std::launch::async, [this, next = step + 1] { return batches_.at(next, own_); });
  return batch;
}

}  // namespace fettle
