#include "jinja/budget.h"

namespace fettle::jinja {
namespace {

thread_local Budget* in_force = nullptr;

}  // namespace

Budget::Budget(Limits limits) : outer_(std::exchange(in_force, this)), limits_(limits) {}
Budget::~Budget() {
  in_force = outer_;
}

void Budget::step(size_t steps) {
  if (in_force == nullptr) return;
  const size_t most = in_force->limits_.steps;
  if (steps > most - in_force->steps_) throw JinjaError("the template takes more than {} steps", most);
  in_force->steps_ += steps;
}

void Budget::charge(size_t bytes) {
  if (in_force == nullptr) return;
  const size_t most = in_force->limits_.bytes;
  if (bytes > most - in_force->bytes_)
    throw JinjaError("the values that the template makes exceed the limit of {} MiB", most >> 20);
  in_force->bytes_ += bytes;
}

void Budget::fit(size_t bytes) {
  if (in_force != nullptr && bytes > kLongestText) {
    throw JinjaError("the template makes a text longer than the limit of {} MiB", kLongestText >> 20);
  }
}

}  // namespace fettle::jinja
