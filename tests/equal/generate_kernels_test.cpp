// Tests that prompts give the same logits with kernels as without, for families whose attention differs, for prompts in
// several pieces and on meshes.
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "kernels/cpu/cached_attention_kernel.h"
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

bool attends(const Run& run) {
  bool out = false;
  for (const KernelUse& use : build_piece(with_unsplit_rows(run), 1, 32, 128).kernels())
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

class PromptKernels : public testing::TestWithParam<Prompted> {};

TEST_P(PromptKernels, EqualThePlainForms) {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !GetParam().also_bf16) continue;
    SCOPED_TRACE(bf16 ? "bf16" : "f32");
    Recipe recipe = reference_recipe(GetParam().family);
    recipe.kernels = {"off"};
    recipe.bf16 = bf16;
    recipe.mesh = GetParam().mesh;
    Loaded model(recipe);
    EXPECT_FALSE(attends(model.run));
    const std::vector<std::vector<float>> wanted = logits_of_pieces(model);
    model.run.target.kernels = kernels_anywhere(model.devices.client().plugin());
    EXPECT_EQ(attends(model.run), GetParam().attends);
    const std::vector<std::vector<float>> got = logits_of_pieces(model);
    // The bounds are absolute; the largest logits are about 10.
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(largest_difference(got[i], wanted[i]), bf16 ? 0.5 : 5e-5) << i;
  }
}

// The families differ in their attention: grouped heads, windows, soft caps, ALiBi, chunks, keys that layers share, a
// gate. The kernel supports neither sinks nor values that are narrower than keys.
INSTANTIATE_TEST_SUITE_P(
    Families, PromptKernels,
    testing::Values(
        Prompted{"llama", "llama", true, true}, Prompted{"mistral", "mistral"}, Prompted{"gpt2", "gpt2"},
        Prompted{"gemma2", "gemma2", true, true}, Prompted{"baichuan13b", "baichuan13b", true, true},
        Prompted{"llama4", "llama4"}, Prompted{"gemma4_e2b", "gemma4_e2b"}, Prompted{"qwen3_5_text", "qwen3_5_text"},
        Prompted{"gpt_oss", "gpt_oss", false}, Prompted{"deepseek_v2", "deepseek_v2", false},
        Prompted{.name = "llama_tp2", .family = "llama", .mesh = {{"tp", 2}}},
        Prompted{.name = "llama_fsdp4", .family = "llama", .mesh = {{"fsdp", 4}}},
        Prompted{.name = "gemma2_dp2_fsdp2_tp2", .family = "gemma2", .mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
        Prompted{.name = "baichuan13b_tp2", .family = "baichuan13b", .mesh = {{"tp", 2}}},
        // It has one key head, which two devices cannot share.
        Prompted{.name = "gemma4_e2b_tp2", .family = "gemma4_e2b", .attends = false, .mesh = {{"tp", 2}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fettle
