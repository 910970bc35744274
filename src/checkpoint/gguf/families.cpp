#include "checkpoint/gguf/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/gguf/config_fields.h"

namespace fettle {
namespace {

using Names = std::vector<GgufName>;

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Adds the prefix of a layer to both the GGUF name and Hugging Face's name.
Names layer(const std::string& prefix, const Names& names) {
  Names out;
  for (const GgufName& name : names) out.push_back({"blk.{}." + name.gguf, prefix + name.hf, name.form});
  return out;
}

Names decoder_layer(const Names& names) {
  return layer("model.layers.{}.", names);
}

const Names kOutside = {{"token_embd", "model.embed_tokens"}, {"output", "lm_head"}, {"output_norm", "model.norm"}};
const Names kAttention = {{"attn_q", "self_attn.q_proj"},
                          {"attn_k", "self_attn.k_proj"},
                          {"attn_v", "self_attn.v_proj"},
                          {"attn_output", "self_attn.o_proj"}};
const Names kHeadNorms = {{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};
const Names kNorms = {{"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"}};
const Names kGatedMlp = {{"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};
const Names kFusedMlp = {{"ffn_up", "mlp.gate_up_proj"}, {"ffn_down", "mlp.down_proj"}};
const Names kPlainMlp = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
const Names kSandwichNorms = {{"attn_norm", "input_layernorm"},
                              {"post_attention_norm", "post_attention_layernorm"},
                              {"ffn_norm", "pre_feedforward_layernorm"},
                              {"post_ffw_norm", "post_feedforward_layernorm"}};
const Names kNormsBehind = {{"post_attention_norm", "post_attention_layernorm"},
                            {"post_ffw_norm", "post_feedforward_layernorm"}};

Names experts(const std::string& module, const char* gate, const char* up, const char* down) {
  return {{"ffn_gate_inp", module + ".gate"},
          {"ffn_gate_exps", module + ".experts.{}." + gate},
          {"ffn_up_exps", module + ".experts.{}." + up},
          {"ffn_down_exps", module + ".experts.{}." + down}};
}

// Returns the names of an MLP that runs beside the experts.
Names shared_expert(const std::string& module) {
  return {{"ffn_gate_shexp", module + ".gate_proj"},
          {"ffn_up_shexp", module + ".up_proj"},
          {"ffn_down_shexp", module + ".down_proj"}};
}

const Names kLlama = kOutside + decoder_layer(kNorms + kAttention + kGatedMlp);
const Names kGpt = Names{{"token_embd", "transformer.wte"},
                         {"position_embd", "transformer.wpe"},
                         {"output_norm", "transformer.ln_f"},
                         {"output", "lm_head"}} +
                   layer("transformer.h.{}.", {{"attn_norm", "ln_1"},
                                               {"attn_qkv", "attn.c_attn"},
                                               {"attn_output", "attn.c_proj"},
                                               {"ffn_norm", "ln_2"},
                                               {"ffn_up", "mlp.c_fc"},
                                               {"ffn_down", "mlp.c_proj"}});
const Names kNeox =
    Names{{"token_embd", "gpt_neox.embed_in"}, {"output_norm", "gpt_neox.final_layer_norm"}, {"output", "embed_out"}} +
    layer("gpt_neox.layers.{}.", {{"attn_norm", "input_layernorm"},
                                  {"attn_qkv", "attention.query_key_value"},
                                  {"attn_output", "attention.dense"},
                                  {"ffn_norm", "post_attention_layernorm"},
                                  {"ffn_up", "mlp.dense_h_to_4h"},
                                  {"ffn_down", "mlp.dense_4h_to_h"}});
const Names kGlm4 = kOutside + decoder_layer(kAttention + kFusedMlp +
                                             Names{{"attn_norm", "input_layernorm"},
                                                   {"post_attention_norm", "post_self_attn_layernorm"},
                                                   {"ffn_norm", "post_attention_layernorm"},
                                                   {"post_ffw_norm", "post_mlp_layernorm"}});
const Names kPhi3 =
    kOutside +
    decoder_layer(kNorms + kFusedMlp + Names{{"attn_qkv", "self_attn.qkv_proj"}, {"attn_output", "self_attn.o_proj"}});
const Names kPhi2 =
    Names{{"token_embd", "model.embed_tokens"}, {"output", "lm_head"}, {"output_norm", "model.final_layernorm"}} +
    decoder_layer({{"attn_norm", "input_layernorm"},
                   {"attn_q", "self_attn.q_proj"},
                   {"attn_k", "self_attn.k_proj"},
                   {"attn_v", "self_attn.v_proj"},
                   {"attn_output", "self_attn.dense"},
                   {"ffn_up", "mlp.fc1"},
                   {"ffn_down", "mlp.fc2"}});
const Names kLfm2 =
    Names{{"token_embd", "model.embed_tokens"}, {"token_embd_norm", "model.embedding_norm"}, {"output", "lm_head"}} +
    decoder_layer({{"attn_norm", "operator_norm"},
                   {"attn_q", "self_attn.q_proj"},
                   {"attn_k", "self_attn.k_proj"},
                   {"attn_v", "self_attn.v_proj"},
                   {"attn_output", "self_attn.out_proj"},
                   {"attn_q_norm", "self_attn.q_layernorm"},
                   {"attn_k_norm", "self_attn.k_layernorm"},
                   {"shortconv.in_proj", "conv.in_proj"},
                   {"shortconv.conv", "conv.conv", GgufForm::kSqueezed},
                   {"shortconv.out_proj", "conv.out_proj"},
                   {"ffn_norm", "ffn_norm"},
                   {"ffn_gate", "feed_forward.w1"},
                   {"ffn_up", "feed_forward.w3"},
                   {"ffn_down", "feed_forward.w2"}});
const Names kLfm2Experts =
    decoder_layer(experts("feed_forward", "w1", "w3", "w2") + Names{{"exp_probs_b.bias", "feed_forward.expert_bias"}});
const Names kQwen2Moe =
    kOutside +
    decoder_layer(kNorms + kAttention + experts("mlp", "gate_proj", "up_proj", "down_proj") +
                  shared_expert("mlp.shared_expert") + Names{{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}});
const Names kMiniMaxM2 =
    kOutside + decoder_layer(kNorms + kAttention + kHeadNorms + experts("block_sparse_moe", "w1", "w3", "w2") +
                             Names{{"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"}});
// The names for models whose first layers are dense and whose other layers have experts and a shared expert.
const Names kRoutedExperts = kGatedMlp + experts("mlp", "gate_proj", "up_proj", "down_proj") +
                             shared_expert("mlp.shared_experts") +
                             Names{{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}};
const Names kGlm4Moe = kOutside + decoder_layer(kAttention + kHeadNorms + kRoutedExperts +
                                                Names{{"attn_norm", "input_layernorm"},
                                                      {"post_attention_norm", "post_attention_layernorm"}});
const Names kDeepseek = kOutside + decoder_layer(kNorms + kRoutedExperts +
                                                 Names{{"attn_q", "self_attn.q_proj"},
                                                       {"attn_q_a", "self_attn.q_a_proj"},
                                                       {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                                       {"attn_q_b", "self_attn.q_b_proj"},
                                                       {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                                       {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                                       {"attn_k_b", "self_attn.kv_b_proj", GgufForm::kKeysOfHeads},
                                                       {"attn_v_b", "self_attn.kv_b_proj", GgufForm::kValuesOfHeads},
                                                       {"attn_output", "self_attn.o_proj"}});
Names mamba2(const std::string& module) {
  return {{"ssm_in", module + ".in_proj"},
          {"ssm_conv1d", module + ".conv1d", GgufForm::kSqueezed},
          {"ssm_dt.bias", module + ".dt_bias"},
          {"ssm_a", module + ".A_log", GgufForm::kNegativeColumn},
          {"ssm_d", module + ".D", GgufForm::kColumn},
          {"ssm_norm", module + ".norm", GgufForm::kGrouped},
          {"ssm_out", module + ".out_proj"}};
}

const Names kNemotronH =
    Names{{"token_embd", "model.embeddings"}, {"output", "lm_head"}, {"output_norm", "model.norm_f"}} +
    decoder_layer(mamba2("mixer") + Names{{"attn_norm", "norm"},
                                          {"attn_q", "mixer.q_proj"},
                                          {"attn_k", "mixer.k_proj"},
                                          {"attn_v", "mixer.v_proj"},
                                          {"attn_output", "mixer.o_proj"},
                                          {"ffn_up", "mixer.up_proj"},
                                          {"ffn_down", "mixer.down_proj"},
                                          {"ffn_gate_inp", "mixer.gate"},
                                          {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
                                          {"ffn_up_exps", "mixer.experts.{}.up_proj"},
                                          {"ffn_down_exps", "mixer.experts.{}.down_proj"},
                                          {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
                                          {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
                                          {"ffn_latent_down", "mixer.fc1_latent_proj"},
                                          {"ffn_latent_up", "mixer.fc2_latent_proj"}});
const Names kQwen35 = kOutside + decoder_layer(kAttention + kHeadNorms +
                                               Names{{"attn_norm", "input_layernorm"},
                                                     {"post_attention_norm", "post_attention_layernorm"},
                                                     {"attn_qkv", "linear_attn.in_proj_qkv"},
                                                     {"attn_gate", "linear_attn.in_proj_z"},
                                                     {"ssm_beta", "linear_attn.in_proj_b"},
                                                     {"ssm_alpha", "linear_attn.in_proj_a"},
                                                     {"ssm_conv1d", "linear_attn.conv1d", GgufForm::kSqueezed},
                                                     {"ssm_dt.bias", "linear_attn.dt_bias"},
                                                     {"ssm_a", "linear_attn.A_log", GgufForm::kNegative},
                                                     {"ssm_norm", "linear_attn.norm"},
                                                     {"ssm_out", "linear_attn.out_proj"}});
const Names kQwen35Experts =
    decoder_layer(shared_expert("mlp.shared_expert") +
                  Names{{"ffn_gate_inp", "mlp.gate"},
                        {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                        {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", GgufForm::kGatesOfExperts},
                        {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", GgufForm::kUpsOfExperts},
                        {"ffn_down_exps.weight", "mlp.experts.down_proj", GgufForm::kExperts}});
const Names kQwen3Next =
    kOutside + decoder_layer(kAttention + kHeadNorms + experts("mlp", "gate_proj", "up_proj", "down_proj") +
                             shared_expert("mlp.shared_expert") +
                             Names{{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                   {"attn_norm", "input_layernorm"},
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"attn_qkv", "linear_attn.in_proj_qkvz", GgufForm::kQkv},
                                   {"attn_gate", "linear_attn.in_proj_qkvz", GgufForm::kGate},
                                   {"ssm_ba", "linear_attn.in_proj_ba"},
                                   {"ssm_conv1d", "linear_attn.conv1d", GgufForm::kSqueezed},
                                   {"ssm_dt.bias", "linear_attn.dt_bias"},
                                   {"ssm_a", "linear_attn.A_log", GgufForm::kNegative},
                                   {"ssm_norm", "linear_attn.norm"},
                                   {"ssm_out", "linear_attn.out_proj"}});
const Names kFalconH1 =
    Names{{"token_embd", "model.embed_tokens"}, {"output", "lm_head"}, {"output_norm", "model.final_layernorm"}} +
    decoder_layer(kAttention + mamba2("mamba") +
                  Names{{"attn_norm", "input_layernorm"},
                        {"ffn_norm", "pre_ff_layernorm.weight"},
                        {"ffn_gate", "feed_forward.gate_proj"},
                        {"ffn_up", "feed_forward.up_proj"},
                        {"ffn_down", "feed_forward.down_proj"}});
const Names kGptOss =
    kOutside +
    decoder_layer(kAttention + Names{{"attn_norm", "input_layernorm"},
                                     {"post_attention_norm", "post_attention_layernorm"},
                                     {"attn_sinks.weight", "self_attn.sinks"},
                                     {"ffn_gate_inp", "mlp.router"},
                                     {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", GgufForm::kGatesInTurns},
                                     {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", GgufForm::kUpsInTurns},
                                     {"ffn_down_exps.weight", "mlp.experts.down_proj", GgufForm::kDownInColumns},
                                     {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", GgufForm::kGatesInTurns},
                                     {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", GgufForm::kUpsInTurns},
                                     {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"}});
const Names kGemma4 =
    kOutside +
    Names{{"per_layer_token_embd", "model.embed_tokens_per_layer"},
          {"per_layer_model_proj", "model.per_layer_model_projection"},
          {"per_layer_proj_norm", "model.per_layer_projection_norm"}} +
    decoder_layer(kSandwichNorms + kAttention + kHeadNorms + kGatedMlp +
                  Names{{"layer_output_scale.weight", "layer_scalar"},
                        {"inp_gate", "per_layer_input_gate"},
                        {"proj", "per_layer_projection"},
                        {"post_norm", "post_per_layer_input_norm"},
                        {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                        {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                        {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                        {"ffn_gate_inp", "router.proj"},
                        {"ffn_gate_inp.scale", "router.scale"},
                        {"ffn_down_exps.scale", "router.per_expert_scale"},
                        {"ffn_gate_up_exps.weight", "experts.gate_up_proj", GgufForm::kGateUpOfExperts},
                        {"ffn_down_exps.weight", "experts.down_proj", GgufForm::kExperts}});
const Names kLlama4 =
    kOutside +
    decoder_layer(kNorms + kAttention + shared_expert("feed_forward.shared_expert") +
                  Names{{"ffn_gate", "feed_forward.gate_proj"},
                        {"ffn_up", "feed_forward.up_proj"},
                        {"ffn_down", "feed_forward.down_proj"},
                        {"ffn_gate_inp", "feed_forward.router"},
                        {"ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj", GgufForm::kGatesInColumns},
                        {"ffn_up_exps.weight", "feed_forward.experts.gate_up_proj", GgufForm::kUpsInColumns},
                        {"ffn_down_exps.weight", "feed_forward.experts.down_proj", GgufForm::kDownInColumns}});
// Returns the names of Granite 4. The GGUF names of the shared MLP, which runs for all tokens, end with `ending`.
Names granite4(const std::string& ending) {
  return kOutside +
         decoder_layer(kNorms + kAttention + mamba2("mamba") +
                       Names{{"ffn_gate" + ending + ".weight", "shared_mlp.input_linear.weight", GgufForm::kGates},
                             {"ffn_up" + ending + ".weight", "shared_mlp.input_linear.weight", GgufForm::kUps},
                             {"ffn_down" + ending, "shared_mlp.output_linear"}});
}
const Names kGranite4Experts =
    decoder_layer({{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                   {"ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", GgufForm::kGatesOfExperts},
                   {"ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", GgufForm::kUpsOfExperts},
                   {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", GgufForm::kExperts}});
const Names kBaichuan = kOutside + decoder_layer(kNorms + kGatedMlp +
                                                 Names{{"attn_q", "self_attn.W_pack", GgufForm::kPackedQ},
                                                       {"attn_k", "self_attn.W_pack", GgufForm::kPackedK},
                                                       {"attn_v", "self_attn.W_pack", GgufForm::kPackedV},
                                                       {"attn_output", "self_attn.o_proj"}});
const Names kSeedOss = kOutside + decoder_layer(kAttention + kGatedMlp +
                                                Names{{"attn_norm", "input_layernorm"},
                                                      {"post_attention_norm", "post_attention_layernorm"}});

}  // namespace

const std::vector<GgufFamily>& gguf_families() {
  static const Names kSandwich = kOutside + decoder_layer(kSandwichNorms + kAttention + kGatedMlp);
  static const Names kQwen3 = kOutside + decoder_layer(kNorms + kAttention + kHeadNorms + kGatedMlp);
  static const Names kOlmo = kOutside + decoder_layer(kNormsBehind + kAttention + kHeadNorms + kGatedMlp);
  // clang-format off
  static const std::vector<GgufFamily> all{
      {"llama", "llama", "LlamaForCausalLM", kLlama, llama_fields, {.pairs_rows = true}},
      {"llama", "mixtral", "MixtralForCausalLM", kOutside + decoder_layer(kNorms + kAttention + experts("block_sparse_moe", "w1", "w3", "w2")), mixtral_fields, {.pairs_rows = true}},
      {"llama", "mistral", "MistralForCausalLM", kLlama, mistral_fields, {.pairs_rows = true}},
      {"mistral3", "ministral3", "Ministral3ForCausalLM", kLlama, ministral3_fields, {.pairs_rows = true}, ministral3_metadata},
      {"mistral3", "mistral", "MistralForCausalLM", kLlama, mistral_fields, {.pairs_rows = true}},
      {"qwen2", "qwen2", "Qwen2ForCausalLM", kLlama, no_fields},
      {"qwen3", "qwen3", "Qwen3ForCausalLM", kQwen3, bias_fields},
      {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", kOutside + decoder_layer(kNorms + kAttention + kHeadNorms + experts("mlp", "gate_proj", "up_proj", "down_proj")), qwen3_moe_fields, {}, qwen3_moe_metadata},
      {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", kQwen2Moe, qwen2_moe_fields, {}, qwen2_moe_metadata},
      {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", kQwen35 + decoder_layer(kGatedMlp), qwen3_5_fields, {.adds_one = true, .spreads_values = true}, qwen3_5_metadata},
      {"qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", kQwen35 + kQwen35Experts, qwen3_next_fields, {.adds_one = true, .spreads_values = true}, qwen3_5_moe_metadata},
      {"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", kQwen3Next, qwen3_next_fields, {.adds_one = true}, qwen3_next_metadata},
      {"gemma", "gemma", "GemmaForCausalLM", kLlama, gemma_fields, {.adds_one = true}},
      {"gemma2", "gemma2", "Gemma2ForCausalLM", kSandwich, gemma2_fields, {.adds_one = true}, gemma2_metadata},
      {"gemma3", "gemma3_text", "Gemma3ForCausalLM", kSandwich + decoder_layer(kHeadNorms), gemma3_fields, {.adds_one = true}, gemma3_metadata},
      {"gemma4", "gemma4_text", "Gemma4ForCausalLM", kGemma4, gemma4_fields, {}, gemma4_metadata},
      {"gemma4", "gemma4_unified_text", "Gemma4ForCausalLM", kGemma4, gemma4_fields, {}, gemma4_metadata},
      {"phi2", "phi", "PhiForCausalLM", kPhi2, phi2_fields},
      {"phi3", "phi3", "Phi3ForCausalLM", kPhi3, phi3_fields, {}, phi3_metadata},
      {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", kOutside + decoder_layer(kNorms + kAttention + kPlainMlp), starcoder2_fields},
      {"starcoder", "gpt_bigcode", "GPTBigCodeForCausalLM", kGpt, gpt_bigcode_fields},
      {"gpt2", "gpt2", "GPT2LMHeadModel", kGpt, gpt2_fields, {.transposes = true}},
      {"gptneox", "gpt_neox", "GPTNeoXForCausalLM", kNeox, gpt_neox_fields, {.parts_first = true}, gpt_neox_metadata},
      {"olmo2", "olmo2", "Olmo2ForCausalLM", kOlmo, bias_fields},
      {"olmo2", "olmo3", "Olmo3ForCausalLM", kOlmo, olmo3_fields, {}, olmo3_metadata},
      {"smollm3", "smollm3", "SmolLM3ForCausalLM", kLlama, smollm3_fields, {.pairs_rows = true}},
      {"granite", "granite", "GraniteForCausalLM", kLlama, granite_fields, {.pairs_rows = true}, granite_metadata},
      {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", granite4("_shexp") + kGranite4Experts, granite4_fields, {.pairs_rows = true}, granite4_metadata, true, true},
      {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", granite4(""), granite4_fields, {.pairs_rows = true}, granite4_metadata, false, true},
      {"granite", "granitemoehybrid", "GraniteMoeHybridForCausalLM", granite4(""), granite4_fields, {.pairs_rows = true}, granite4_metadata, false, false},
      {"seed_oss", "seed_oss", "SeedOssForCausalLM", kSeedOss, seed_oss_fields},
      {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", kLlama, ernie4_5_fields},
      {"chatglm", "glm", "GlmForCausalLM", kOutside + decoder_layer(kNorms + kAttention + kFusedMlp), glm_fields},
      {"glm4", "glm4", "Glm4ForCausalLM", kGlm4, glm_fields},
      {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", kGlm4Moe, glm4_moe_fields, {}, routed_experts_metadata},
      {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", kDeepseek, deepseek_fields, {}, deepseek_metadata},
      {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", kDeepseek, deepseek_fields, {}, deepseek_metadata},
      {"deepseek2", "kimi_k2", "DeepseekV3ForCausalLM", kDeepseek, deepseek_fields, {}, deepseek_metadata},
      {"deepseek2", "glm4_moe_lite", "Glm4MoeLiteForCausalLM", kDeepseek, deepseek_fields, {}, deepseek_metadata},
      {"minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", kMiniMaxM2, minimax_m2_fields, {}, minimax_m2_metadata},
      {"lfm2", "lfm2", "Lfm2ForCausalLM", kLfm2, lfm2_fields, {}, lfm2_metadata},
      {"lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", kLfm2 + kLfm2Experts, lfm2_moe_fields, {}, lfm2_moe_metadata},
      {"nemotron_h", "nemotron_h", "NemotronHForCausalLM", kNemotronH, nemotron_h_fields, {.pairs_rows = true}, nemotron_h_metadata, false},
      {"nemotron_h_moe", "nemotron_h", "NemotronHForCausalLM", kNemotronH, nemotron_h_fields, {.pairs_rows = true}, nemotron_h_metadata, true},
      {"falcon-h1", "falcon_h1", "FalconH1ForCausalLM", kFalconH1, falcon_h1_fields, {}, falcon_h1_metadata},
      {"llama4", "llama4_text", "Llama4ForCausalLM", kLlama4, llama4_fields, {}, llama4_metadata},
      {"baichuan", "baichuan", "BaichuanForCausalLM", kBaichuan, baichuan_fields, {.pairs_rows = true}, baichuan_metadata},
      {"gpt-oss", "gpt_oss", "GptOssForCausalLM", kGptOss, gpt_oss_fields, {}, gpt_oss_metadata},
      {"cohere2", "cohere2", "Cohere2ForCausalLM", kOutside + decoder_layer(Names{{"attn_norm", "input_layernorm"}} + kAttention + kGatedMlp), cohere2_fields, {}, cohere2_metadata},
  };
  // clang-format on
  return all;
}

const GgufFamily& gguf_family_for(const std::string& model_type, const ModelConfig& config, const std::string& model) {
  const bool experts = config.num_experts > 0, mamba2 = config.mamba2.has_value();
  std::set<std::string_view> known;
  for (const GgufFamily& family : gguf_families()) {
    if (family.model_type == model_type && family.experts.value_or(experts) == experts &&
        family.mamba2.value_or(mamba2) == mamba2)
      return family;
    known.insert(family.model_type);
  }
  throw UserError(
      "{}: Fettle does not write the family '{}' as GGUF; it writes {}. Export it as safetensors (without "
      "export_gguf); "
      "llama.cpp's convert_hf_to_gguf.py may know it",
      model, model_type, fmt::join(known, ", "));
}

const GgufFamily& gguf_family_of(const GgufFields& fields) {
  const std::string& architecture = fields.architecture();
  std::string_view model_type;
  if (architecture == "llama") model_type = fields.integer(".expert_count", 0) > 0 ? "mixtral" : "llama";
  if (architecture == "mistral3") model_type = fields.has(".attention.temperature_scale") ? "ministral3" : "mistral";
  if (architecture == "olmo2") model_type = fields.has(".attention.sliding_window") ? "olmo3" : "olmo2";
  if (architecture == "deepseek2")
    model_type =
        fields.integer(".expert_gating_func", kSoftmaxGating) == kSigmoidGating ? "deepseek_v3" : "deepseek_v2";
  // llama.cpp's conversion of a Granite 4 without Mamba2 keeps the keys of Mamba2.
  if (architecture == "granite") model_type = fields.has(".ssm.conv_kernel") ? "granitemoehybrid" : "granite";
  const bool experts = fields.integer(".expert_count", 0) > 0;
  std::set<std::string_view> known;
  for (const GgufFamily& family : gguf_families()) {
    if (family.architecture == architecture && (model_type.empty() || family.model_type == model_type) &&
        family.experts.value_or(experts) == experts)
      return family;
    known.insert(family.architecture);
  }
  throw UserError(
      "{}: Fettle does not read the architecture '{}' from GGUF; it reads {}. Use the model's safetensors files, if "
      "Fettle supports its family",
      fields.file(), architecture, fmt::join(known, ", "));
}

}  // namespace fettle
