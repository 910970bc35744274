#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "adapters/lora.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(Lora, ATargetThatNamesNoLinearLayerListsThem) {
  const Model model = make_model(
      {{"model_type", "gpt2"}, {"vocab_size", 10}, {"n_embd", 12}, {"n_layer", 1}, {"n_head", 3}}, "config.json");
  EXPECT_THAT(user_error([&] {
                lora_modules(model, {"q_proj", "v_proj"});
              }),
              testing::AllOf(testing::HasSubstr("lora_target: 'q_proj'"), testing::HasSubstr("gpt2"),
                             testing::HasSubstr("attn.c_attn")));
  // "fc" is a part of a name, but not a whole name and not the part after a dot.
  EXPECT_THAT(user_error([&] { lora_modules(model, {"fc"}); }), testing::HasSubstr("'fc'"));
}

// PEFT refuses adapters on out_proj of Nemotron-H's Mamba2 layers. The target `all` leaves this module out. The target
// `out_proj` is an error.
TEST(Lora, ATargetThatPeftRefusesIsNamed) {
  nlohmann::json config{{"model_type", "nemotron_h"}, {"hybrid_override_pattern", "M*-"}};
  for (const char* size :
       {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size"})
    config[size] = 4;
  const Model model = make_model(config, "config.json");
  const std::vector<std::string> modules = lora_modules(model, {"all"});
  EXPECT_THAT(modules, testing::Contains("mixer.in_proj"));
  EXPECT_THAT(modules, testing::Not(testing::Contains("mixer.out_proj")));
  EXPECT_THAT(
      user_error([&] {
        lora_modules(model, {"in_proj", "out_proj"});
      }),
      testing::AllOf(testing::HasSubstr("PEFT cannot load LoRA weights for the layer mixer.out_proj of nemotron_h"),
                     testing::HasSubstr("mixer.in_proj")));
}

// PEFT adapts embedding and head when a list names them, so leaving them out would change the result.
TEST(Lora, TablesAreNotLeftOutOfAList) {
  nlohmann::json llama{{"model_type", "llama"},       {"vocab_size", 10},         {"hidden_size", 8},
                       {"num_hidden_layers", 1},      {"num_attention_heads", 2}, {"intermediate_size", 8},
                       {"max_position_embeddings", 8}};
  for (const bool tied : {false, true}) {
    llama["tie_word_embeddings"] = tied;
    const Model model = make_model(llama, "config.json");
    for (const char* table : {"lm_head", "embed_tokens", "model.embed_tokens"})
      EXPECT_THAT(user_error([&] {
                    lora_modules(model, {"q_proj", table});
                  }),
                  testing::AllOf(testing::HasSubstr("Fettle has no LoRA for it"),
                                 testing::HasSubstr("additional_target: " + last_part(table))));
  }
}

TEST(Lora, AnExpressionMatchesTheWholeNameOfAllLayers) {
  const Model model = make_model(
      {{"model_type", "gpt2"}, {"vocab_size", 10}, {"n_embd", 12}, {"n_layer", 2}, {"n_head", 3}}, "config.json");
  EXPECT_THAT(
      user_error([&] { lora_modules(model, {"(c_fc|c_proj)"}); }),
      testing::AllOf(
          testing::HasSubstr("'(c_fc|c_proj)' matches no linear layer of gpt2"),
          testing::HasSubstr("must match a whole name, such as transformer.h.0.attn.c_attn; set lora_target to all")));
  EXPECT_THAT(user_error([&] { lora_modules(model, {".*1.*c_fc"}); }),
              testing::AllOf(testing::HasSubstr("matches transformer.h.1.mlp.c_fc, but not transformer.h.0.mlp.c_fc"),
                             testing::HasSubstr("layers_to_transform")));
  EXPECT_THAT(user_error([&] { lora_modules(model, {"(c_fc"}); }), testing::HasSubstr("lora_target"));
  // An expression that is about the embedding or head must not ignore it; .* matches it by chance.
  for (const char* table : {"lm_head", "wte"})
    EXPECT_THAT(user_error([&] { lora_modules(model, {".*(c_fc|" + std::string(table) + ")"}); }),
                testing::HasSubstr("Fettle has no LoRA for it"));
  EXPECT_EQ(lora_modules(model, {"^(?!.*lm_head).*"}), lora_modules(model, {".*"}));
}

}  // namespace
}  // namespace fettle
