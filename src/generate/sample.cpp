#include "generate/sample.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/random.h"

namespace fettle {
namespace {

void penalise(std::vector<float>& logits, const SamplingOptions& options, const TokensBefore& before) {
  if (options.repetition_penalty == 1 && options.presence_penalty == 0 && options.frequency_penalty == 0) return;
  std::map<int32_t, int64_t> counts;  // how often the reply has each token of the prompt and the reply
  for (const int32_t id : before.prompt) counts.try_emplace(id, 0);
  for (const int32_t id : before.reply) ++counts[id];
  for (const auto& [id, count] : counts) {
    if (id < 0 || id >= static_cast<int64_t>(logits.size())) continue;
    double logit = logits[id];
    logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (count > 0) logit -= options.presence_penalty + static_cast<double>(count) * options.frequency_penalty;
    logits[id] = static_cast<float>(logit);
  }
}

int32_t largest(const std::vector<float>& logits) {
  if (logits.empty() || std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }))
    throw UserError("{}", kBrokenLogits);
  const auto at = std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(*at)) throw UserError("the model's largest logit is {}: its weights are broken", *at);
  return static_cast<int32_t>(at - logits.begin());
}

// Keeps the tokens that are at least p times as likely as the most likely one.
void keep_min_p(const std::vector<float>& logits, int32_t best, const SamplingOptions& options,
                std::vector<int32_t>& ids) {
  if (options.min_p <= 0) return;
  const double least = logits[best] + options.temperature * std::log(options.min_p);
  std::erase_if(ids, [&](int32_t id) { return id != best && logits[id] < least; });
}

// Keeps the tokens whose logits are at least the k-th largest.
void keep_top_k(const std::vector<float>& logits, int64_t k, std::vector<int32_t>& ids) {
  if (k <= 0 || k >= static_cast<int64_t>(ids.size())) return;
  std::vector<float> order(logits);
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<>());
  std::erase_if(ids, [&, least = order[k - 1]](int32_t id) { return logits[id] < least; });
}

// Drops the least likely tokens, as long as all dropped tokens together have a probability of at most 1 - p. Always
// keeps the most likely token.
void keep_top_p(double p, std::vector<Candidate>& sorted) {
  if (p >= 1) return;
  double dropped = 0;
  while (sorted.size() > 1 && (dropped += sorted.back().probability) <= 1 - p) sorted.pop_back();
}

void normalise(std::vector<Candidate>& list) {
  double total = 0;
  for (const Candidate& c : list) total += c.probability;
  for (Candidate& c : list) c.probability /= total;
}

}  // namespace

std::vector<Candidate> candidates(std::span<const float> raw, const SamplingOptions& options,
                                  const TokensBefore& before) {
  std::vector<float> logits(raw.begin(), raw.end());
  penalise(logits, options, before);
  const int32_t best = largest(logits);
  if (options.greedy()) return {{best, 1.0}};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) ids.push_back(static_cast<int32_t>(i));
  keep_min_p(logits, best, options, ids);
  keep_top_k(logits, options.top_k, ids);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<Candidate> out;
  for (const int32_t id : ids) {
    const double below_best = static_cast<double>(logits[id]) - static_cast<double>(logits[best]);
    out.push_back({id, std::exp(below_best / options.temperature)});
  }
  normalise(out);
  keep_top_p(options.top_p, out);
  normalise(out);
  return out;
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index,
               const TokensBefore& before) {
  const std::vector<Candidate> list = candidates(logits, options, before);
  const double u = uniform(options.seed, index);
  double sum = 0;
  for (const Candidate& c : list)
    if ((sum += c.probability) > u) return c.id;
  return list.front().id;  // reached only if rounding leaves the sum of the probabilities below u
}

}  // namespace fettle
