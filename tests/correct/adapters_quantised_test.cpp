// Compares quantised weights with those of bitsandbytes (tests/reference/quantised.py): the codes of given values, and
// the values of given codes.
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/block_codes.h"
#include "adapters/quantised.h"
#include "checkpoint/safetensors.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "paths.h"

namespace fettle {
namespace {

const SafetensorsFile& reference() {
  static const SafetensorsFile file = SafetensorsFile::open(source_folder() / "tests/reference/quantised.safetensors");
  return file;
}

HostArray stored(const std::string& name) {
  const TensorEntry* entry = reference().find(name);
  if (entry == nullptr) throw std::runtime_error("no " + name);
  return reference().read(*entry);
}

// Returns the numbers of a stored array of any dtype.
std::vector<double> numbers(const std::string& name) {
  const HostArray array = stored(name);
  std::vector<double> out;
  for (int64_t i = 0; i < array.shape().elements(); ++i) switch (array.shape().dtype) {
      case DType::kU8: out.push_back(array.as<uint8_t>()[i]); break;
      case DType::kI8: out.push_back(array.as<int8_t>()[i]); break;
      default: out.push_back(load_float(array.data(), array.shape().dtype, i));
    }
  return out;
}

struct Case {
  const char* weight;
  Quantisation format;
};

class Quantised : public testing::TestWithParam<Case> {
 protected:
  std::string key(const std::string& part) const {
    const Quantisation& f = GetParam().format;
    return std::string(GetParam().weight) + "." + f.name().substr(0, 3) + "." + part;
  }
};

TEST_P(Quantised, CodesAreBitsandbytes) {
  const HostArray values = stored(GetParam().weight).to(DType::kF32);
  const int64_t n = values.shape().elements(), blocks = (n + 63) / 64;
  std::vector<std::byte> codes(blocks * 32);
  std::vector<float> absmax(blocks);
  quantise_blocks(GetParam().format.type, values.as<float>(), codes.data(), absmax.data());
  const std::vector<double> wanted_codes = numbers(key("codes")), wanted_absmax = numbers(key("absmax"));
  ASSERT_EQ(wanted_codes.size(), static_cast<size_t>((n + 1) / 2));
  for (size_t i = 0; i < wanted_codes.size(); ++i) ASSERT_EQ(static_cast<int>(codes[i]), wanted_codes[i]) << i;
  ASSERT_EQ(wanted_absmax.size(), absmax.size());
  for (size_t i = 0; i < absmax.size(); ++i) ASSERT_EQ(absmax[i], static_cast<float>(wanted_absmax[i])) << i;

  const NestedAbsmax nested = quantise_absmax(absmax);
  EXPECT_NEAR(nested.offset, numbers(key("offset"))[0], 1e-7);
  const std::vector<double> nested_codes = numbers(key("nested_codes")), nested_absmax = numbers(key("nested_absmax"));
  ASSERT_EQ(nested.codes.size(), nested_codes.size());
  for (size_t i = 0; i < nested_codes.size(); ++i) ASSERT_EQ(nested.codes[i], nested_codes[i]) << i;
  ASSERT_EQ(nested.absmax.size(), nested_absmax.size());
  for (size_t i = 0; i < nested_absmax.size(); ++i) EXPECT_NEAR(nested.absmax[i], nested_absmax[i], 1e-7) << i;
}

TEST_P(Quantised, ProgramsHaveTheValuesOfTheCodes) {
  const Quantisation format = GetParam().format;
  const Dims dims = stored(GetParam().weight).shape().dims;
  const ShardingRules rules{MeshAxes{}};
  const QuantisedWeight weight = quantised_weight({"w", dims, {"heads", "embed"}}, format, rules);
  const char* names[] = {"codes", format.nested ? "nested_codes" : "absmax", "nested_absmax", "offset"};
  GraphRun run;
  std::vector<Tensor> parts;
  for (size_t i = 0; i < weight.parts.size(); ++i)
    parts.push_back(convert(run.input(f32(weight.parts[i].dims, numbers(key(names[i])))), *weight.parts[i].dtype));
  run.output("values", dequantise(weight, parts));
  const Value got = run.run().at("values");
  EXPECT_EQ(got.shape.dims, dims);
  const std::vector<double> wanted = numbers(key(format.nested ? "nested_values" : "values"));
  double largest = 0;
  for (double x : wanted) largest = std::max(largest, std::abs(x));
  const double bound = format.nested ? 1e-6 : 4e-3;  // without nesting, values were recorded in bfloat16
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(got.elements[i], wanted[i], bound * (format.nested ? largest : std::abs(wanted[i]) + 1e-9)) << i;
}

using enum Quantisation::Type;
INSTANTIATE_TEST_SUITE_P(Formats, Quantised,
                         testing::Values(Case{"wide", {kNf4, true}}, Case{"wide", {kNf4, false}},
                                         Case{"wide", {kFp4, true}}, Case{"wide", {kFp4, false}},
                                         Case{"ragged", {kNf4, true}}, Case{"ragged", {kFp4, false}}));

TEST(QuantisedRows, AreBitsandbytesInt8) {
  const HostArray values = stored("wide").to(DType::kF32);
  const Dims dims = values.shape().dims;
  std::vector<int8_t> codes(product(dims));
  std::vector<float> absmax(dims[0]);
  quantise_rows(values.as<float>(), dims[1], codes.data(), absmax.data());
  const std::vector<double> wanted_codes = numbers("wide.int8.codes"), wanted = numbers("wide.int8.absmax");
  for (size_t i = 0; i < absmax.size(); ++i) ASSERT_NEAR(absmax[i], wanted[i], 1e-3 * wanted[i]) << i;
  for (size_t i = 0; i < codes.size(); ++i)
    ASSERT_NEAR(codes[i], wanted_codes[i], 1) << i;  // the reference computed in float16

  const QuantisedWeight weight =
      quantised_weight({"w", dims, {"heads", "embed"}}, {kInt8, false}, ShardingRules{MeshAxes{}});
  GraphRun run;
  std::vector<Tensor> parts{convert(run.input(f32(dims, {codes.begin(), codes.end()})), DType::kI8),
                            run.input(f32({dims[0]}, {absmax.begin(), absmax.end()}))};
  run.output("values", dequantise(weight, parts));
  const Value got = run.run().at("values");
  for (size_t i = 0; i < codes.size(); ++i)
    ASSERT_NEAR(got.elements[i], values.as<float>()[i], absmax[i / dims[1]] / 254 * 1.001) << i;
}

// Dequantised weights have the dtype of the scales. Each is (code - zero) * scale, rounded once. XLA may compute a bf16
// product with more digits, but rounds it when the result is stored.
TEST(QuantisedGroups, AreRoundedToTheDtypeOfTheScales) {
  constexpr int64_t kOut = 6, kIn = 40, kGroup = 16, kGroups = 3;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const auto type : {kGroups4, kGroups8}) {
      const int64_t values = type == kGroups4 ? 16 : 256, bytes = type == kGroups4 ? kIn / 2 : kIn;
      const Quantisation format{.type = type, .nested = false, .group = kGroup, .scales = dtype};
      const QuantisedWeight weight =
          quantised_weight({"w", {kOut, kIn}, {"heads", "embed"}}, format, ShardingRules{MeshAxes{}});
      auto integers = [&](Dims dims, uint32_t seed) {
        Value out = random_value({DType::kF32, std::move(dims)}, seed, 0, static_cast<double>(values));
        for (double& x : out.elements) x = std::floor(x);
        return out;
      };
      auto rounded = [&](double x) {
        const auto value = static_cast<float>(x);
        return dtype == DType::kF16    ? f16_to_f32(f32_to_f16(value))
               : dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value))
                                       : value;
      };
      const Value codes = integers({kOut, kIn}, 1), zeros = integers({kOut, kGroups}, 2);
      Value scales = random_value({DType::kF32, {kOut, kGroups}}, 3, 0.001, 0.02);
      for (double& x : scales.elements) x = rounded(x);
      Value stored{{DType::kF32, {kOut, bytes}}, {}};
      for (int64_t i = 0; i < kOut * bytes; ++i)
        stored.elements.push_back(type == kGroups8 ? codes.elements[i]
                                                   : codes.elements[2 * i] + 16 * codes.elements[2 * i + 1]);
      GraphRun run;
      const std::vector<Tensor> parts{convert(run.input(stored), DType::kU8), convert(run.input(scales), dtype),
                                      convert(run.input(zeros), DType::kU8)};
      run.output("values", convert(dequantise(weight, parts), dtype));
      const Value got = run.run().at("values");
      ASSERT_EQ(got.shape, (Shape{dtype, {kOut, kIn}}));
      for (int64_t n = 0; n < kOut; ++n)
        for (int64_t k = 0; k < kIn; ++k) {
          const int64_t of = n * kGroups + k / kGroup;
          ASSERT_EQ(got.elements[n * kIn + k],
                    rounded((codes.elements[n * kIn + k] - zeros.elements[of]) * scales.elements[of]))
              << hf_name(dtype) << ' ' << n << ' ' << k;
        }
    }
}

TEST(QuantisedRows, NestedMapIsBitsandbytes) {
  const std::vector<double> wanted = numbers("nested_map");
  ASSERT_EQ(nested_values().size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(nested_values()[i], wanted[i], 1e-7) << i;
}

}  // namespace
}  // namespace fettle
