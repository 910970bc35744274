// Tests that attention with positions split over devices equals attention on one device, forward and backward.
#include <gmock/gmock.h>

#include "attention_layers.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;
using Setting = AttentionSetting;

const MeshAxes kTwo{{{"sp", 2}}}, kFour{{{"sp", 4}}}, kEight{{{"sp", 8}}}, kHeads{{{"tp", 2}, {"sp", 4}}};
const MeshAxes kRows{{{"dp", 2}, {"fsdp", 2}, {"sp", 2}}}, kAll{{{"fsdp", 2}, {"tp", 2}, {"sp", 2}}};

class RingSetting : public testing::TestWithParam<Setting> {};

TEST_P(RingSetting, EqualsOneDevice) {
  Setting one = GetParam();
  one.mesh = {};
  expect_near(run_layers(GetParam(), DType::kF32, Remat::kDots, {}), run_layers(one, DType::kF32, Remat::kDots, {}),
              4e-6);
}

// A causal row of 64 positions or more has two chunks of positions on each device. With a narrow window (1, 7 or 12), a
// device needs keys of few other devices, so it has one contiguous chunk. 40 positions are not divisible by 16, so each
// of the 8 devices has one chunk. A block has at most 16 queries: in "two_blocks", a chunk of 22 positions is two
// blocks of 11; in "filled", a chunk of 34 is three blocks of 12, of which the last has 2 fillers.
INSTANTIATE_TEST_SUITE_P(
    Settings, RingSetting,
    testing::Values(Setting{.name = "sp2", .length = 64, .mesh = kTwo},
                    Setting{.name = "sp4", .length = 64, .mesh = kFour},
                    Setting{.name = "sp8", .length = 64, .mesh = kEight},
                    Setting{.name = "sp4_tp2", .length = 64, .mesh = kHeads},
                    Setting{.name = "shared_key_head", .length = 64, .key_heads = 1, .mesh = kHeads},
                    Setting{.name = "dp2_fsdp2_sp2", .rows = 4, .length = 64, .mesh = kRows},
                    Setting{.name = "fsdp2_tp2_sp2", .length = 64, .mesh = kAll},
                    Setting{.name = "two_blocks", .length = 176, .mesh = kFour},
                    Setting{.name = "filled", .length = 272, .mesh = kFour},
                    Setting{.name = "window", .length = 64, .window = 7, .mesh = kEight},
                    Setting{.name = "window_of_two_turns", .length = 64, .window = 12, .mesh = kEight},
                    Setting{.name = "wide_window", .length = 64, .window = 45, .mesh = kEight},
                    Setting{.name = "window_of_one", .length = 64, .window = 1, .mesh = kFour},
                    Setting{.name = "window_of_layer", .length = 64, .window_of_layer = true, .mesh = kHeads},
                    Setting{.name = "not_in_two_chunks", .length = 40, .mesh = kEight},
                    Setting{.name = "both_ways", .length = 64, .causal = false, .mesh = kHeads},
                    Setting{.name = "window_both_ways", .length = 64, .window = 12, .causal = false, .mesh = kFour},
                    Setting{.name = "soft_cap", .length = 64, .softcap = 2, .mesh = kFour},
                    Setting{.name = "slopes", .length = 64, .slopes = true, .mesh = kHeads}),
    [](const auto& info) { return info.param.name; });

// The rematerialisation policy does not change the result. In bf16, each turn of the ring rounds its own scores.
TEST(RingAttention, EqualsOneDeviceWithEachPolicyAndInBf16) {
  Setting one{.name = "one", .length = 64}, eight = one;
  eight.mesh = kHeads;
  for (const Remat remat : {Remat::kNone, Remat::kFull})
    expect_near(run_layers(eight, DType::kF32, remat, {}), run_layers(one, DType::kF32, remat, {}), 4e-6);
  // In bf16, eight devices are as far from the result in f32 as one device is.
  const Ran exact = run_layers(one, DType::kF32, Remat::kFull, {});
  const std::map<std::string, double> usual = distances(run_layers(one, DType::kBF16, Remat::kFull, {}), exact);
  for (const auto& [name, distance] : distances(run_layers(eight, DType::kBF16, Remat::kFull, {}), exact))
    EXPECT_LT(distance, 1.3 * usual.at(name)) << name;
}

// Runs one layer of attention with sinks, and values that are narrower than keys.
std::map<std::string, Value> with_sinks(const MeshAxes& mesh) {
  GraphRun run(mesh);
  const ShardingRules rules{mesh};
  const ModelConfig config;
  const Weights none;
  const int64_t t = 48;
  auto any = [](Dims dims, uint32_t seed) { return random_value({DType::kF32, std::move(dims)}, seed, -2, 2); };
  const Tensors inputs{run.input(any({2, t, 4, 8}, 1)), run.input(any({2, t, 2, 8}, 2)),
                       run.input(any({2, t, 2, 4}, 3)), run.input(any({4}, 4))};
  const Tensor weights = run.input(any({2, t, 4, 4}, 5));
  Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = 4};
  f.segments = run.input(segments_of(2, t));
  const Tensor out = attention(f, inputs[0], inputs[1], inputs[2], {.scale = 0.4, .sinks_N = inputs[3]}, nullptr);
  const Tensors grads = grad(reduce_sum(out * weights, {0, 1, 2, 3}), inputs);
  run.output("out", out);
  for (size_t i = 0; i < grads.size(); ++i) run.output("grad" + std::to_string(i), grads[i]);
  return run.run();
}

TEST(RingAttention, SinksAndNarrowValuesEqualOneDevice) {
  expect_near({with_sinks(kHeads), {}}, {with_sinks({}), {}}, 4e-6);
}

// Shard i of the result is shard sources[i], and the gradient goes back the same way.
TEST(CollectivePermute, MovesShardsAndTheirGradients) {
  for (const MeshAxes& mesh : {kHeads, MeshAxes{{{"sp", 4}, {"tp", 2}}}}) {
    GraphRun run(mesh);
    const Tensor x = run.input(i32({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31}));
    const Tensor w = run.input(f32({4}, {1, 2, 3, 4})), y = run.input(f32({4}, {5, 6, 7, 8}));
    const std::vector<int64_t> sources{2, 0, 3, 1};
    run.output("x", collective_permute(x, 0, sources, {{{"sp"}, {"tp"}}}));
    run.output("y", grad(reduce_sum(collective_permute(y, 0, sources, {{{"sp"}}}) * w, {0}), {y})[0]);
    const std::map<std::string, Value> got = run.run();
    EXPECT_THAT(got.at("x").elements, testing::ElementsAre(20, 21, 0, 1, 30, 31, 10, 11));
    EXPECT_THAT(got.at("y").elements, testing::ElementsAre(2, 4, 1, 3));
  }
}

}  // namespace
}  // namespace fettle
