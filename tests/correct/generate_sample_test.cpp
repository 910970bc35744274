// Compares sampling with distributions computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/random.h"
#include "generate/sample.h"

namespace fettle {
namespace {

// Returns logits whose softmax gives these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

const std::vector<float> kLogits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});

std::vector<int32_t> ids(const SamplingOptions& options, const std::vector<float>& logits = kLogits) {
  std::vector<int32_t> out;
  for (const Candidate& c : candidates(logits, options)) out.push_back(c.id);
  return out;
}

std::vector<double> probabilities(const SamplingOptions& options, const std::vector<float>& logits = kLogits) {
  std::vector<double> out;
  for (const Candidate& c : candidates(logits, options)) out.push_back(c.probability);
  return out;
}

MATCHER_P(Near, list, "") {
  return testing::ExplainMatchResult(testing::Pointwise(testing::DoubleNear(1e-6), list), arg, result_listener);
}

TEST(Sample, PlainSoftmaxMostLikelyFirst) {
  EXPECT_EQ(ids({}), (std::vector<int32_t>{1, 3, 4, 0, 2}));
  EXPECT_THAT(probabilities({}), Near(std::vector<double>{0.4, 0.3, 0.15, 0.1, 0.05}));
}

TEST(Sample, GreedyTakesTheLargestAndTheFirstOfEqualOnes) {
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sample(kLogits, {.do_sample = false, .temperature = 3}, i), 1);
    EXPECT_EQ(sample(kLogits, {.temperature = 0}, i), 1);
    EXPECT_EQ(sample(std::vector<float>{1, 5, 2, 5}, {.do_sample = false}, i), 1);
  }
}

TEST(Sample, TemperatureIsAPowerOfTheProbabilities) {
  const double total = 0.16 + 0.09 + 0.0225 + 0.01 + 0.0025;
  EXPECT_THAT(probabilities({.temperature = 0.5}),
              Near(std::vector<double>{0.16 / total, 0.09 / total, 0.0225 / total, 0.01 / total, 0.0025 / total}));
  EXPECT_NEAR(probabilities({.temperature = 1e-6})[0], 1, 1e-9);
  EXPECT_NEAR(probabilities({.temperature = 1e6})[4], 0.2, 1e-5);
}

TEST(Sample, TopKKeepsTheKLargestAndTies) {
  EXPECT_EQ(ids({.top_k = 2}), (std::vector<int32_t>{1, 3}));
  EXPECT_THAT(probabilities({.top_k = 2}), Near(std::vector<double>{4.0 / 7, 3.0 / 7}));
  EXPECT_EQ(ids({.top_k = 1}), (std::vector<int32_t>{1}));
  EXPECT_EQ(ids({.top_k = 5}).size(), 5u);
  EXPECT_EQ(ids({.top_k = 50}).size(), 5u);
  EXPECT_EQ(ids({.top_k = 2}, {1, 3, 2, 2, 0}), (std::vector<int32_t>{1, 2, 3}));
}

TEST(Sample, TopPKeepsTheFewestThatExceedIt) {
  EXPECT_EQ(ids({.top_p = 0.3}), (std::vector<int32_t>{1}));
  EXPECT_EQ(ids({.top_p = 0.45}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(ids({.top_p = 0.75}), (std::vector<int32_t>{1, 3, 4}));
  EXPECT_EQ(ids({.top_p = 0.99}).size(), 5u);
  EXPECT_EQ(ids({.top_p = 1e-9}), (std::vector<int32_t>{1}));
  EXPECT_THAT(probabilities({.top_p = 0.45}), Near(std::vector<double>{4.0 / 7, 3.0 / 7}));
}

TEST(Sample, OrderIsTemperatureThenTopKThenTopP) {
  // After top-k, the three most likely tokens have the probabilities 8/17, 6/17 and 3/17. The first two have 14/17 =
  // 0.82, so top-p 0.8 keeps these two. Without top-k, the first two have 0.7, so top-p keeps three.
  EXPECT_EQ(ids({.top_k = 3, .top_p = 0.8}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(ids({.top_p = 0.8}), (std::vector<int32_t>{1, 3, 4}));
  // The temperature comes first. A high temperature flattens the distribution, so the same top-p keeps more tokens.
  EXPECT_EQ(ids({.temperature = 1000, .top_p = 0.79}).size(), 4u);
}

TEST(Sample, MinPKeepsTheTokensThatAreLikelyEnough) {
  EXPECT_EQ(ids({.min_p = 0.3}), (std::vector<int32_t>{1, 3, 4}));  // 0.3 x 0.4 = 0.12
  EXPECT_THAT(probabilities({.min_p = 0.7}), Near(std::vector<double>{4.0 / 7, 3.0 / 7}));
  EXPECT_EQ(ids({.min_p = 1}), (std::vector<int32_t>{1}));
  EXPECT_EQ(ids({.min_p = 1}, {1, 5, 5}), (std::vector<int32_t>{1, 2}));
  // The temperature comes first: the square roots of the probabilities are 0.32, 0.63, 0.22, 0.55 and 0.39.
  EXPECT_EQ(ids({.temperature = 2, .min_p = 0.4}), (std::vector<int32_t>{1, 3, 4, 0}));
  EXPECT_EQ(ids({.top_p = 0.45, .min_p = 0.7}), (std::vector<int32_t>{1}));  // 4/7 is more than 0.45
}

TEST(Sample, PenaltiesLowerTheLogitsOfTokensBefore) {
  const std::vector<float> logits = {2, -1, 3, 0.5, 1};
  const std::vector<int32_t> prompt = {0, 1, 99}, reply = {2, 2, 4};
  const TokensBefore before{prompt, reply};
  // Returns the logits that the options make, up to a constant: the logarithms of the probabilities by id, minus that
  // of token 3, which has no penalty, plus its logit.
  const auto penalised = [&](const SamplingOptions& options) {
    std::vector<double> out(logits.size());
    for (const Candidate& c : candidates(logits, options, before))
      out[static_cast<size_t>(c.id)] = std::log(c.probability);
    const double base = out[3] - 0.5;
    for (double& value : out) value -= base;
    return out;
  };
  EXPECT_THAT(penalised({}), Near(std::vector<double>{2, -1, 3, 0.5, 1}));
  EXPECT_THAT(penalised({.repetition_penalty = 2}), Near(std::vector<double>{1, -2, 1.5, 0.5, 0.5}));
  EXPECT_THAT(penalised({.presence_penalty = 0.5}), Near(std::vector<double>{2, -1, 2.5, 0.5, 0.5}));
  EXPECT_THAT(penalised({.frequency_penalty = 0.5}), Near(std::vector<double>{2, -1, 2, 0.5, 0.5}));
  EXPECT_THAT(penalised({.repetition_penalty = 2, .presence_penalty = -1, .frequency_penalty = 0.25}),
              Near(std::vector<double>{1, -2, 2, 0.5, 1.25}));
  EXPECT_EQ(sample(logits, {.do_sample = false}, 0, before), 2);
  EXPECT_EQ(sample(logits, {.do_sample = false, .frequency_penalty = 1}, 0, before), 0);
}

TEST(Sample, FrequenciesFollowTheProbabilities) {
  const SamplingOptions options{.top_k = 4, .seed = 11};
  constexpr int kDraws = 40000;
  std::vector<int> counts(5);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sample(kLogits, options, static_cast<uint64_t>(i)))];
  EXPECT_EQ(counts[2], 0);
  for (const Candidate& c : candidates(kLogits, options))
    EXPECT_NEAR(counts[static_cast<size_t>(c.id)], kDraws * c.probability,
                4 * std::sqrt(kDraws * c.probability * (1 - c.probability)));
}

TEST(Sample, DrawsAreAFunctionOfSeedAndPlace) {
  EXPECT_EQ(uniform(42, 7), uniform(42, 7));
  std::set<double> seen;
  double sum = 0;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (uint64_t i = 0; i < 100; ++i) {
      const double u = uniform(seed, i);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      seen.insert(u);
      sum += u;
    }
  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_NEAR(sum / 10000, 0.5, 4 / std::sqrt(12.0 * 10000));
}

}  // namespace
}  // namespace fettle
