// Tests that decoding with a cache equals computing the whole text at once: for a text in pieces, with a growing cache,
// after going back, over further turns and on any mesh.
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "generate/decode.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "step/forward.h"

namespace fettle {
namespace {

constexpr double kBound = 5e-5;  // absolute; f32 sums are added in another order, and the largest logits are about 10

std::vector<int32_t> long_sequence(const std::string& family) {
  const nlohmann::json sequences = reference_of(family)["sequences"];
  std::vector<int32_t> ids = sequences["40"];
  for (const int32_t id : sequences["17"]) ids.push_back(id);
  for (int i = 0; ids.size() < 128; ++i) ids.push_back((ids[i] * 7 + 3) % 250);
  return ids;
}

// Returns the logits after the last of `ids`, computed by the forward function of training without a cache.
std::vector<float> uncached(Loaded& model, const std::vector<int32_t>& ids) {
  const auto t = static_cast<int64_t>(ids.size());
  Program program;
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, model.run);
  Forward f = make_forward(model.run, weights, {.remat = remat_policy("none")});
  f.tokens = program.input("tokens", {DType::kI32, {1, t}});
  f.positions = expand(iota({DType::kI32, {t}}, 0), 0);
  f.segments = full(1, {DType::kI32, {1, t}});
  const Tensor last = slice(model.run.model.family->forward(f), 1, t - 1, t);
  program.output("logits", logits(f, last, head_of(model.run.model, weights)));
  DeviceBuffer tokens = replicate(model.devices, HostArray::from<int32_t>({DType::kI32, {1, t}}, ids));
  Bindings inputs = model.state.bindings();
  inputs["tokens"] = &tokens;
  const HostArray out = run_program(model.devices.compile(program), inputs).at("logits").download();
  return {out.as<float>().begin(), out.as<float>().end()};
}

class Cache : public testing::TestWithParam<const char*> {};

TEST_P(Cache, CachedEqualsUncached) {
  Loaded model(reference_recipe(GetParam(), true));
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids = long_sequence(GetParam());
  for (const size_t length : {30u, 31u, 57u, 58u}) {
    const std::vector<int32_t> part(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_LT(largest_difference(generator.logits(part), uncached(model, part)), kBound) << length;
  }
}

TEST_P(Cache, GrowthKeepsItsContents) {
  Loaded model(reference_recipe(GetParam(), true));
  Generator grows(model.devices, model.run, model.state), roomy(model.devices, model.run, model.state);
  roomy.reserve(128);
  std::vector<int32_t> prompt = long_sequence(GetParam());
  prompt.resize(58);
  EXPECT_EQ(continue_greedily(grows, prompt, 16), continue_greedily(roomy, prompt, 16));
  EXPECT_EQ(grows.capacity(), 128);
}

TEST_P(Cache, EveryDivisionIntoPiecesIsTheSame) {
  Loaded model(reference_recipe(GetParam()));
  const std::vector<int32_t> ids = long_sequence(GetParam());
  const std::vector<float> wanted = uncached(model, ids);
  // The pieces end at these lengths. Some pieces, padded to the next size, would not fit into the cache of 128
  // positions.
  for (const std::vector<size_t>& stops :
       {std::vector<size_t>{128}, {100, 128}, {120, 125, 128}, {5, 6, 111, 127, 128}}) {
    Generator generator(model.devices, model.run, model.state);
    std::vector<float> got;
    for (const size_t stop : stops) got = generator.logits(std::span(ids).first(stop));
    EXPECT_LT(largest_difference(got, wanted), kBound) << stops.size() << " stops";
  }
}

TEST_P(Cache, FurtherTurnsAndGoingBackEqualAFreshPrefill) {
  Loaded model(reference_recipe(GetParam(), true));
  Generator kept(model.devices, model.run, model.state);
  const std::vector<int32_t> ids = long_sequence(GetParam());
  std::vector<int32_t> first(ids.begin(), ids.begin() + 20);
  const std::vector<int32_t> reply = continue_greedily(kept, first, 8);
  std::vector<int32_t> second = first;
  second.insert(second.end(), reply.begin(), reply.end());
  second.insert(second.end(), ids.begin() + 40, ids.begin() + 57);
  std::vector<int32_t> other = first;  // another second turn; the cache goes back to the first difference
  other.back() = (other.back() + 1) % 250;
  for (const std::vector<int32_t>& prompt : {second, other, first, second}) {
    Generator fresh(model.devices, model.run, model.state);
    EXPECT_LT(largest_difference(kept.logits(prompt), fresh.logits(prompt)), kBound);
    std::vector<int32_t> longer = prompt;
    longer.push_back(7);
    EXPECT_EQ(kept.known(longer), fresh.known(longer));
  }
}

using Mesh = std::map<std::string, int64_t>;

class CacheMesh : public testing::TestWithParam<std::tuple<std::string, Mesh>> {};

TEST_P(CacheMesh, GivesTheSameIds) {
  const auto& [family, mesh] = GetParam();
  const nlohmann::json prompt = reference_of(family)["greedy"][1];
  const std::vector<int32_t> wanted = prompt["tuned"]["ids"];
  Recipe recipe = reference_recipe(family, true);
  recipe.mesh = mesh;
  Loaded model(recipe);
  Generator generator(model.devices, model.run, model.state);
  EXPECT_EQ(continue_greedily(generator, prompt["prompt"], static_cast<int64_t>(wanted.size())), wanted);
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::string, Mesh>>& info) {
  std::string name = std::get<0>(info.param) + "_";
  for (const auto& [axis, size] : std::get<1>(info.param)) name += axis + std::to_string(size);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, Cache, testing::Values("llama", "llama2", "mistral", "qwen2", "qwen3", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

const auto kMeshes = testing::Values(Mesh{{"fsdp", 4}}, Mesh{{"tp", 2}}, Mesh{{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
INSTANTIATE_TEST_SUITE_P(Families, CacheMesh,
                         testing::Combine(testing::Values("llama", "llama2", "mistral", "qwen2", "qwen3", "gpt2"),
                                          kMeshes),
                         name_of);

// One family for each kind of block that the families above lack: sinks, latent attention, gated delta net, short
// convolution, Mamba2, keys and values that layers share, no rope on the layers without a window.
INSTANTIATE_TEST_SUITE_P(Blocks, CacheMesh,
                         testing::Combine(testing::Values("gpt_oss", "deepseek_v2", "qwen3_5_text", "lfm2", "granite4",
                                                          "gemma4_e2b", "exaone4"),
                                          kMeshes),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Experts, CacheMesh,
                         testing::Combine(testing::Values("mixtral", "gpt_oss", "deepseek_v2"),
                                          testing::Values(Mesh{{"ep", 2}, {"tp", 2}})),
                         name_of);

TEST(CacheState, ClearingStartsFromNothing) {
  Loaded model(reference_recipe("qwen3"));
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids = long_sequence("qwen3");
  const std::vector<float> before = generator.logits(std::span(ids).first(30));
  generator.clear();
  EXPECT_EQ(largest_difference(generator.logits(std::span(ids).first(30)), before), 0);
}

TEST(CacheState, ComputesInBfloat16) {
  Recipe recipe = reference_recipe("llama");
  Loaded exact(recipe);
  recipe.bf16 = true;
  Loaded low(recipe);
  Generator a(exact.devices, exact.run, exact.state), b(low.devices, low.run, low.state);
  const std::vector<int32_t> ids = long_sequence("llama");
  for (const size_t length : {30u, 31u, 70u}) {
    const std::vector<float> in_f32 = a.logits(std::span(ids).first(length));
    const std::vector<float> in_bf16 = b.logits(std::span(ids).first(length));
    const double scale = largest_difference(in_f32, std::vector<float>(in_f32.size()));
    EXPECT_GT(largest_difference(in_f32, in_bf16), 1e-3 * scale) << "nothing was rounded to bfloat16";
    EXPECT_LT(largest_difference(in_f32, in_bf16), 0.02 * scale);
  }
}

}  // namespace
}  // namespace fettle
