// Tests weights that are stored as integers with a scale and a zero for each group of inputs. The words are packed here
// by the formats' specification, and the values come from the formula (code - zero) * scale.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "checkpoint/repository.h"
#include "checkpoint/safetensors_writer.h"
#include "models/model.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Json = nlohmann::json;
using At = std::function<uint32_t(int64_t row, int64_t column)>;

// Packs a matrix [rows, columns] of codes into words. Each row is one stream of bits, whose first code is in the lowest
// bits of its first word.
std::vector<int32_t> packed(int64_t rows, int64_t columns, int64_t bits, const At& code) {
  const int64_t width = (columns * bits + 31) / 32;
  std::vector<int32_t> words(static_cast<size_t>(rows * width));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t bit = 0; bit < columns * bits; ++bit)
      if (code(row, bit / bits) >> (bit % bits) & 1)
        words[static_cast<size_t>(row * width + bit / 32)] |= static_cast<int32_t>(1U << (bit % 32));
  return words;
}

std::vector<int32_t> transposed(const std::vector<int32_t>& words, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(words.size()) / rows;
  std::vector<int32_t> out;
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) out.push_back(words[static_cast<size_t>(row * columns + column)]);
  return out;
}

// Random codes, zeros and scales of a weight [outputs, inputs], and the group of each input.
struct Weight {
  int64_t outputs, inputs, bits, group;
  std::vector<uint32_t> codes, zeros;  // [outputs, inputs], [outputs, groups]
  std::vector<float> scales;           // [outputs, groups]
  std::vector<int32_t> order;

  Weight(int64_t outputs, int64_t inputs, int64_t bits, int64_t group)
      : outputs(outputs), inputs(inputs), bits(bits), group(group) {
    std::mt19937 draw(7);
    for (int64_t i = 0; i < outputs * inputs; ++i) codes.push_back(draw() % (1U << bits));
    for (int64_t i = 0; i < outputs * groups(); ++i) {
      zeros.push_back(draw() % (1U << bits));
      scales.push_back(f16_to_f32(f32_to_f16(0.01F + 0.001F * static_cast<float>(draw() % 97))));
    }
    for (int64_t i = 0; i < inputs; ++i) order.push_back(static_cast<int32_t>(group == 0 ? 0 : i / group));
  }

  int64_t groups() const { return group == 0 ? 1 : (inputs + group - 1) / group; }
  void shuffle() {
    std::mt19937 draw(8);
    std::ranges::shuffle(order, draw);
  }
  uint32_t code(int64_t output, int64_t input) const { return codes[static_cast<size_t>(output * inputs + input)]; }
  uint32_t zero(int64_t output, int64_t of) const { return zeros[static_cast<size_t>(output * groups() + of)]; }
  float scale(int64_t output, int64_t of) const { return scales[static_cast<size_t>(output * groups() + of)]; }
  float value(int64_t output, int64_t input) const {
    const int64_t of = order[static_cast<size_t>(input)];
    return (static_cast<float>(code(output, input)) - static_cast<float>(zero(output, of))) * scale(output, of);
  }
};

struct Stored {
  std::string name;
  Shape shape;
  std::vector<std::byte> bytes;
};

template <typename T>
Stored stored(const std::string& name, DType dtype, Dims dims, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, {dtype, std::move(dims)}, {bytes.begin(), bytes.end()}};
}

Stored words(const std::string& name, Dims dims, const std::vector<int32_t>& values) {
  return stored("a." + name, DType::kI32, std::move(dims), values);
}

// Stores the scales as f16 [outputs, columns], with zeros after the last group, or as f16 [groups, outputs].
Stored scales_of(const Weight& w, const std::string& name, bool outputs_first, int64_t columns) {
  std::vector<uint16_t> values;
  if (outputs_first)
    for (int64_t output = 0; output < w.outputs; ++output)
      for (int64_t of = 0; of < columns; ++of) values.push_back(f32_to_f16(of < w.groups() ? w.scale(output, of) : 0));
  else
    for (int64_t of = 0; of < w.groups(); ++of)
      for (int64_t output = 0; output < w.outputs; ++output) values.push_back(f32_to_f16(w.scale(output, of)));
  return stored("a." + name, DType::kF16, outputs_first ? Dims{w.outputs, columns} : Dims{w.groups(), w.outputs},
                values);
}

std::vector<Stored> gptq(const Weight& w, bool less_one) {
  const auto inputs_first = packed(w.outputs, w.inputs, w.bits, [&](int64_t n, int64_t k) { return w.code(n, k); });
  const auto zeros = packed(w.groups(), w.outputs, w.bits, [&](int64_t of, int64_t n) {
    return (w.zero(n, of) - (less_one ? 1 : 0)) & ((1U << w.bits) - 1);
  });
  return {words("qweight", {w.inputs * w.bits / 32, w.outputs}, transposed(inputs_first, w.outputs)),
          words("qzeros", {w.groups(), w.outputs * w.bits / 32}, zeros), scales_of(w, "scales", false, 0),
          words("g_idx", {w.inputs}, w.order)};
}

// AWQ's gemm layout: place i of a word has output kOrder[i].
std::vector<Stored> awq_gemm(const Weight& w) {
  constexpr int64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  auto output = [&](int64_t place) { return place / 8 * 8 + kOrder[place % 8]; };
  return {words("qweight", {w.inputs, w.outputs / 8},
                packed(w.inputs, w.outputs, 4, [&](int64_t k, int64_t at) { return w.code(output(at), k); })),
          words("qzeros", {w.groups(), w.outputs / 8},
                packed(w.groups(), w.outputs, 4, [&](int64_t of, int64_t at) { return w.zero(output(at), of); })),
          scales_of(w, "scales", false, 0)};
}

// AWQ's gemv layout: the groups are padded to whole words.
std::vector<Stored> awq_gemv(const Weight& w) {
  const int64_t width = (w.groups() + 7) / 8;
  return {words("qweight", {w.outputs, w.inputs / 8},
                packed(w.outputs, w.inputs, 4, [&](int64_t n, int64_t k) { return w.code(n, k); })),
          words("qzeros", {w.outputs, width},
                packed(w.outputs, 8 * width, 4,
                       [&](int64_t n, int64_t of) { return of < w.groups() ? w.zero(n, of) : 0; })),
          scales_of(w, "scales", true, 8 * width)};
}

std::vector<Stored> compressed(const Weight& w, bool zeros) {
  const int64_t per_word = 32 / w.bits;
  std::vector<Stored> out{
      words("weight_packed", {w.outputs, (w.inputs + per_word - 1) / per_word},
            packed(w.outputs, w.inputs, w.bits, [&](int64_t n, int64_t k) { return w.code(n, k); })),
      scales_of(w, "weight_scale", true, w.groups()),
      stored("a.weight_shape", DType::kI64, {2}, std::vector<int64_t>{w.outputs, w.inputs})};
  if (!zeros) return out;
  const auto by_group = packed(w.groups(), w.outputs, w.bits, [&](int64_t of, int64_t n) { return w.zero(n, of); });
  out.push_back(words("weight_zero_point", {static_cast<int64_t>(by_group.size()) / w.groups(), w.groups()},
                      transposed(by_group, w.groups())));
  return out;
}

Json compressed_config(int64_t bits, const Json& group, bool symmetric) {
  const Json weights{{"num_bits", bits},
                     {"type", "int"},
                     {"symmetric", symmetric},
                     {"group_size", group},
                     {"strategy", group.is_null() ? "channel" : "group"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// Returns what the repository reads as "a.weight".
HostArray read(const Json& quantisation, const std::vector<Stored>& tensors, const char* dtype, const Weight& weight) {
  TempFolder folder;
  write_text(folder / "config.json", Json{{"dtype", dtype}, {"quantization_config", quantisation}}.dump());
  NamedShapes infos;
  for (const Stored& one : tensors) infos.emplace_back(one.name, one.shape);
  SafetensorsWriter writer(folder / "model.safetensors", infos);
  for (const Stored& one : tensors) writer.write(one.name, one.bytes);
  writer.finish();
  const ModelRepository repository = ModelRepository::open(folder.path());
  EXPECT_EQ(repository.names(), std::vector<std::string>{"a.weight"});
  const StoredTensor found = repository.find("a.weight");
  EXPECT_EQ(found.entry->shape, (Shape{dtype_from_hf(dtype), {weight.outputs, weight.inputs}}));
  return found.file->read(*found.entry);
}

void expect_values(const Json& quantisation, const std::vector<Stored>& tensors, const Weight& weight) {
  const HostArray values = read(quantisation, tensors, "float32", weight);
  for (int64_t n = 0; n < weight.outputs; ++n)
    for (int64_t k = 0; k < weight.inputs; ++k)
      ASSERT_EQ(values.as<float>()[static_cast<size_t>(n * weight.inputs + k)], weight.value(n, k)) << n << " " << k;
}

Json gptq_config(int64_t bits, int64_t group, const Json& more = Json::object()) {
  Json config{{"quant_method", "gptq"}, {"bits", bits}, {"group_size", group}};
  config.update(more);
  return config;
}

TEST(Groups, GptqOfEveryNumberOfBits) {
  for (int64_t bits : {2, 3, 4, 8}) {
    SCOPED_TRACE(bits);
    const Weight weight(32, 96, bits, 32);
    expect_values(gptq_config(bits, 32), gptq(weight, true), weight);
    expect_values(gptq_config(bits, 32, {{"checkpoint_format", "gptq_v2"}}), gptq(weight, false), weight);
  }
}

TEST(Groups, GptqInAnyOrderAndWithOneGroup) {
  Weight weight(32, 64, 4, 16);
  weight.shuffle();
  expect_values(gptq_config(4, 16, {{"desc_act", true}}), gptq(weight, true), weight);
  const Weight whole(32, 64, 4, 0);
  expect_values(gptq_config(4, -1, {{"desc_act", true}}), gptq(whole, true), whole);
  const Weight partial(32, 80, 4, 32);  // the last group has 16 inputs
  std::vector<Stored> without_order = gptq(partial, true);
  without_order.pop_back();
  expect_values(gptq_config(4, 32), without_order, partial);
}

TEST(Groups, Awq) {
  const Weight weight(24, 64, 4, 16);
  expect_values({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}, {"version", "GEMM"}}, awq_gemm(weight),
                weight);
  expect_values({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}, {"version", "gemv"}}, awq_gemv(weight),
                weight);
}

TEST(Groups, CompressedTensors) {
  for (int64_t bits : {4, 8}) {
    SCOPED_TRACE(bits);
    const Weight weight(10, 38, bits, 16);  // neither whole words nor whole groups
    expect_values(compressed_config(bits, 16, false), compressed(weight, true), weight);
    Weight symmetric(10, 32, bits, 0);
    std::ranges::fill(symmetric.zeros, 1U << (bits - 1));
    expect_values(compressed_config(bits, nullptr, true), compressed(symmetric, false), symmetric);
    std::vector<Stored> unset = compressed(weight, true);  // -1: the order is not set
    unset.push_back(words("weight_g_idx", {weight.inputs}, std::vector<int32_t>(38, -1)));
    expect_values(compressed_config(bits, 16, false), unset, weight);
  }
}

// The product is computed in the dtype of the model.
TEST(Groups, ValuesHaveTheModelsDtype) {
  const Weight weight(32, 64, 8, 32);
  const HostArray f16 = read(gptq_config(8, 32), gptq(weight, true), "float16", weight);
  const HostArray bf16 = read(gptq_config(8, 32), gptq(weight, true), "bfloat16", weight);
  for (int64_t n = 0; n < 32; ++n)
    for (int64_t k = 0; k < 64; ++k) {
      const auto at = static_cast<size_t>(n * 64 + k);
      EXPECT_EQ(f16.as<uint16_t>()[at], f32_to_f16(weight.value(n, k)));
      const int64_t of = k / 32;
      const float scale = bf16_to_f32(f32_to_bf16(weight.scale(n, of)));
      const float steps = static_cast<float>(weight.code(n, k)) - static_cast<float>(weight.zero(n, of));
      EXPECT_EQ(bf16.as<uint16_t>()[at], f32_to_bf16(steps * scale));
    }
}

// GPTQModel leaves out small linear layers, and quantization_config does not say so.
TEST(Groups, ModulesInFloatsThatTheConfigDoesNotLeaveOut) {
  const std::string module = "model.layers.1.self_attn.q_proj";
  for (const char* model : {"qwen3_gptq", "qwen2_awq"}) {
    SCOPED_TRACE(model);
    const ModelRepository base = ModelRepository::open(reference_model(model));
    const SafetensorsFile file = SafetensorsFile::open(base.folder() / "model.safetensors");
    const TempFolder folder;
    std::filesystem::copy_file(base.folder() / "config.json", folder / "config.json");
    const StoredTensor floats = base.find(module + ".weight");
    NamedShapes shapes{{module + ".weight", floats.entry->shape}};
    for (const TensorEntry& entry : file.entries())
      if (!entry.name.starts_with(module + ".") || entry.name.ends_with("bias"))
        shapes.emplace_back(entry.name, entry.shape);
    SafetensorsWriter writer(folder / "model.safetensors", shapes);
    for (const auto& [name, shape] : shapes) {
      const HostArray array =
          name == module + ".weight" ? floats.file->read(*floats.entry) : file.read(*file.find(name));
      writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
    }
    writer.finish();
    testing::internal::CaptureStderr();
    const ModelRepository repository = ModelRepository::open(folder.path());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("model.layers.{}.self_attn.q_proj (1 of 2 layers)"),
              std::string::npos);
    const Model made = make_model(repository.config(), "config.json");
    auto covered = [&](const std::string& part) {
      return made.config.groups->covered_layers(made.param("model.layers.{}.self_attn." + part + ".weight"));
    };
    EXPECT_EQ(covered("q_proj"), (std::vector<int64_t>{0}));
    EXPECT_EQ(covered("k_proj"), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(base.config(), Json::parse(read_text(base.folder() / "config.json"))) << "all modules have codes";
  }
}

// Reading a box of a weight gives the same values as this part of the whole weight.
TEST(Groups, PartsOfAWeight) {
  const ModelRepository repository = ModelRepository::open(reference_model("qwen3_gptq"));
  const StoredTensor stored = repository.find("model.layers.0.mlp.down_proj.weight");
  const HostArray whole = stored.file->read(*stored.entry);
  const int64_t columns = stored.entry->shape.dims[1];
  std::vector<float> part(200);
  stored.file->read_slice(*stored.entry, {{11, 7}, {4, 50}}, DType::kF32, reinterpret_cast<std::byte*>(part.data()));
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 50; ++column)
      EXPECT_EQ(part[static_cast<size_t>(row * 50 + column)],
                whole.as<float>()[static_cast<size_t>((11 + row) * columns + 7 + column)]);
}

}  // namespace
}  // namespace fettle
