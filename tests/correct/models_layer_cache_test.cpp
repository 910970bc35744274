// Tests that a layer reads and writes its own part of the cache, and nothing else.
#include <gtest/gtest.h>

#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/layer_cache.h"

namespace fettle {
namespace {

constexpr int64_t kLayers = 3, kRows = 2, kKeys = 4, kWidth = 2;

// The cache before: -1, -2, -3, ...
Value before() {
  Value out = f32({kLayers, kRows, kKeys, kWidth}, {});
  for (int64_t i = 0; i < out.shape.elements(); ++i) out.elements.push_back(static_cast<double>(-1 - i));
  return out;
}

int64_t at(int64_t layer, int64_t row, int64_t key) {
  return ((layer * kRows + row) * kKeys + key) * kWidth;
}

// Runs `use` on layer 1 of the cache, and returns the outputs "stack" and "read": all layers and this layer afterwards.
template <typename Use>
std::map<std::string, Value> after(const Use& use) {
  GraphRun run;
  const Tensor stack = run.input(before()), number = run.input(i32({}, {1}));
  LayerCache cache({{"keys", {stack, number}}});
  use(run, cache);
  run.output("stack", cache.slice("keys").stack);
  run.output("read", cache.at("keys"));
  return run.run();
}

TEST(LayerCache, AppendsToEachRowWhereItEnds) {
  Value wanted = before();
  const std::map<std::string, Value> got = after([&](GraphRun& run, LayerCache& cache) {
    const Value added = f32({kRows, 2, 1}, {1, 2, 3, 4});
    cache.append("keys", broadcast_to(run.input(added), {kRows, 2, kWidth}), run.input(i32({kRows}, {2, 0})));
  });
  for (int64_t i = 0; i < kWidth; ++i) {
    wanted.elements[at(1, 0, 2) + i] = 1;
    wanted.elements[at(1, 0, 3) + i] = 2;
    wanted.elements[at(1, 1, 0) + i] = 3;
    wanted.elements[at(1, 1, 1) + i] = 4;
  }
  EXPECT_EQ(got.at("stack").elements, wanted.elements);
  const auto layer = wanted.elements.begin() + at(1, 0, 0);
  EXPECT_EQ(got.at("read").elements, std::vector<double>(layer, layer + at(1, 0, 0)));
}

TEST(LayerCache, ReplacesTheWholeArrayOfOneLayer) {
  const std::map<std::string, Value> got = after([&](GraphRun& run, LayerCache& cache) {
    cache.replace("keys", run.input(random_value({DType::kF32, {kRows, kKeys, kWidth}}, 1)));
  });
  Value wanted = before();
  const std::vector<double> state = got.at("read").elements;
  EXPECT_EQ(state, random_value({DType::kF32, {kRows, kKeys, kWidth}}, 1).elements);
  std::copy(state.begin(), state.end(), wanted.elements.begin() + at(1, 0, 0));
  EXPECT_EQ(got.at("stack").elements, wanted.elements);
}

}  // namespace
}  // namespace fettle
