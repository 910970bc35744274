// Tests that each parameter of each family has the role that its name in Hugging Face's checkpoints suggests.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "families.h"
#include "models/model.h"
#include "paths.h"

namespace fettle {
namespace {

using Names = std::vector<std::string>;

Model model_of(const std::string& name, int64_t labels = 0) {
  const std::string folder = source_folder().string() + "/tests/reference/models/" + name;
  return make_model(nlohmann::json::parse(std::ifstream(folder + "/config.json")), "config.json", labels);
}

std::vector<Model> all_models() {
  std::vector<Model> out;
  for (const std::string& name : kFamilies) {
    out.push_back(model_of(name));
    if (!out.back().family->classifier.architecture.empty()) out.push_back(model_of(name, 3));
  }
  for (const std::string& name : kEncoders) out.push_back(model_of(name, 3));
  return out;
}

// Returns the name of the model's form. Models of one model_type may have different parameters.
std::string form_of(const Model& model) {
  const ModelConfig& c = model.config;
  const std::string& type = model.family->model_type;
  if (type == "granitemoehybrid") return c.mamba2 ? type : type + "_dense";
  if (type == "qwen2_moe" || type == "qwen3_next" || type == "llama4") return c.expert_layers ? type : type + "_sparse";
  if (type == "deepseek_v3") return c.latent->query_rank > 0 ? type : "moonlight";
  if (c.nemotron_h && c.expert_width == 0 && c.num_experts > 0) return "nemotron_h_nano";
  const bool moe = (c.gemma4 || c.nemotron_h) && c.num_experts > 0;
  return type + (moe ? "_moe" : c.gemma4 && c.gemma4->layer_size > 0 ? "_e2b" : "");
}

Names names_of(const Model& model, Role role) {
  Names out;
  for (const Param& param : model.params)
    if (param.role == role) out.push_back(param.hf_name);
  return out;
}

TEST(Roles, FollowFromTheShape) {
  for (const Model& model : all_models())
    for (const Param& param : model.params) {
      SCOPED_TRACE(model.family->model_type + " " + param.hf_name);
      const bool experts_bias = param.role == Role::kExpertBias;
      const bool coefficients = param.role == Role::kCoefficients || param.role == Role::kBuffer;
      EXPECT_EQ(param.is_bias_or_norm(), (param.stored_dims().size() == 1 && !coefficients) || experts_bias);
      EXPECT_FALSE(param.is_lora());
      EXPECT_EQ(param.stacked(), param.hf_name.starts_with(model.family->layer_prefix));
      if (!coefficients) {
        EXPECT_EQ(param.has_experts(), param.dims.size() >= 3 && (param.fused < 0 || param.dims.size() == 4));
      }
      const ModelConfig& c = model.config;
      if (!c.delta_net && !c.expert_layers && !c.gemma4 && !c.mamba2 && !c.nemotron_h && !c.lfm2 &&
          c.model_type != "modernbert") {
        EXPECT_EQ(param.layers.count(), param.stacked() ? c.num_hidden_layers : 0);
      }
      const bool several = std::ranges::count(model.params, param.hf_name, &Param::hf_name) > 1;
      EXPECT_EQ(param.stack_name() == param.hf_name, !several) << "the stack has all layers with the parameter";
      EXPECT_EQ(std::ranges::count(model.params, param.stack_name(), &Param::stack_name), 1);
      EXPECT_FALSE(param.trained) << "no run has been resolved";
    }
}

// The package adam-mini finds biases, queries and keys by these ends of the names.
TEST(Roles, BiasesQueriesAndKeysAreMarked) {
  for (const Model& model : all_models())
    for (const Param& param : model.params) {
      SCOPED_TRACE(model.family->model_type + " " + param.hf_name);
      EXPECT_EQ(param.is_bias(), param.hf_name.ends_with("bias") && param.role != Role::kBuffer);
      const ModelConfig& c = model.config;
      int64_t rows = c.latent ? c.latent->plain_dim + c.latent->rotary_dim : c.head_dim;
      if (c.gemma4 && param.stacked() && c.window[static_cast<size_t>(param.layers.numbers.front())] == 0)
        rows = c.gemma4->full_head_dim;
      const bool head =
          std::ranges::any_of(std::array{".q_proj.weight", ".k_proj.weight", ".query.weight", ".key.weight"},
                              [&](const char* end) { return param.hf_name.ends_with(end); });
      EXPECT_EQ(param.head_rows, head ? rows : 0);
      if (head) {
        EXPECT_EQ(param.dims.at(0) % rows, 0);
      }
    }
}

TEST(Roles, OneEmbeddingAndOneHead) {
  for (const Model& model : all_models()) {
    SCOPED_TRACE(model.family->model_type);
    EXPECT_EQ(names_of(model, Role::kTokenEmbedding).size(), 1u);
    const size_t heads = model.classifies() || model.config.tie_word_embeddings ? 0 : 1;
    const std::string& type = model.family->model_type;
    EXPECT_EQ(names_of(model, Role::kHead), Names(heads, type == "gpt_neox" ? "embed_out.weight"
                                                         : type == "llama4" ? "language_model.lm_head.weight"
                                                                            : "lm_head.weight"));
    const ClassifierHead& head = model.family->classifier;
    EXPECT_EQ(names_of(model, Role::kClassifier).size(), model.classifies() ? head.modules.size() : 0);
    EXPECT_EQ(names_of(model, Role::kHeadBias), Names(heads && type == "phi" ? 1 : 0, "lm_head.bias"));
    const size_t biases = !model.config.classifier.inner_bias ? 1 : head.modules.size();
    EXPECT_EQ(names_of(model, Role::kClassifierBias).size(), model.classifies() && head.bias ? biases : 0);
    const size_t norms = head.norm.empty() ? 0 : model.config.norm == Norm::kLayer ? 2 : 1;
    EXPECT_EQ(names_of(model, Role::kClassifierNorm).size(), norms);
    if (!model.classifies()) {
      EXPECT_EQ(model.head().role, model.config.tie_word_embeddings ? Role::kTokenEmbedding : Role::kHead);
    }
  }
}

TEST(Roles, TablesOfPositionsAndTokenTypes) {
  const std::map<std::string, std::string> positions{{"gpt2", "transformer.wpe.weight"},
                                                     {"gpt_bigcode", "transformer.wpe.weight"},
                                                     {"bert", "bert.embeddings.position_embeddings.weight"},
                                                     {"roberta", "roberta.embeddings.position_embeddings.weight"}};
  for (const Model& model : all_models()) {
    const std::string& type = model.family->model_type;
    EXPECT_EQ(names_of(model, Role::kPositionEmbedding), positions.contains(type) ? Names{positions.at(type)} : Names{})
        << type;
    EXPECT_EQ(names_of(model, Role::kTypeEmbedding),
              type == "bert" || type == "roberta" ? Names{type + ".embeddings.token_type_embeddings.weight"} : Names{})
        << type;
  }
}

// Tests which layers LoRA's `all` selects. They are listed in the order of the forward pass.
TEST(Roles, LinearLayers) {
  const Names decoder{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"},
      attention(decoder.begin(), decoder.begin() + 4), gpt{"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"},
      encoder{"attention.self.query",   "attention.self.key", "attention.self.value",
              "attention.output.dense", "intermediate.dense", "output.dense"};
  Names starcoder2 = attention;
  starcoder2.insert(starcoder2.end(), {"mlp.c_fc", "mlp.c_proj"});
  Names delta = attention;
  for (const char* name : {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"})
    delta.push_back(std::string("linear_attn.") + name);
  delta.insert(delta.end(), decoder.begin() + 4, decoder.end());
  Names qwen2_moe = attention, glm4_moe = attention;
  Names deepseek{"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj",
                 "self_attn.o_proj"};
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    qwen2_moe.push_back(std::string("mlp.shared_expert.") + name);
    for (Names* names : {&glm4_moe, &deepseek}) names->push_back(std::string("mlp.shared_experts.") + name);
  }
  qwen2_moe.emplace_back("mlp.shared_expert_gate");
  Names qwen3_next = attention, qwen3_5_moe{delta.begin(), delta.begin() + 9};
  for (const char* name : {"in_proj_qkvz", "in_proj_ba", "out_proj"})
    qwen3_next.push_back(std::string("linear_attn.") + name);
  for (Names* names : {&qwen3_next, &qwen3_5_moe}) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      names->push_back(std::string("mlp.shared_expert.") + name);
    names->emplace_back("mlp.shared_expert_gate");
  }
  const Names qwen2_moe_sparse = qwen2_moe, qwen3_next_sparse = qwen3_next;  // no layer has a dense MLP
  for (Names* names : {&qwen2_moe, &glm4_moe, &deepseek, &qwen3_next})
    names->insert(names->end(), decoder.begin() + 4, decoder.end());
  Names deepseek_v2 = deepseek;
  deepseek_v2.erase(deepseek_v2.begin());
  deepseek_v2[0] = "self_attn.q_proj";
  Names gemma4_e2b = decoder;
  gemma4_e2b.insert(gemma4_e2b.end(), {"per_layer_input_gate", "per_layer_projection",
                                       "model.language_model.per_layer_model_projection"});
  Names llama4 = attention, llama4_sparse;
  for (const char* module : {"feed_forward.shared_expert.", "feed_forward."}) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) llama4.push_back(std::string(module) + name);
    if (llama4_sparse.empty()) llama4_sparse = llama4;
  }
  Names llama4_dense = attention;
  llama4_dense.insert(llama4_dense.end(), llama4.end() - 3, llama4.end());
  const Names lfm2{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "conv.in_proj",
                   "conv.out_proj",    "feed_forward.w1",  "feed_forward.w3",  "feed_forward.w2"};
  Names granite4_dense = attention, falcon_h1 = attention;
  granite4_dense.insert(granite4_dense.end(), {"shared_mlp.input_linear", "shared_mlp.output_linear"});
  Names granite4{"mamba.in_proj", "mamba.out_proj"};
  granite4.insert(granite4.end(), granite4_dense.begin(), granite4_dense.end());
  falcon_h1.insert(falcon_h1.end(), {"mamba.in_proj", "mamba.out_proj", "feed_forward.gate_proj",
                                     "feed_forward.up_proj", "feed_forward.down_proj"});
  Names nemotron{"mixer.in_proj", "mixer.out_proj", "mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj"};
  Names nemotron_moe = nemotron;
  nemotron.insert(nemotron.end(), {"mixer.up_proj", "mixer.down_proj"});
  nemotron_moe.insert(nemotron_moe.end(), {"mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj"});
  const Names nemotron_nano = nemotron_moe;
  nemotron_moe.insert(nemotron_moe.end(), {"mixer.fc1_latent_proj", "mixer.fc2_latent_proj"});
  const std::map<std::string, Names> others{
      {"llama4", llama4},
      {"llama4_sparse", llama4_sparse},
      {"llama4_text", llama4_dense},
      {"lfm2", lfm2},
      {"lfm2_moe", lfm2},
      {"granitemoe", attention},
      {"granitemoehybrid", granite4},
      {"granitemoehybrid_dense", granite4_dense},
      {"falcon_h1", falcon_h1},
      {"nemotron_h", nemotron},
      {"nemotron_h_moe", nemotron_moe},
      {"nemotron_h_nano", nemotron_nano},
      {"gemma4_e2b", gemma4_e2b},
      {"phi3", {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}},
      {"glm",
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_up_proj",
        "mlp.down_proj"}},
      {"glm4",
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_up_proj",
        "mlp.down_proj"}},
      {"gpt_neox", {"attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}},
      {"baichuan", {"self_attn.W_pack", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}},
      {"starcoder2", starcoder2},
      {"gpt2", gpt},
      {"gpt_bigcode", gpt},
      {"mixtral", attention},
      {"qwen3_moe", attention},
      {"gpt_oss", attention},
      {"qwen2_moe", qwen2_moe},
      {"qwen2_moe_sparse", qwen2_moe_sparse},
      {"glm4_moe", glm4_moe},
      {"ernie4_5_moe", glm4_moe},
      {"deepseek_v3", deepseek},
      {"kimi_k2", deepseek},
      {"moonlight", deepseek_v2},
      {"deepseek_v2", deepseek_v2},
      {"glm4_moe_lite", deepseek},
      {"minimax_m2", attention},
      {"qwen3_next", qwen3_next},
      {"qwen3_next_sparse", qwen3_next_sparse},
      {"qwen3_5_moe", qwen3_5_moe},
      {"qwen3_5_text", delta},
      {"qwen3_5", delta},
      {"phi", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense", "mlp.fc1", "mlp.fc2"}},
      {"modernbert", {"attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"}},
      {"bert", encoder},
      {"roberta", encoder}};
  for (const Model& model : all_models()) {
    const std::string type = form_of(model);
    EXPECT_EQ(model.linears(), others.contains(type) ? others.at(type) : decoder) << type;
  }
}

TEST(Roles, RouterAndExperts) {
  const std::array<std::string, 4> per_expert{"mlp.gate", "mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj",
                                              "mlp.experts.{}.down_proj"};
  const std::map<std::string, std::array<std::string, 4>> named{
      {"mixtral",
       {"block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3",
        "block_sparse_moe.experts.{}.w2"}},
      {"qwen3_moe", {"mlp.gate", "mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj", "mlp.experts.{}.down_proj"}},
      {"gpt_oss", {"mlp.router", "", "", ""}},
      {"qwen2_moe", per_expert},
      {"qwen2_moe_sparse", per_expert},
      {"glm4_moe", per_expert},
      {"ernie4_5_moe", per_expert},
      {"deepseek_v3", per_expert},
      {"kimi_k2", per_expert},
      {"moonlight", per_expert},
      {"qwen3_next", per_expert},
      {"qwen3_next_sparse", per_expert},
      {"deepseek_v2", per_expert},
      {"glm4_moe_lite", per_expert},
      {"minimax_m2",
       {"block_sparse_moe.gate", "block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3",
        "block_sparse_moe.experts.{}.w2"}},
      {"qwen3_5_moe", {"mlp.gate", "", "", ""}},
      {"gemma4_moe", {"router.proj", "", "", ""}},
      {"llama4", {"feed_forward.router", "", "", ""}},
      {"llama4_sparse", {"feed_forward.router", "", "", ""}},
      {"lfm2_moe",
       {"feed_forward.gate", "feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3", "feed_forward.experts.{}.w2"}},
      {"granitemoe", {"block_sparse_moe.router.layer", "", "", ""}},
      {"granitemoehybrid", {"block_sparse_moe.router.layer", "", "", ""}},
      {"nemotron_h_moe", {"mixer.gate", "", "mixer.experts.{}.up_proj", "mixer.experts.{}.down_proj"}},
      {"nemotron_h_nano", {"mixer.gate", "", "mixer.experts.{}.up_proj", "mixer.experts.{}.down_proj"}}};
  const Role roles[] = {Role::kRouter, Role::kExpertGate, Role::kExpertUp, Role::kExpertDown};
  for (const Model& model : all_models())
    for (size_t i = 0; i < 4; ++i) {
      const auto known = named.find(form_of(model));
      EXPECT_EQ(names_of(model, roles[i]), known == named.end() || known->second[i].empty()
                                               ? Names{}
                                               : Names{model.family->layer_prefix + known->second[i] + ".weight"})
          << model.family->model_type;
    }
}

}  // namespace
}  // namespace fettle
