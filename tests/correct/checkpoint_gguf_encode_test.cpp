// Tests encoded GGUF blocks: they equal those of the gguf library, or their error is close to that of llama.cpp's
// encoder (tests/reference/gguf_files.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <span>

#include "base/files/mapped_file.h"
#include "checkpoint/gguf/block_types.h"
#include "checkpoint/gguf/write/file_types.h"
#include "checkpoint/gguf/write/gguf_writer.h"
#include "checkpoint/safetensors.h"
#include "gguf_reference.h"

namespace fettle {
namespace {

class EncodedBlocks : public testing::TestWithParam<std::string> {
 protected:
  const SafetensorsFile recorded_ = SafetensorsFile::open(kGgufFiles / "encoded.safetensors");
  const HostArray values_ = recorded_.read(*recorded_.find("values"));
  const BlockType& type_ = *find_block_type(GetParam());

  std::vector<std::byte> encoded() const {
    const int64_t count = values_.shape().elements();
    std::vector<std::byte> out(static_cast<size_t>(count / type_.elements * type_.bytes));
    encode_blocks(type_, values_.as<float>().data(), count, out.data());
    return out;
  }

  // Returns the sum of the squared errors of one row of 256 values.
  double error(const std::byte* blocks, int64_t row) const {
    constexpr int64_t kColumns = 256;
    std::vector<float> got(kColumns);
    decode_blocks(type_, blocks, row * kColumns, kColumns, got.data());
    double sum = 0;
    for (int64_t i = 0; i < kColumns; ++i) {
      const double difference = static_cast<double>(got[i]) - values_.as<float>()[row * kColumns + i];
      sum += difference * difference;
    }
    return sum;
  }
};

using BlocksOfTheLibrary = EncodedBlocks;
TEST_P(BlocksOfTheLibrary, AreEqual) {
  const HostArray wanted = recorded_.read(*recorded_.find(GetParam()));
  const std::vector<std::byte> got = encoded();
  ASSERT_EQ(static_cast<int64_t>(got.size()), wanted.bytes());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size()), 0);
}
INSTANTIATE_TEST_SUITE_P(Types, BlocksOfTheLibrary,
                         testing::Values("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"));

// llama.cpp minimises a weighted error. So for a single row, the plain error of Fettle's encoder may be a few percent
// above or below that of llama.cpp's.
using BlocksOfLlamaCpp = EncodedBlocks;
TEST_P(BlocksOfLlamaCpp, HaveNoLargerError) {
  const HostArray theirs = recorded_.read(*recorded_.find(GetParam()));
  const std::vector<std::byte> got = encoded();
  ASSERT_EQ(static_cast<int64_t>(got.size()), theirs.bytes());
  double ours_over_theirs = 0;
  int64_t compared = 0;
  for (int64_t row = 0; row < values_.shape().dims[0]; ++row) {
    const double ours = error(got.data(), row), other = error(theirs.data(), row);
    const auto width = static_cast<size_t>(values_.shape().dims[1]);
    const std::span<const float> numbers = values_.as<float>().subspan(static_cast<size_t>(row) * width, width);
    if (std::set<float>(numbers.begin(), numbers.end()).size() <= 2) {
      // With at most two different values, only the scale of a block is rounded. So either encoder may have the smaller
      // error.
      float largest = 0;
      for (const float number : numbers) largest = std::max(largest, std::abs(number));
      EXPECT_LE(std::sqrt(ours), 1e-2 * largest) << "row " << row;
      continue;
    }
    EXPECT_LE(std::sqrt(ours), 1.08 * std::sqrt(other) + 1e-7) << "row " << row;
    if (other > 0) ours_over_theirs += std::sqrt(ours / other), ++compared;
  }
  ASSERT_GE(compared, 20);
  EXPECT_LE(ours_over_theirs / static_cast<double>(compared), 1.02);
}
INSTANTIATE_TEST_SUITE_P(Types, BlocksOfLlamaCpp, testing::Values("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"));

// Values that a block can represent exactly do not change.
TEST(EncodedBlocks, KeepWhatTheyCanExpress) {
  std::mt19937 random(3);
  for (const char* name : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
    const BlockType& type = *find_block_type(name);
    std::vector<float> values(static_cast<size_t>(type.elements)), got(values.size());
    const int codes = type.bytes == 34 ? 255 : type.name[1] == '4' ? 16 : 32;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 0.25f * static_cast<float>(static_cast<int>(random() % static_cast<unsigned>(codes)) - codes / 2);
    // The smallest and the largest value decide the scale, so they are set.
    values[0] = -0.25f * static_cast<float>(codes / 2), values[1] = 0.25f * static_cast<float>((codes - 1) / 2);
    std::vector<std::byte> block(static_cast<size_t>(type.bytes));
    encode_blocks(type, values.data(), type.elements, block.data());
    decode_blocks(type, block.data(), 0, type.elements, got.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got[i], values[i], 2e-3f * std::abs(values[i])) << name;
  }
}

// These values stand for weights that were stored in 4 bits before: each group has 16 evenly spaced values. The 4-bit
// codes fit them exactly, so only the 6-bit scale and offset of a group can cost precision.
TEST(EncodedBlocks, Q4_KKeepsTheGridOfAnotherFile) {
  constexpr int kValues = 256, kGroup = 32, kBlocks = 50;
  const BlockType& type = *find_block_type("Q4_K");
  std::mt19937 random(7);
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<float> values(kValues), got(kValues);
    float largest_step = 0;
    for (int group = 0; group < kValues / kGroup; ++group) {
      const float step = 0.05f + 0.01f * static_cast<float>(random() % 10);
      largest_step = std::max(largest_step, step);
      for (int i = 0; i < kGroup; ++i) {
        const unsigned code = i == 0 ? 0 : i == 1 ? 15 : random() % 16;
        values[static_cast<size_t>(group * kGroup + i)] = step * (static_cast<float>(code) - 7.3f);
      }
    }
    std::vector<std::byte> encoded(static_cast<size_t>(type.bytes));
    encode_blocks(type, values.data(), kValues, encoded.data());
    decode_blocks(type, encoded.data(), 0, kValues, got.data());
    // A scale is rounded by up to 1/126 of the largest scale (6 bits: 63 steps). The code (at most 15) multiplies this
    // error. An offset (7.3 scales) is rounded by up to 1/126 of the largest offset. The last term is for the two f16
    // numbers by which a block multiplies its scales and offsets.
    const float bound = largest_step * (15.0f + 7.3f) / 126 + 1e-3f * 15 * largest_step;
    for (size_t i = 0; i < kValues; ++i) EXPECT_NEAR(got[i], values[i], bound) << "block " << block << ", value " << i;
  }
}

TEST(GgufFileTypes, ChooseTypesAsLlamaCpp) {
  const auto type = [](const char* file, const std::string& tensor, const Dims& dims, GgufSizes sizes) {
    return type_in_file(*find_gguf_file_type(file), tensor, dims, sizes).name;
  };
  const Dims wide{512, 512}, narrow{512, 96}, odd{512, 40};
  const GgufSizes dense{.layers = 16}, tied{.layers = 16, .tied = true}, mixture{.layers = 16, .experts = 8},
      large{.layers = 80, .is_70b = true};
  // Biases, norms, routers and position embeddings are never quantised.
  for (const char* file : {"f16", "q8_0", "q4_k_m"}) {
    EXPECT_EQ(type(file, "blk.0.attn_q.bias", {512}, dense), "F32");
    EXPECT_EQ(type(file, "blk.0.attn_q_norm.weight", {8, 64}, dense), "F32");
    EXPECT_EQ(type(file, "blk.0.ffn_gate_inp.weight", wide, mixture), "F32");
    EXPECT_EQ(type(file, "position_embd.weight", wide, dense), "F32");
  }
  EXPECT_EQ(type("bf16", "token_embd.weight", odd, tied), "BF16");
  // In 4-bit files, the head gets more bits than most weights. In a tied model, the embedding is also the head, so the
  // embedding gets these bits.
  EXPECT_EQ(type("q4_k_m", "output.weight", wide, dense), "Q6_K");
  EXPECT_EQ(type("q4_k_m", "token_embd.weight", wide, dense), "Q4_K");
  EXPECT_EQ(type("q4_k_m", "token_embd.weight", wide, tied), "Q6_K");
  EXPECT_EQ(type("q4_0", "output.weight", wide, dense), "Q6_K");
  EXPECT_EQ(type("q4_0", "token_embd.weight", wide, dense), "Q4_0");
  EXPECT_EQ(type("q8_0", "output.weight", wide, dense), "Q8_0");
  // Layers that get more bits: the first and the last eighth of the 16 layers, and every third layer between them.
  const auto more = [](int layer) { return layer < 2 || layer >= 14 || (layer - 2) % 3 == 2; };
  for (int layer = 0; layer < 16; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    EXPECT_EQ(type("q4_k_m", blk + "attn_v.weight", wide, dense), more(layer) ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(type("q4_k_m", blk + "ffn_down.weight", wide, dense), more(layer) ? "Q6_K" : "Q4_K") << layer;
    EXPECT_EQ(type("q5_k_m", blk + "attn_qkv.weight", wide, dense), more(layer) ? "Q6_K" : "Q5_K") << layer;
    EXPECT_EQ(type("q4_k_m", blk + "ffn_down_exps.weight", {8, 512, 512}, mixture), more(layer) ? "Q6_K" : "Q4_K");
    EXPECT_EQ(type("q4_k_m", blk + "attn_q.weight", wide, dense), "Q4_K");
    EXPECT_EQ(type("q6_k", blk + "attn_v.weight", wide, dense), "Q6_K");
  }
  EXPECT_EQ(type("q4_k_m", "blk.12.attn_v.weight", wide, large), "Q6_K");
  EXPECT_EQ(type("q4_k_m", "blk.13.attn_v.weight", wide, large), "Q5_K");
  // The next types are those of models with eight experts.
  EXPECT_EQ(type("q4_k_m", "blk.5.attn_v.weight", wide, mixture), "Q8_0");
  EXPECT_EQ(type("q4_k_m", "blk.5.attn_k.weight", wide, mixture), "Q8_0");
  EXPECT_EQ(type("q4_k_m", "blk.5.attn_output.weight", wide, mixture), "Q5_K");
  EXPECT_EQ(type("q5_k_m", "blk.5.attn_output.weight", wide, mixture), "Q5_K");
  // A tensor whose row length is not a multiple of the block length gets a type with shorter blocks, or F16.
  EXPECT_EQ(type("q4_k_m", "blk.5.attn_q.weight", narrow, dense), "Q5_0");
  EXPECT_EQ(type("q5_k_m", "blk.5.attn_q.weight", narrow, dense), "Q5_1");
  EXPECT_EQ(type("q6_k", "output.weight", narrow, dense), "Q8_0");
  for (const char* file : {"q8_0", "q4_0", "q4_k_m"}) EXPECT_EQ(type(file, "blk.5.attn_q.weight", odd, dense), "F16");
}

// The expected types are those that llama.cpp's own function returned (tests/reference/gguf_types.py).
TEST(GgufFileTypes, AreThoseOfLlamaCppsQuantize) {
  const nlohmann::json models = nlohmann::json::parse(std::ifstream(kGgufFiles / "types.json"));
  size_t compared = 0;
  for (const auto& [name, model] : models.items()) {
    GgufSizes sizes{.layers = model["layers"],
                    .experts = model["experts"],
                    .tied = model["tied"],
                    .is_70b = model["is_70b"],
                    .queries_per_key = model["queries_per_key"]};
    std::set<int64_t> value_layers, down_layers;
    for (const nlohmann::json& tensor : model["tensors"]) {
      const std::string text = tensor[0];
      const int64_t layer = text.starts_with("blk.") ? std::stoll(text.substr(4)) : 0;
      if (text.ends_with(".attn_v.weight") || text.ends_with(".attn_qkv.weight")) value_layers.insert(layer);
      if (text.ends_with(".ffn_down.weight")) down_layers.insert(layer);
    }
    sizes.value_layers.assign(value_layers.begin(), value_layers.end());
    sizes.down_layers.assign(down_layers.begin(), down_layers.end());
    for (const auto& [file, types] : model["types"].items()) {
      const GgufFileType* type = find_gguf_file_type(file);
      ASSERT_NE(type, nullptr) << file;
      for (size_t i = 0; i < types.size(); ++i) {
        const std::string tensor = model["tensors"][i][0];
        EXPECT_EQ(type_in_file(*type, tensor, model["tensors"][i][1].get<Dims>(), sizes).name,
                  find_block_type(types[i].get<uint32_t>())->name)
            << name << ", " << file << ", " << tensor;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 10000u);
}

TEST(GgufWriter, WritesWhatIsRead) {
  const TempFolder folder;
  GgufMetadata metadata("llama");
  metadata.set_integer(".block_count", 3);
  metadata.set_number(".rope.freq_base", 1e-5);
  metadata.set("text", std::string("a\0b", 3));
  metadata.set("flag", true);
  metadata.set("negative", int32_t{-7});
  metadata.set("texts", std::vector<std::string>{"x", "", "\u00e9"});
  metadata.set("flags", std::vector<bool>{true, false});
  metadata.set("numbers", std::vector<float>{0.5f, -1e30f});
  metadata.set("integers", std::vector<int32_t>{-1, 5});
  metadata.set_integer(".block_count", 4);  // replaces the value
  const BlockType &f32 = *find_block_type("F32"), &q8 = *find_block_type("Q8_0");
  std::vector<std::byte> three(12, std::byte{1}), blocks(2 * 34, std::byte{2});
  {
    GgufWriter writer(folder / "a.gguf", metadata, {{"t", {3}, &f32, 0, 0}, {"q", {2, 32}, &q8, 0, 0}});
    writer.write(1, std::span(blocks).first(34), 34);
    writer.write(0, three, 0);
    writer.write(1, std::span(blocks).first(34), 0);
    writer.finish();
  }
  const MappedFile file(folder / "a.gguf");
  const GgufHeader header = read_gguf_header(file.bytes(), "a.gguf"), same = header_of(metadata, {});
  EXPECT_EQ(header.values, same.values);
  EXPECT_EQ(header.values.at("llama.block_count"), 4);
  EXPECT_EQ(header.values.at("llama.rope.freq_base"), 1e-5);
  EXPECT_EQ(header.values.at("text"), std::string("a\0b", 3));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[1].dims, (Dims{2, 32}));
  EXPECT_EQ(header.tensors[1].offset % kGgufAlignment, 0);
  EXPECT_EQ(std::memcmp(file.bytes().data() + header.tensors[0].offset, three.data(), three.size()), 0);
  EXPECT_EQ(std::memcmp(file.bytes().data() + header.tensors[1].offset, blocks.data(), blocks.size()), 0);
  EXPECT_EQ(file.bytes().size() % kGgufAlignment, 0u);
}

TEST(GgufWriter, LeavesNoFileWhenATensorIsMissing) {
  const TempFolder folder;
  const BlockType& f32 = *find_block_type("F32");
  {
    GgufWriter writer(folder / "a.gguf", GgufMetadata("llama"), {{"t", {3}, &f32, 0, 0}});
    EXPECT_THROW(writer.finish(), InternalError);
    EXPECT_THROW(writer.write(0, std::vector<std::byte>(16), 0), InternalError);
    EXPECT_THROW(writer.write(1, {}, 0), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.gguf"));
}

}  // namespace
}  // namespace fettle
