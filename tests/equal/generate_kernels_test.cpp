// Tests that prompts and replies give the same logits with kernels as without, for families whose attention differs,
// for prompts in several pieces, for several replies at once and on meshes.
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "generate/batch_decoder.h"
#include "kernels/cpu/attention/cached_attention_kernel.h"
#include "kernels_anywhere.h"

namespace fettle {
namespace {

struct Prompted {
  std::string name, family;
  bool attends = true;  // the attention of a prompt uses the kernel
  bool also_bf16 = false;
  std::map<std::string, int64_t> mesh = {};
};

std::vector<int32_t> prompt_of(int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>((11 + 7 * i + i * i % 13) % 250));
  return ids;
}

bool attends(const Run& run, int64_t rows, int64_t length) {
  bool out = false;
  for (const KernelUse& use : build_piece(with_unsplit_rows(run), rows, length, 128).kernels())
    out |= use.kernel == cpu::kCachedAttentionKernel;
  return out;
}

// Returns the logits after 13, 112 and 126 tokens. The pieces have 16, 64, 32, 16 and 16 tokens; the second begins
// within a block of the kernel.
std::vector<std::vector<float>> logits_of_pieces(Loaded& model) {
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids = prompt_of(126);
  std::vector<std::vector<float>> out;
  for (const size_t stop : {13u, 112u, 126u}) out.push_back(generator.logits(std::span(ids).first(stop)));
  return out;
}

// Returns the logits of a reply's first three tokens, and of three replies at once: one row is empty first, and its
// prompt has other tokens and another length.
std::vector<std::vector<float>> logits_of_replies(Loaded& model) {
  std::vector<std::vector<float>> out;
  const std::vector<int32_t> ids = prompt_of(126);
  Generator generator(model.devices, model.run, model.state);
  for (const size_t stop : {40u, 41u, 42u, 43u}) out.push_back(generator.logits(std::span(ids).first(stop)));
  BatchDecoder batch(model.devices, model.run, model.state, 3);
  const auto step = [&](const std::vector<std::pair<int64_t, int32_t>>& next) {
    for (std::vector<float>& logits : batch.step(next)) out.push_back(std::move(logits));
  };
  out.push_back(batch.join(2, std::span(ids).first(70), 80));
  step({{2, 9}});
  out.push_back(batch.join(0, std::span(ids).subspan(30, 17), 80));
  step({{0, 5}, {2, 7}});
  step({{0, 200}, {2, 100}});
  return out;
}

// Compares the logits that `logits_of` returns without and with kernels. `shapes` are the programs, as numbers of rows
// and tokens, that use the kernel of attention.
void compare_with_plain_forms(const Prompted& of, const std::vector<std::pair<int64_t, int64_t>>& shapes,
                              std::vector<std::vector<float>> (*logits_of)(Loaded&)) {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !of.also_bf16) continue;
    SCOPED_TRACE(bf16 ? "bf16" : "f32");
    Recipe recipe = reference_recipe(of.family);
    recipe.kernels = {"off"};
    recipe.bf16 = bf16;
    recipe.mesh = of.mesh;
    Loaded model(recipe);
    for (const auto& [rows, length] : shapes) EXPECT_FALSE(attends(model.run, rows, length));
    const std::vector<std::vector<float>> wanted = logits_of(model);
    model.run.target.kernels = kernels_anywhere(model.devices.client().plugin());
    for (const auto& [rows, length] : shapes) EXPECT_EQ(attends(model.run, rows, length), of.attends);
    const std::vector<std::vector<float>> got = logits_of(model);
    ASSERT_EQ(got.size(), wanted.size());
    // The bounds are absolute; the largest logits are about 10.
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(largest_difference(got[i], wanted[i]), bf16 ? 0.5 : 5e-5) << i;
  }
}

class PromptKernels : public testing::TestWithParam<Prompted> {};

TEST_P(PromptKernels, EqualThePlainForms) {
  compare_with_plain_forms(GetParam(), {{1, 32}}, logits_of_pieces);
}

class ReplyKernels : public testing::TestWithParam<Prompted> {};

TEST_P(ReplyKernels, EqualThePlainForms) {
  compare_with_plain_forms(GetParam(), {{1, 1}, {3, 1}}, logits_of_replies);
}

// The families differ in their attention: grouped heads, windows, soft caps, ALiBi, chunks, keys that layers share, a
// gate. The kernel supports neither sinks nor values that are narrower than keys.
const auto kFamilies = testing::Values(
    Prompted{"llama", "llama", true, true}, Prompted{"mistral", "mistral"}, Prompted{"gpt2", "gpt2"},
    Prompted{"gemma2", "gemma2", true, true}, Prompted{"baichuan13b", "baichuan13b", true, true},
    Prompted{"llama4", "llama4"}, Prompted{"gemma4_e2b", "gemma4_e2b"}, Prompted{"qwen3_5_text", "qwen3_5_text"},
    Prompted{"gpt_oss", "gpt_oss", false}, Prompted{"deepseek_v2", "deepseek_v2", false},
    Prompted{.name = "llama_tp2", .family = "llama", .mesh = {{"tp", 2}}},
    Prompted{.name = "llama_fsdp4", .family = "llama", .mesh = {{"fsdp", 4}}},
    Prompted{.name = "gemma2_dp2_fsdp2_tp2", .family = "gemma2", .mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
    Prompted{.name = "baichuan13b_tp2", .family = "baichuan13b", .mesh = {{"tp", 2}}},
    // It has one key head, which two devices cannot share.
    Prompted{.name = "gemma4_e2b_tp2", .family = "gemma4_e2b", .attends = false, .mesh = {{"tp", 2}}});

INSTANTIATE_TEST_SUITE_P(Families, PromptKernels, kFamilies, [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Families, ReplyKernels, kFamilies, [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fettle
