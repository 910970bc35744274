// Tests configs that are wrong or need missing features. The message has the file, the field, what was found and what
// was wanted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "graph/program.h"
#include "models/blocks/layers.h"
#include "models/model.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

Json llama() {
  return {{"model_type", "llama"},   {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

Json changed(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return config;
}

Json of_type(const std::string& type) {
  Json config = llama();
  config.update({{"model_type", type}, {"max_position_embeddings", 4096}, {"num_key_value_heads", 4}});
  return config;
}

std::string message(const Json& config) {
  return user_error([&] { make_model(config, "my/config.json"); });
}

std::string with(const std::string& key, const Json& value) {
  return message(changed(llama(), key, value));
}

TEST(ModelConfig, UnknownFamiliesNameANearOneOrTheList) {
  EXPECT_EQ(with("model_type", "mamba"),
            "my/config.json: model_type 'mamba' is not supported; docs/models.md lists the families");
  EXPECT_THAT(with("model_type", "qwen-3"), HasSubstr("is not supported (the nearest name is 'qwen3'); docs/models"));
  EXPECT_THAT(message(Json::array()), HasSubstr("model_type ''"));
  EXPECT_THAT(message(Json{{"model_type", 3}}), HasSubstr("model_type ''"));
}

TEST(ModelConfig, UnknownFamiliesThatReadImagesOrSound) {
  const Json text = of_type("text_and_more");
  EXPECT_THAT(
      message(changed(text, "vision_config", Json::object())),
      HasSubstr("'text_and_more' is not supported: the model reads images, which Fettle does not; use a text "));
  EXPECT_THAT(message(changed(text, "audio_config", Json::object())), HasSubstr("the model reads sound"));
}

TEST(ModelConfig, MissingAndIllTypedFields) {
  Json config = llama();
  config.erase("hidden_size");
  EXPECT_THAT(message(config), AllOf(HasSubstr("my/config.json"), HasSubstr("'hidden_size' is missing")));
  EXPECT_THAT(with("num_hidden_layers", "two"),
              AllOf(HasSubstr("'num_hidden_layers' is \"two\""), HasSubstr("positive integer")));
  EXPECT_THAT(with("vocab_size", 0), HasSubstr("'vocab_size' is 0"));
  EXPECT_THAT(with("vocab_size", -5), HasSubstr("positive integer"));
  EXPECT_THAT(with("rms_norm_eps", "small"), HasSubstr("wanted a number"));
  EXPECT_THAT(with("tie_word_embeddings", "yes"), HasSubstr("wanted true or false"));
  EXPECT_THAT(with("hidden_act", 1), HasSubstr("wanted a string"));
  EXPECT_THAT(with("vocab_size", int64_t{1} << 41), HasSubstr("wanted a positive integer up to 1099511627776"));
  EXPECT_THAT(with("torch_dtype", "float8"),
              HasSubstr("my/config.json: 'torch_dtype': unknown dtype 'float8'; wanted"));
  EXPECT_THAT(with("torch_dtype", "float8_e4m3fn"), HasSubstr("weights in 8-bit floats are not supported"));
}

TEST(ModelConfig, EndIdsAreIdsOrNothing) {
  const auto ends = [](const Json& value) {
    return end_ids(Json{{"eos_token_id", value}}, "my/generation_config.json");
  };
  EXPECT_EQ(ends(7), std::vector<int32_t>{7});
  EXPECT_EQ(ends({2, 0}), (std::vector<int32_t>{2, 0}));
  EXPECT_TRUE(ends(nullptr).empty());
  EXPECT_TRUE(end_ids(Json::object(), "").empty());
  for (const Json& wrong : {Json("2"), Json(1.5), Json({1, "</s>"}), Json((int64_t{1} << 32) + 2)})
    EXPECT_THAT(user_error([&] { ends(wrong); }),
                AllOf(HasSubstr("my/generation_config.json: eos_token_id is " + wrong.dump()),
                      HasSubstr("a token id or a list of token ids")));
}

TEST(ModelConfig, FieldsThatDoNotFitTogether) {
  EXPECT_THAT(with("num_key_value_heads", 3),
              HasSubstr("num_attention_heads (4) is not divisible by num_key_value_heads (3)"));
  EXPECT_THAT(with("head_dim", 15), HasSubstr("head_dim 15 is odd"));
  EXPECT_THAT(message(Json{{"model_type", "gpt2"}, {"vocab_size", 10}, {"n_embd", 10}, {"n_layer", 1}, {"n_head", 3}}),
              HasSubstr("n_embd (10) is not divisible by n_head (3)"));
}

TEST(ModelConfig, WhatIsNotImplementedIsRefused) {
  EXPECT_THAT(with("quantization_config", {{"bits", 4}}), AllOf(HasSubstr("quantised"), HasSubstr("original weights")));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "aqlm"}, {"bits", 4}}), HasSubstr("'aqlm'"));
  EXPECT_THAT(with("quantization_config", "nf4"), HasSubstr("original weights"));
  const Json mixed{{"num_bits", 4}, {"type", "float"}, {"symmetric", true}};
  EXPECT_THAT(
      with("quantization_config",
           {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"weights", mixed}}}}}}),
      AllOf(HasSubstr("\"num_bits\":4"), HasSubstr("wanted symmetric 8-bit floats"), HasSubstr("original weights")));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "compressed-tensors"}}), HasSubstr("config_groups"));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "fp8"}, {"scale_fmt", "e5m2"}}),
              AllOf(HasSubstr("scale_fmt"), HasSubstr("Use another checkpoint")));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              AllOf(HasSubstr("two positive integers"), HasSubstr("Use another checkpoint")));
  const Json bnb{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  auto bnb_with = [&](const char* key, const char* value) {
    Json config = bnb;
    config[key] = value;
    return with("quantization_config", config);
  };
  EXPECT_THAT(bnb_with("bnb_4bit_quant_type", "nf2"),
              AllOf(HasSubstr("\"nf2\""), HasSubstr("fp4"), HasSubstr("original weights")));
  EXPECT_THAT(bnb_with("bnb_4bit_quant_storage", "bfloat16"), HasSubstr("wanted uint8"));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "spiral"}, {"factor", 4}}),
              AllOf(HasSubstr("'spiral'"), HasSubstr("llama3")));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "dynamic"}}), HasSubstr("rope_type dynamic needs 'factor'"));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 4}}),
              HasSubstr("original_max_position_embeddings"));
  EXPECT_THAT(with("rope_scaling", "linear"), HasSubstr("wanted an object"));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "linear"}}), HasSubstr("rope_type linear needs 'factor'"));
  EXPECT_THAT(with("rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}), HasSubstr("factor is 0"));
  EXPECT_THAT(with("is_causal", false), HasSubstr("'is_causal' is false; only true is implemented"));
  EXPECT_THAT(with("is_causal", true), "no error");
  EXPECT_THAT(with("per_layer_config", {{"0", {{"sliding_window", 8}}}}), HasSubstr("'per_layer_config' is"));
  const Json linear{{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 1e4}};
  Json both = changed(llama(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}});
  EXPECT_THAT(message(changed(both, "rope_scaling", linear)),
              HasSubstr("rope_scaling and rope_parameters have different settings"));
  both["rope_parameters"] = both["rope_scaling"] = linear;
  EXPECT_EQ(make_model(both, "c").config.rope.factor, 4);
  EXPECT_THAT(with("rope_theta", -1), HasSubstr("rope_theta is -1, wanted a number above 0"));
  EXPECT_THAT(message(Json{{"model_type", "gpt2"},
                           {"vocab_size", 10},
                           {"n_embd", 12},
                           {"n_layer", 1},
                           {"n_head", 3},
                           {"scale_attn_by_inverse_layer_idx", true}}),
              HasSubstr("'scale_attn_by_inverse_layer_idx' is true"));
  const Json gemma = of_type("gemma2"), starcoder = of_type("starcoder2"), phi = of_type("phi3");
  EXPECT_THAT(message(changed(gemma, "use_bidirectional_attention", true)),
              HasSubstr("'use_bidirectional_attention' is true"));
  EXPECT_THAT(message(changed(gemma, "layer_types", {"sliding_attention", "chunked_attention"})),
              AllOf(HasSubstr("'layer_types' contains \"chunked_attention\""), HasSubstr("full_attention")));
  EXPECT_THAT(message(changed(gemma, "layer_types", {"full_attention"})),
              HasSubstr("'layer_types' has length 1, wanted a list with one element for each of the 2 layers"));
  EXPECT_THAT(message(changed(gemma, "query_pre_attn_scalar", 0)),
              HasSubstr("'query_pre_attn_scalar' is 0, wanted a number above 0"));
  EXPECT_THAT(message(changed(of_type("granite"), "logits_scaling", 0)), HasSubstr("'logits_scaling' is 0"));
  EXPECT_THAT(message(changed(gemma, "layer_types", "all")), HasSubstr("'layer_types' is \"all\", wanted a list"));
  EXPECT_THAT(message(changed(starcoder, "mlp_type", "gated")), HasSubstr("'mlp_type' is \"gated\""));
  EXPECT_THAT(message(changed(starcoder, "norm_type", "rms_norm")), HasSubstr("'norm_type'"));
  EXPECT_THAT(message(changed(phi, "rope_scaling", {{"type", "spiral"}})), HasSubstr("rope_type 'spiral'"));
  EXPECT_THAT(message(changed(phi, "rope_scaling", {{"type", "linear"}, {"factor", 2}})),
              HasSubstr("my/config.json: rope_type is linear; only default and longrope are implemented"));
  EXPECT_THAT(message(changed(phi, "partial_rotary_factor", 0.6)),
              AllOf(HasSubstr("partial_rotary_factor 0.6"), HasSubstr("9 of 16")));
  EXPECT_THAT(message(changed(phi, "partial_rotary_factor", 1.5)),
              HasSubstr("partial_rotary_factor is 1.5, wanted a number above 0 and at most 1"));
  EXPECT_THAT(message(changed(phi, "rope_scaling", {{"type", "su"}, {"short_factor", {1, 2}}})),
              AllOf(HasSubstr("'short_factor'"), HasSubstr("2 values, wanted 8")));
  EXPECT_THAT(message(changed(phi, "rope_scaling", {{"type", "longrope"}, {"short_factor", {1, "2"}}})),
              HasSubstr("'short_factor' contains \"2\", wanted a list of numbers"));
  EXPECT_THAT(message(changed(of_type("gemma3_text"), "attn_logit_softcapping", 50)),
              HasSubstr("'attn_logit_softcapping' is 50"));
  EXPECT_THAT(message(changed(of_type("baichuan"), "z_loss_weight", 0.1)), HasSubstr("'z_loss_weight' is 0.1"));
  const Json gpt{{"model_type", "gpt_bigcode"}, {"vocab_size", 10}, {"n_embd", 12}, {"n_layer", 1}, {"n_head", 3}};
  EXPECT_THAT(message(changed(gpt, "add_cross_attention", true)), HasSubstr("'add_cross_attention' is true"));
  EXPECT_THAT(message(changed(gpt, "scale_attn_weights", false)), HasSubstr("'scale_attn_weights' is false"));
  const Json gemma4 = changed(of_type("gemma4_text"), "layer_types", {"sliding_attention", "full_attention"});
  EXPECT_THAT(message(changed(gemma4, "use_bidirectional_attention", "all")),
              HasSubstr("'use_bidirectional_attention' is \"all\""));
  EXPECT_THAT(
      message(changed(gemma4, "num_kv_shared_layers", 1)),
      AllOf(HasSubstr("num_kv_shared_layers is 1"), HasSubstr("all layers before the shared layers have a window")));
  EXPECT_THAT(message(changed(changed(gemma4, "attention_k_eq_v", true), "num_global_key_value_heads", 3)),
              HasSubstr("num_attention_heads (4) is not divisible by num_global_key_value_heads (3)"));
  EXPECT_THAT(message(changed(gemma4, "per_layer_config", {{"0", {{"head_dim", 64}}}})),
              HasSubstr("layer 0 has other head sizes than the other layers with a window"));
  EXPECT_THAT(message(changed(gemma4, "per_layer_config", {{"1", {{"intermediate_size", 64}}}})),
              HasSubstr("'intermediate_size' is not implemented"));
  const Json moe =
      changed(changed(changed(gemma4, "enable_moe_block", true), "num_experts", 4), "moe_intermediate_size", 8);
  EXPECT_THAT(message(changed(moe, "top_k_experts", 5)), HasSubstr("top_k_experts (5) is more than the 4 experts"));
  const Json llama4 = of_type("llama4_text"), lfm2 = of_type("lfm2"), granite4 = of_type("granitemoehybrid"),
             falcon = of_type("falcon_h1"), nemotron = of_type("nemotron_h");
  EXPECT_THAT(message(changed(llama4, "layer_types", {"full_attention", "chunked_attention"})),
              AllOf(HasSubstr("layer 0 has the type 'full_attention'"), HasSubstr("must be chunked_attention")));
  EXPECT_EQ(message(changed(llama4, "layer_types", {"full_attention", "full_attention"})), "no error");
  EXPECT_THAT(message(changed(llama4, "floor_scale", 0)), HasSubstr("'floor_scale' is 0, wanted a number above 0"));
  EXPECT_THAT(message(changed(of_type("ministral3"), "rope_parameters", {{"llama_4_scaling_beta", 0.1}})),
              HasSubstr("llama_4_scaling_beta needs original_max_position_embeddings"));
  EXPECT_THAT(message(changed(of_type("ministral3"), "rope_scaling",
                              {{"type", "dynamic"}, {"factor", 2}, {"llama_4_scaling_beta", 0.1}})),
              HasSubstr("llama_4_scaling_beta is not implemented with rope_type dynamic"));
  EXPECT_THAT(message(changed(granite4, "logits_scaling", 0)), HasSubstr("'logits_scaling' is 0"));
  EXPECT_THAT(message(changed(llama4, "moe_layers", {2})), HasSubstr("'moe_layers' contains 2"));
  EXPECT_THAT(message(changed(llama4, "moe_layers", {0.5})), HasSubstr("'moe_layers' contains 0.5"));
  EXPECT_THAT(message(changed(llama4, "moe_layers", {1e300})), HasSubstr("'moe_layers' contains 1e+300"));
  for (const Json& dense :
       {changed(llama4, "interleave_moe_layer_step", 3), changed(llama4, "moe_layers", Json::array())})
    EXPECT_EQ(make_model(dense, "c").config.num_experts, 0);
  EXPECT_THAT(message(changed(llama4, "interleave_moe_layer_step", 0)),
              HasSubstr("'interleave_moe_layer_step' is 0, wanted a positive integer"));
  for (const char* type : {"gpt_oss", "ministral3"}) {
    EXPECT_THAT(message(of_type(type)),
                HasSubstr("my/config.json: rope_parameters and rope_scaling are both missing, so it is not known"));
    EXPECT_EQ(message(changed(of_type(type), "rope_parameters", {{"rope_type", "default"}})), "no error");
  }
  const Json glm = changed(of_type("glm4_moe"), "moe_intermediate_size", 32);
  EXPECT_THAT(message(changed(glm, "first_k_dense_replace", 2)), HasSubstr("first_k_dense_replace leaves no layer"));
  EXPECT_THAT(message(changed(glm, "mlp_layer_types", {"dense", "dense"})), HasSubstr("mlp_layer_types leaves no"));
  EXPECT_THAT(message(changed(glm, "n_group", 3)), HasSubstr("n_group is 3, but the model has 128 experts"));
  EXPECT_THAT(message(changed(glm, "n_group", 128)), HasSubstr("groups of equal size, with at least 2 experts each"));
  const Json groups = changed(glm, "n_group", 32);
  EXPECT_THAT(message(changed(groups, "topk_group", 33)), HasSubstr("topk_group (33) is more than n_group (32)"));
  EXPECT_THAT(message(groups),
              HasSubstr("num_experts_per_tok (8) is more than the 4 experts in the chosen groups (topk_group: 1)"));
  EXPECT_THAT(message(changed(groups, "topk_group", 2)), "no error");
  EXPECT_THAT(message(changed(glm, "mlp_layer_types", {"sparse"})), HasSubstr("for each of the 2 layers"));
  EXPECT_THAT(message(changed(glm, "mlp_layer_types", {"dense", "moe"})),
              HasSubstr("'mlp_layer_types' contains 'moe'; sparse and dense are implemented"));
  const Json ernie = of_type("ernie4_5_moe");
  EXPECT_THAT(message(changed(ernie, "moe_k", 65)), HasSubstr("moe_k (65) is more than the 64 experts"));
  EXPECT_THAT(message(changed(changed(ernie, "moe_num_experts", 4), "moe_k", 2)), "no error");
  EXPECT_THAT(message(changed(ernie, "moe_layer_start_index", 2)),
              HasSubstr("moe_layer_start_index, moe_layer_end_index and moe_layer_interval leave no layer with"));
  EXPECT_THAT(message(changed(ernie, "use_bias", true)), HasSubstr("'use_bias' is true; only false"));
  EXPECT_THAT(message(changed(lfm2, "layer_types", {"conv", "mamba"})),
              AllOf(HasSubstr("'layer_types' contains 'mamba'"), HasSubstr("conv and full_attention")));
  EXPECT_THAT(message(changed(lfm2, "layer_types", {"conv"})), HasSubstr("has length 1, wanted a list with one"));
  EXPECT_THAT(message(changed(lfm2, "layer_types", Json::object())),
              HasSubstr("'layer_types' is {}, wanted a list of strings"));
  EXPECT_THAT(message(changed(llama4, "moe_layers", Json::object())),
              HasSubstr("'moe_layers' is {}, wanted a list of numbers"));
  EXPECT_THAT(message(changed(llama4, "layer_types", {"chunked_attention"})), HasSubstr("for each of the 2 layers"));
  EXPECT_THAT(message(changed(lfm2, "block_ffn_dim_multiplier", -1)),
              HasSubstr("block_ffn_dim_multiplier is -1, wanted a number above 0"));
  EXPECT_THAT(message(changed(of_type("lfm2_moe"), "num_dense_layers", 2)),
              HasSubstr("num_dense_layers (2) leaves no layer with experts"));
  EXPECT_THAT(message(changed(granite4, "position_embedding_type", "alibi")),
              AllOf(HasSubstr("position_embedding_type is 'alibi'"), HasSubstr("rope and nope")));
  EXPECT_THAT(message(changed(granite4, "layer_types", {"mamba", "conv"})), HasSubstr("'layer_types' contains 'conv'"));
  EXPECT_THAT(message(changed(changed(granite4, "mamba_n_heads", 6), "mamba_d_head", 16)),
              HasSubstr("mamba_n_heads (6) times mamba_d_head (16) must be 128"));
  const Json sized = changed(changed(falcon, "mamba_d_ssm", 96), "mamba_n_heads", 6);
  EXPECT_THAT(message(changed(sized, "mamba_n_groups", 4)), HasSubstr("(6) is not divisible by mamba_n_groups (4)"));
  EXPECT_THAT(message(changed(sized, "mamba_rms_norm", true)), HasSubstr("'mamba_norm_before_gate' is true"));
  EXPECT_THAT(message(changed(sized, "ssm_multipliers", {1, 2})),
              HasSubstr("'ssm_multipliers' has 2 numbers, wanted 5"));
  EXPECT_THAT(message(changed(sized, "time_step_limit", 3)), HasSubstr("'time_step_limit' is 3, wanted two numbers"));
  EXPECT_THAT(message(nemotron), HasSubstr("found no kinds of layers; wanted a list in 'layer_types'"));
  EXPECT_THAT(message(changed(nemotron, "hybrid_override_pattern", "M*X")),
              HasSubstr("'hybrid_override_pattern' is 'M*X'"));
  EXPECT_THAT(message(changed(nemotron, "layers_block_type", {"mamba", "conv"})),
              HasSubstr("'layers_block_type' contains 'conv'"));
  const Json mixtral = of_type("mixtral"), qwen = of_type("qwen3_moe");
  EXPECT_THAT(message(changed(mixtral, "router_jitter_noise", 0.1)), HasSubstr("'router_jitter_noise' is 0.1"));
  EXPECT_THAT(message(changed(mixtral, "num_experts_per_tok", 9)), HasSubstr("(9) is more than the 8 experts"));
  EXPECT_THAT(message(changed(qwen, "decoder_sparse_step", 3)), HasSubstr("leave no layer with experts"));
  EXPECT_THAT(message(changed(qwen, "mlp_only_layers", {0, 1})), HasSubstr("leave no layer with experts"));
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2}});
  EXPECT_THAT(
      user_error([&] { activation("quick_gelu", x); }),
      AllOf(HasSubstr("config.json: the activation function 'quick_gelu' is not implemented; wanted silu, swish, "),
            HasSubstr("(the key is hidden_act, ")));
}

}  // namespace
}  // namespace fettle
