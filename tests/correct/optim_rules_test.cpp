// Compares each update rule with its reference implementation (tests/reference/optimizers.py) on made-up gradients. A
// weight in a stacked array must change in the same way as the weight alone.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "config/keys.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "optim/adamw_4bit.h"
#include "optim/blockwise.h"
#include "optim/optimizer.h"
#include "paths.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

const Json& recorded() {
  static const Json json = Json::parse(std::ifstream(source_folder() / "tests/reference/optimizers.json"));
  return json;
}

// numbers() and gradient() return the same as the functions of these names in optimizers.py.
std::vector<double> numbers(const Dims& dims, int64_t seed) {
  std::vector<double> out = random_value({DType::kF32, dims}, static_cast<uint32_t>(seed)).elements;
  for (double& x : out) x = static_cast<float>(x);
  return out;
}

std::vector<double> gradient(const Dims& dims, int64_t seed, int64_t step) {
  std::vector<double> out = numbers(dims, seed + 100 * step);
  const int64_t width = product(dims) / dims[0];
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / width;
    const double turn = (step / 6) % 2 == 0 ? 1 : -0.5;
    out[i] = static_cast<float>(out[i] * (std::pow(10.0, -static_cast<double>(row * 7 % 5) / 2) * turn));
  }
  return out;
}

// Returns a stack of two weights: the recorded weight, and another weight that must not affect it.
Value stack(const Dims& dims, std::vector<double> first, const std::vector<double>& second) {
  first.insert(first.end(), second.begin(), second.end());
  Dims stacked = dims;
  stacked.insert(stacked.begin(), 2);
  return f32(stacked, first);
}

OptimSpec spec_of(const Json& rule) {
  OptimSpec spec{.rule = rule["recipe"]["optim"],
                 .beta1 = recorded()["betas"][0],
                 .beta2 = recorded()["betas"][1],
                 .epsilon = recorded()["epsilon"]};
  if (rule["recipe"].contains("optim_args")) spec.args = rule["recipe"]["optim_args"];
  return spec;
}

OptimWeight weight_of(const Dims& dims, int64_t columns = 1) {
  OptimWeight weight;
  weight.columns = columns;
  weight.shape.dims = dims;
  weight.shape.dims.insert(weight.shape.dims.begin(), 2);
  weight.axes.assign(dims.size() + 1, "");
  weight.stacked = 1;
  weight.weight_decay = weight.is_matrix() ? recorded()["weight_decay"].get<double>() : 0;
  return weight;
}

// Returns the first weight of the stack after all steps. If `held` is not empty, the weight is stored with these dims.
std::vector<double> run_rule(const Optimizer& optimizer, const Dims& dims, int64_t seed, const Dims& held = {}) {
  OptimWeight weight = held.empty() ? weight_of(dims) : weight_of(held, 2);
  weight.low_rank = weight.is_matrix();
  weight.key = static_cast<uint32_t>(seed);
  Program program;
  BuildScope scope(program.block());
  UpdateInputs in{program.input("weight", weight.shape), program.input("grad", weight.shape), {}, {}};
  for (const OptimState& array : optimizer.state(weight)) in.state.push_back(program.input(array.name, array.shape));
  for (const auto& [name, value] : optimizer.scalars(1, 0)) in.scalars[name] = program.input(name, {DType::kF32, {}});
  const Updated next = optimizer.update(weight, in);
  program.output("weight", next.weight);
  const std::vector<OptimState> arrays = optimizer.state(weight);
  for (size_t i = 0; i < arrays.size(); ++i) program.output(arrays[i].name, next.state[i]);
  Devices& devices = cpu_devices();
  const Executable step = devices.compile(program);

  std::map<std::string, DeviceBuffer> buffers;
  auto put = [&](const std::string& name, Value value) {
    if (name == "weight" || name == "grad") value.shape = weight.shape;
    buffers[name] = replicate(devices, to_array(value));
  };
  put("weight", stack(dims, numbers(dims, seed), numbers(dims, seed + 50)));
  for (const OptimState& array : arrays) buffers[array.name] = replicate(devices, HostArray::zeros(array.shape));
  for (int64_t t = 1; t <= recorded()["steps"].get<int64_t>(); ++t) {
    put("grad", stack(dims, gradient(dims, seed, t), gradient(dims, seed + 50, t)));
    for (const auto& [name, value] : optimizer.scalars(t, recorded()["learning_rate"])) put(name, f32({}, {value}));
    Bindings bindings;
    for (auto& [name, buffer] : buffers) bindings[name] = &buffer;
    for (auto& [name, buffer] : run_program(step, bindings)) buffers[name] = std::move(buffer);
  }
  std::vector<double> out = to_value(buffers.at("weight").download()).elements;
  out.resize(product(dims));
  return out;
}

// Returns a weight after three steps of gradients that depend only on the element's number in row-major order.
std::vector<double> run_flat(const Optimizer& optimizer, const Dims& dims) {
  OptimWeight weight;
  weight.shape.dims = dims;
  weight.axes.assign(dims.size(), "");
  GraphRun run;
  const std::vector<OptimState> arrays = optimizer.state(weight);
  UpdateInputs in{run.input(f32(dims, numbers({product(dims)}, 9))), {}, {}, {}};
  for (const OptimState& array : arrays)
    in.state.push_back(broadcast_to(constant(0, array.shape.dtype), array.shape.dims));
  for (int64_t t = 1; t <= 3; ++t) {
    in.grad = run.input(f32(dims, numbers({product(dims)}, 10 + t)));
    for (const auto& [name, value] : optimizer.scalars(t, 0.01)) in.scalars[name] = constant(value, DType::kF32);
    const Updated next = optimizer.update(weight, in);
    in.weight = next.weight;
    in.state = next.state;
  }
  run.output("weight", in.weight);
  return run.run().at("weight").elements;
}

void expect_recorded(const std::vector<double>& got, const Json& wanted, double bound, const std::string& what) {
  double square = 0;
  for (double x : got) square += x * x;
  EXPECT_NEAR(std::sqrt(square), wanted["norm"].get<double>(), bound * wanted["norm"].get<double>()) << what;
  for (size_t e = 0; e < wanted["first"].size(); ++e)
    EXPECT_NEAR(got[e], wanted["first"][e].get<double>(), bound) << what << ' ' << e;
}

std::vector<std::string> recorded_rules() {
  std::vector<std::string> names;
  for (const auto& [name, record] : recorded()["rules"].items()) names.push_back(name);
  return names;
}

// Returns the bound of a rule. It is larger for Muon, because the reference orthogonalises in bf16.
double bound_of(const std::string& name) {
  return name.starts_with("muon") ? 2e-3 : 2e-6;
}

TEST(UpdateRules, EachHasARecordAndIsAValueOfTheKeyOptim) {
  std::set<std::string> rules, in_records;
  for (const UpdateRule& rule : update_rules()) rules.emplace(rule.name);
  for (const std::string& name : recorded_rules()) in_records.insert(recorded()["rules"][name]["recipe"]["optim"]);
  EXPECT_EQ(in_records, rules) << "tests/reference/optimizers.py records each rule";
  const Key& key = *find_key("optim");
  EXPECT_EQ(std::set<std::string>(key.values.begin(), key.values.end()), rules)
      << "src/config/key_rows/training_keys.cpp";
  for (const std::string_view name : key.later) EXPECT_FALSE(rules.contains(std::string(name))) << name;
}

class Rule : public testing::TestWithParam<std::string> {};

TEST_P(Rule, UpdatesWeightsLikeItsReference) {
  const std::string& name = GetParam();
  const double bound = bound_of(name);
  const Json& rule = recorded()["rules"][name];
  const Optimizer optimizer = make_optimizer(spec_of(rule));
  const std::vector<std::string> order{"wide", "narrow", "odd", "small", "vector"};
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Dims dims = recorded()["shapes"][order[i]];
    const std::vector<double> got = run_rule(optimizer, dims, 1 + static_cast<int64_t>(i));
    const Json& wanted = rule["weights"][order[i]];
    expect_recorded(got, wanted, bound, order[i]);
    for (size_t e = 0; e < wanted["first"].size(); ++e)
      largest = std::max(largest, std::abs(got[e] - wanted["first"][e].get<double>()));
  }
  RecordProperty("largest_difference", std::to_string(largest));
  std::printf("%s: largest difference of a weight %.2g\n", name.c_str(), largest);
}

INSTANTIATE_TEST_SUITE_P(Rules, Rule, testing::ValuesIn(recorded_rules()), [](const auto& info) { return info.param; });

// A run stores a fused module with its parts as a separate dim, such as [24, 4, 128] instead of [24, 512]. The rule
// treats the last two dims as one, as in the checkpoint.
TEST_P(Rule, TreatsFusedPartsAsOneDim) {
  const std::string& name = GetParam();
  const double bound = bound_of(name);
  const Json& rule = recorded()["rules"][name];
  const Optimizer optimizer = make_optimizer(spec_of(rule));
  for (const auto& [key, seed, held] :
       {std::tuple{"wide", 1, Dims{24, 4, 128}}, {"small", 4, Dims{12, 2, 10}}, {"vector", 5, Dims{3, 16}}})
    expect_recorded(run_rule(optimizer, recorded()["shapes"][key], seed, held), rule["weights"][key], bound, key);
}

// Transformers' _get_apollo_optimizer has these defaults.
TEST(UpdateRules, ApolloHasTransformersDefaults) {
  const OptimOptions options = make_optimizer({.rule = "apollo_adamw"}).options;
  EXPECT_EQ(options.number("rank"), 128);
  EXPECT_EQ(options.number("scale"), 1);
  EXPECT_EQ(options.text("scale_type"), "channel");
  EXPECT_EQ(options.number("update_proj_gap"), 200);
  EXPECT_EQ(options.text("proj"), "random");
  EXPECT_EQ(options.text("proj_type"), "std");
}

// Hugging Face's Trainer keeps 32-bit state for embeddings.
TEST(OptimizerState, OfEmbeddingsIsNotQuantised) {
  OptimWeight weight = weight_of({1024, 512});
  EXPECT_TRUE(has_8bit_state(weight));
  weight.embedding = true;
  EXPECT_FALSE(has_8bit_state(weight));
}

TEST(DynamicMap, HasBitsandbytesValues) {
  for (const auto& [map, name] : {std::pair{DynamicMap::kSigned, "signed"}, {DynamicMap::kUnsigned, "unsigned"}}) {
    const std::vector<double> got = dynamic_map_values(map), wanted = recorded()["maps"][name];
    ASSERT_EQ(got.size(), 256u);
    for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(got[i], wanted[i], 2e-7 * std::abs(wanted[i])) << name << ' ' << i;
  }
}

// Every value of the map gets its own code. A number between two values gets the code of the nearer value.
TEST(DynamicMap, CodesAreThoseOfTheNearestValues) {
  for (const DynamicMap map : {DynamicMap::kSigned, DynamicMap::kUnsigned}) {
    const std::vector<double> values = dynamic_map_values(map);
    std::vector<double> x, wanted;
    for (size_t i = 0; i < 256; ++i) {
      x.push_back(values[i]), wanted.push_back(static_cast<double>(i));
      if (i == 255) break;
      x.push_back(0.51 * values[i] + 0.49 * values[i + 1]), wanted.push_back(static_cast<double>(i));
      x.push_back(0.49 * values[i] + 0.51 * values[i + 1]), wanted.push_back(static_cast<double>(i + 1));
    }
    while (x.size() < 4096) x.push_back(x.size() % 256 == 0 ? 1 : 0), wanted.push_back(-1);
    // Each block needs a 1 so that its scale is 1.
    std::vector<double> spaced, expected;
    for (size_t i = 0, used = 0; used < 766 && i < 4096; ++i) {
      spaced.push_back(i % 256 == 0 ? 1 : x[used]);
      expected.push_back(i % 256 == 0 ? 255 : wanted[used++]);
    }
    spaced.resize(4096, 0), expected.resize(4096, map == DynamicMap::kSigned ? 127 : 0);
    OptimWeight weight;
    weight.shape.dims = {8, 512};
    weight.axes = {"", ""};
    GraphRun run;
    const Quantized q = quantize(run.input(f32({8, 512}, spaced)), weight, map);
    run.output("codes", convert(q.codes, DType::kI32));
    run.output("values", dequantize(q, weight, map));
    const std::map<std::string, Value> got = run.run();
    for (size_t i = 0; i < 800; ++i) {
      ASSERT_EQ(got.at("codes").elements[i], expected[i]) << i << " of " << spaced[i];
      const double value = values[static_cast<size_t>(expected[i])];
      if (i < 766) {
        ASSERT_NEAR(got.at("values").elements[i], value, 1e-6 * std::abs(value)) << i;
      }
    }
  }
}

TEST(FourBits, MapsHaveTorchaosValues) {
  for (const auto& [is_signed, name] : {std::pair{true, "signed_4bit"}, {false, "unsigned_4bit"}}) {
    const std::vector<double> wanted = recorded()["maps"][name];
    ASSERT_EQ(wanted.size(), 16u);
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(four_bit_map(is_signed)[i], wanted[i], 1e-7) << name << ' ' << i;
  }
}

// As in torchao, the number of elements decides. Embeddings are no exception.
TEST(FourBits, AreUsedForLargeWeightsOfWholeBlocks) {
  OptimWeight weight = weight_of({1024, 512});
  weight.embedding = true;
  EXPECT_TRUE(has_four_bits(weight, 256));
  EXPECT_FALSE(has_four_bits(weight_of({70, 70}), 128));
  EXPECT_FALSE(has_four_bits(weight_of({31, 128}), 128));
  EXPECT_TRUE(has_four_bits(weight_of({32, 128}), 256));
  EXPECT_TRUE(has_four_bits(weight_of({33, 128}), 128));
  EXPECT_FALSE(has_four_bits(weight_of({33, 128}), 256));
}

// Rows of 48 elements do not fit into blocks of 256, and rows of 33 elements also split pairs of codes. The weight must
// change in the same way as a weight with the same elements in rows of 256.
TEST(FourBits, DoNotDependOnTheRows) {
  const Optimizer optimizer = make_optimizer({.rule = "adamw_torch_4bit"});
  for (const Dims& dims : {Dims{256, 48}, Dims{256, 33}}) {
    const Dims whole{product(dims) / 256, 256};
    const std::vector<double> got = run_flat(optimizer, dims), wanted = run_flat(optimizer, whole);
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-7) << dims[1] << ' ' << i;
  }
}

TEST(OptimizerState, IsSmall) {
  const OptimWeight weight = weight_of({1024, 512});
  auto bytes = [&](const char* optim) {
    int64_t total = 0;
    for (const OptimState& array : make_optimizer({.rule = optim}).state(weight)) total += array.shape.bytes();
    return total;
  };
  const int64_t n = weight.shape.elements();
  EXPECT_EQ(bytes("adamw_torch"), 8 * n);
  EXPECT_EQ(bytes("adamw_8bit"), 2 * n + 2 * 4 * n / 256);
  EXPECT_EQ(bytes("adamw_torch_4bit"), n + 2 * 4 * n / 256);
  EXPECT_EQ(bytes("lion_32bit"), 4 * n);
  EXPECT_EQ(bytes("lion_8bit"), n + 4 * n / 256);
  EXPECT_EQ(bytes("sgd"), 0);
  EXPECT_EQ(bytes("muon"), 4 * n);
  EXPECT_EQ(bytes("adam_mini"), 4 * n + 4 * 2 * 1024);
  EXPECT_EQ(bytes("adafactor"), 2 * 4 * (1024 + 512));
}

}  // namespace
}  // namespace fettle
