// Compares families with their reference checkpoints: weight names and shapes in both directions, and configs as
// Transformers 4 and 5 write them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files/json_file.h"
#include "checkpoint/load.h"
#include "families.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

Json config_of(const std::string& model, const std::string& file = "config.json") {
  return Json::parse(std::ifstream(reference_model(model) / file));
}

// Transformers stores these keys, but its models do not read them.
TEST(FamilyConfig, IgnoresKeysThatTransformersDoesNotRead) {
  for (const auto& [model, key] : {std::pair{"gpt_neox", "is_decoder"}, {"cohere2", "use_parallel_embedding"}}) {
    Json config = config_of(model);
    config[key] = true;
    EXPECT_NO_THROW(make_model(config, "config.json")) << key;
  }
}

// Transformers' defaults: 4 of 8 groups of experts.
TEST(FamilyConfig, DeepSeekV3HasGroupsOfExpertsByDefault) {
  Json config = config_of("deepseek_v3");
  for (const char* key : {"n_group", "topk_group"}) config.erase(key);
  config.update({{"n_routed_experts", 16}, {"num_experts_per_tok", 4}});
  config.erase("num_local_experts");
  const Routing routing = make_model(config, "config.json").config.routing;
  EXPECT_EQ(routing.groups, 8);
  EXPECT_EQ(routing.top_groups, 4);
}

class FamilyParams : public testing::TestWithParam<std::string> {};

// Checks that every tensor of the checkpoint belongs to a parameter, and that every parameter's tensors are in the
// checkpoint.
TEST_P(FamilyParams, NameTheCheckpointsTensors) {
  const Model model = make_model(config_of(GetParam()), "config.json");
  const ModelRepository repository = ModelRepository::open(reference_model(GetParam()));
  std::map<std::string, Dims> wanted;
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string name = repository.find(param.stored_name(i)).entry->name;
      EXPECT_TRUE(wanted.emplace(name, param.stored_dims()).second) << name;
      EXPECT_EQ(param.axes.size(), param.dims.size()) << name;
    }
  std::map<std::string, Dims> found;
  int64_t elements = 0;
  for (const std::string& name : repository.names()) {
    if (carries(*model.family, name)) continue;
    const Shape& shape = repository.find(name).entry->shape;
    found.emplace(name, shape.dims);
    elements += shape.elements();
  }
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(model.parameters(), elements);
}

TEST_P(FamilyParams, LinearsAndHead) {
  const Model model = make_model(config_of(GetParam()), "config.json");
  for (const std::string& linear : model.linears())
    for (const Param& param : model.linear(linear)) EXPECT_EQ(param.stored_dims().size(), 2u) << linear;
  EXPECT_EQ(model.head().dims, (Dims{model.config.vocab_size, model.config.hidden_size}));
  EXPECT_EQ(model.family->architecture, config_of(GetParam())["architectures"][0]);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyParams, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

// Transformers 5 saves the head sizes of Gemma 4 by layer. Published configs have them by kind of layer.
TEST(Config, BothFormsOfGemma4sHeadsAreEqual) {
  Json by_layer = config_of("gemma4");
  Json& text = by_layer["text_config"];
  text.erase("global_head_dim");
  text.erase("num_global_key_value_heads");
  for (const char* layer : {"2", "5"}) text["per_layer_config"][layer] = {{"head_dim", 32}, {"num_key_value_heads", 1}};
  const Gemma4 a = *make_model(config_of("gemma4"), "a").config.gemma4, b = *make_model(by_layer, "b").config.gemma4;
  EXPECT_EQ(a.full_head_dim, 32);
  EXPECT_EQ(a.full_key_heads, 1);
  EXPECT_EQ(b.full_head_dim, a.full_head_dim);
  EXPECT_EQ(b.full_key_heads, a.full_key_heads);
  EXPECT_TRUE(a.values_are_keys);
}

// Some layers use the keys and values of earlier layers. Published checkpoints also have key and value weights for
// these layers, but nothing reads them.
TEST(Config, KeysAndValuesOfSharingLayersAreUnused) {
  const Model model = make_model(config_of("gemma4_e2b"), "config.json");
  auto unused = [&](const std::string& name) {
    return is_unused(*model.family, model.config, "model.language_model.layers." + name + ".weight");
  };
  for (const char* name : {"k_proj", "v_proj", "k_norm"}) {
    EXPECT_FALSE(unused(std::string("3.self_attn.") + name));
    EXPECT_TRUE(unused(std::string("4.self_attn.") + name));
    EXPECT_TRUE(unused(std::string("7.self_attn.") + name));
  }
  EXPECT_FALSE(unused("7.self_attn.q_proj"));
  EXPECT_TRUE(unused("8.self_attn.q_proj")) << "beyond the last layer";
}

// Published configs of Nemotron-H have Infinity, as Python writes it. Transformers 5 writes an object instead.
TEST(Config, InfinityIsReadInBothForms) {
  Json config = config_of("nemotron_h");
  config["note"] = "an \\ and \"Infinity\" in a string";
  const std::string object = R"({"__float__":"Infinity"})";
  std::string text = config.dump();
  ASSERT_NE(text.find(object), std::string::npos);
  text.replace(text.find(object), object.size(), "Infinity");
  const TempFolder folder;
  write_text(folder / "config.json", text);
  EXPECT_EQ(read_json_file(folder / "config.json"), config);
  EXPECT_EQ(make_model(config, "c").config.mamba2->largest_step, 0) << "no bound";
  write_text(folder / "config.json", R"({"time_step_limit": [-Infinity, 1], "NaN": NaN})");
  EXPECT_EQ(read_json_file(folder / "config.json"),
            Json({{"time_step_limit", {{{"__float__", "-Infinity"}}, 1}}, {"NaN", {{"__float__", "NaN"}}}}));
}

// Published configs of ModernBERT have these fields. Transformers 5 writes others.
TEST(Config, ModernBertInBothForms) {
  const ModelConfig now = make_model(config_of("modernbert"), "m", 3).config;
  Json published = config_of("modernbert");
  published.erase("layer_types");
  published.erase("rope_parameters");
  published.update({{"global_attn_every_n_layers", 3}, {"global_rope_theta", 160000.0}, {"local_rope_theta", 10000.0}});
  const ModelConfig then = make_model(published, "m", 3).config;
  for (const ModelConfig* c : {&now, &then}) {
    EXPECT_EQ(c->window, (std::vector<int64_t>{0, 7, 7, 0})) << "6 keys on each side";
    EXPECT_EQ(c->rope.rope_theta, 160000);
    EXPECT_EQ(c->local_rope->rope_theta, 10000);
  }
  published["classifier_pooling"] = "max";
  EXPECT_THROW(make_model(published, "m", 3), UserError);
}

// Published configs of Phi have the share of rotated dims beside rope_theta.
TEST(Config, PhiInTheSpellingOfTransformers4) {
  Json published = config_of("phi");
  published.erase("rope_parameters");
  published.update({{"rope_theta", 20000.0}, {"partial_rotary_factor", 0.25}, {"num_key_value_heads", nullptr}});
  const ModelConfig c = make_model(published, "p").config;
  EXPECT_EQ(c.rope.rope_theta, 20000);
  EXPECT_EQ(c.rope.rotary_dim(c.head_dim), 4);
  EXPECT_EQ(c.num_key_value_heads, 4);
  published.erase("partial_rotary_factor");
  EXPECT_EQ(make_model(published, "p").config.rope.partial_rotary_factor, 0.5);
}

// As in Transformers, a null multiplier also switches the rounding off.
TEST(Config, Lfm2WithoutAMultiplier) {
  Json config = config_of("lfm2");
  EXPECT_EQ(make_model(config, "l").config.intermediate_size, 96) << "2 / 3 of 132, in multiples of 48";
  config["block_ffn_dim_multiplier"] = nullptr;
  EXPECT_EQ(make_model(config, "l").config.intermediate_size, 88);
  config["block_multiple_of"] = nullptr;
  EXPECT_EQ(make_model(config, "l").config.intermediate_size, 88);
}

// The numbers of parameters, in billions, are those of the model cards, without image encoders and layers that predict
// further tokens. A wrong size in a config changes the number.
TEST(Config, ExamplesHaveThePublishedNumbersOfParameters) {
  const std::map<std::string, double> published{
      {"command-r7b", 8.03},
      {"deepseek-v2-lite", 15.7},
      {"deepseek-v3", 671},
      {"deepseek-v3-fp8", 671},
      {"ernie-4.5-0.3b", 0.36},
      {"ernie-4.5-21b-a3b", 21.8},
      {"exaone-4-1.2b", 1.28},
      {"exaone-4-32b", 32.0},
      {"falcon-h1-7b", 7.59},
      {"gemma-3-27b", 27},
      {"gemma-4-26b-a4b", 25.2},
      {"gemma-4-31b", 30.7},
      {"gemma-4-e2b", 4.63},
      {"gemma-7b", 8.54},
      {"glm-4-9b-0414", 9.4},
      {"glm-4.5-air", 106},
      {"glm-4.7-flash", 30},
      {"gpt-oss-120b", 116.8},
      {"gpt-oss-20b", 20.9},
      {"granite-3.3-8b", 8.17},
      {"granite-4-h-small", 32.2},
      {"kimi-k2", 1026},
      {"lfm2-1.2b", 1.17},
      {"lfm2-8b-a1b", 8.34},
      {"llama-4-scout", 107.8},
      {"llama2-70b", 69},
      {"llama2-7b", 6.74},
      {"llama3.1-405b", 406},
      {"llama3.1-8b", 8.03},
      {"minimax-m2", 228.7},
      {"ministral-3-8b", 8.49},
      {"mistral-small-3.2-24b", 23.6},
      {"modernbert-large", 0.396},
      {"moonlight-16b-a3b", 16},
      {"nemotron-3-nano-30b-a3b", 31.6},
      {"nemotron-nano-9b-v2", 8.89},
      {"olmo-2-7b", 7.3},
      {"olmo-3-7b", 7.3},
      {"phi-2", 2.78},
      {"pythia-6.9b", 6.86},
      {"qwen1.5-moe-a2.7b", 14.3},
      {"qwen2.5-7b", 7.62},
      {"qwen3-next-80b-a3b", 80},
      {"qwen3.5-27b", 27},
      {"qwen3.5-35b-a3b", 35},
      {"seed-oss-36b", 36.2},
      {"smollm3-3b", 3.08},
  };
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() / "examples/models")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    const Json config = read_json_file(entry.path() / "config.json");
    const bool encoder = config["model_type"] == "modernbert";
    const Model model = make_model(config, "config.json", encoder ? 2 : 0);
    if (!encoder) {
      EXPECT_EQ(model.family->architecture, config["architectures"][0]) << name;
    }
    ASSERT_TRUE(published.contains(name)) << name;
    const double billions = published.at(name);
    EXPECT_NEAR(static_cast<double>(model.parameters()) / 1e9, billions, 0.01 * billions) << name;
    seen.insert(name);
  }
  EXPECT_EQ(seen.size(), published.size());
}

TEST(Config, BothSpellingsOfTransformersAreEqual) {
  const ModelConfig a = make_model(config_of("llama"), "a").config,
                    b = make_model(config_of("llama", "config_v4.json"), "b").config;
  EXPECT_EQ(a.rope.rope_type, "llama3");
  EXPECT_EQ(b.rope.rope_type, a.rope.rope_type);
  EXPECT_EQ(b.rope.rope_theta, a.rope.rope_theta);
  EXPECT_EQ(b.rope.factor, a.rope.factor);
  EXPECT_EQ(b.rope.low_freq_factor, a.rope.low_freq_factor);
  EXPECT_EQ(b.rope.high_freq_factor, a.rope.high_freq_factor);
  EXPECT_EQ(b.rope.original_max_position_embeddings, a.rope.original_max_position_embeddings);
  EXPECT_EQ(b.dtype, a.dtype);
  EXPECT_EQ(b.head_dim, a.head_dim);
  EXPECT_EQ(b.eos_token_id, a.eos_token_id);
  EXPECT_EQ(b.tie_word_embeddings, a.tie_word_embeddings);
}

TEST(Config, GrowthOfMinistralsQueriesInBothSpellings) {
  Json json = config_of("ministral3");
  const ModelConfig newer = make_model(json, "m").config;
  ASSERT_GT(newer.query_growth, 0);
  json["rope_scaling"] = json["rope_parameters"];
  json.erase("rope_parameters");
  const ModelConfig older = make_model(json, "m").config;
  EXPECT_EQ(older.query_growth, newer.query_growth);
  EXPECT_EQ(older.rope.original_max_position_embeddings, newer.rope.original_max_position_embeddings);
}

TEST(Config, DefaultsAreTransformers) {
  const ModelConfig c = make_model(Json{{"model_type", "llama"},
                                        {"vocab_size", 100},
                                        {"hidden_size", 64},
                                        {"intermediate_size", 96},
                                        {"num_hidden_layers", 2},
                                        {"num_attention_heads", 4},
                                        {"num_key_value_heads", nullptr},
                                        {"torch_dtype", "bfloat16"},
                                        {"eos_token_id", {1, 2}}},
                                   "config.json")
                            .config;
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope.rope_theta, 10000);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.eos_token_id, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(c.bos_token_id, std::nullopt);
}

TEST(Config, HeadsAreThoseOfTransformersIfTheirKeysAreAbsent) {
  const std::vector<std::tuple<std::string, int64_t, int64_t>> cases{
      {"mistral", 8, 4},      {"mixtral", 8, 4},  {"ministral3", 8, 128}, {"lfm2", 8, 4},      {"llama4", 8, 128},
      {"gpt_oss", 8, 64},     {"glm4_moe", 8, 4}, {"minimax_m2", 8, 128}, {"falcon_h1", 8, 4}, {"starcoder2", 2, 4},
      {"gemma2", 4, 256},     {"gemma3", 4, 256}, {"gemma4", 4, 256},     {"qwen3_moe", 4, 4}, {"ernie4_5", 2, 128},
      {"ernie4_5_moe", 4, 4}, {"llama", 16, 4}};
  for (const auto& [name, key_heads, head_dim] : cases) {
    Json json = config_of(name);
    Json& text = json.contains("text_config") ? json["text_config"] : json;
    text["num_attention_heads"] = 16, text["hidden_size"] = 64;
    for (const char* key : {"num_key_value_heads", "head_dim"}) text.erase(key);
    const ModelConfig config = make_model(json, "c").config;
    EXPECT_EQ(config.num_key_value_heads, key_heads) << name;
    EXPECT_EQ(config.head_dim, head_dim) << name;
  }
}

TEST(Config, DefaultsOfDeepSeek) {
  for (const auto& [name, rank, shared] :
       {std::tuple{"deepseek_v2", 1536, 2}, {"deepseek_v3", 1536, 1}, {"glm4_moe_lite", 768, 1}}) {
    Json json = config_of(name);
    for (const char* key : {"q_lora_rank", "n_shared_experts"}) json.erase(key);
    const ModelConfig config = make_model(json, "c").config;
    EXPECT_EQ(config.latent->query_rank, rank) << name;
    EXPECT_EQ(config.shared_expert->size, shared * config.expert_size) << name;
    json["q_lora_rank"] = nullptr;
    EXPECT_EQ(make_model(json, "c").config.latent->query_rank, 0) << name;
  }
}

TEST(Config, WindowsByLayer) {
  EXPECT_EQ(make_model(config_of("mistral"), "m").config.uniform_window(), 16);
  EXPECT_EQ(make_model(config_of("qwen2"), "q").config.uniform_window(), 0) << "the window is switched off";
  Json mixed = config_of("qwen2");
  mixed["use_sliding_window"] = true;
  mixed["sliding_window"] = 8;
  mixed["max_window_layers"] = 1;
  mixed.erase("layer_types");
  const ModelConfig config = make_model(mixed, "q").config;
  EXPECT_EQ(config.uniform_window(), std::nullopt);
  EXPECT_EQ(config.window, (std::vector<int64_t>{0, 8}));
  mixed["max_window_layers"] = 0;
  EXPECT_EQ(make_model(mixed, "q").config.window, (std::vector<int64_t>{8, 8}));
  mixed.erase("sliding_window");
  EXPECT_EQ(make_model(mixed, "q").config.window, (std::vector<int64_t>{4096, 4096}));
  mixed["sliding_window"] = nullptr;
  EXPECT_EQ(make_model(mixed, "q").config.uniform_window(), 0);
  mixed["use_sliding_window"] = false;
  mixed["sliding_window"] = 0;
  EXPECT_EQ(make_model(mixed, "q").config.uniform_window(), 0) << "a window that is off is not checked";
}

// As in Transformers: without the key, Mistral's window is 4096; with layer_types, the model is Ministral.
TEST(Config, WindowsOfMistral) {
  Json json = config_of("mistral");
  json.erase("sliding_window");
  EXPECT_EQ(make_model(json, "m").config.uniform_window(), 4096);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(make_model(json, "m").config.uniform_window(), 0);
  json["sliding_window"] = 8;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(make_model(json, "m").config.window, (std::vector<int64_t>{0, 8}));
}

// Layers with a window compute the same factor as layers with full attention that have the same rope.
TEST(Config, YarnOfLayersWithAWindow) {
  Json json = config_of("gemma3");
  const Json yarn = {{"rope_type", "yarn"}, {"rope_theta", 10000}, {"factor", 4}};
  json["rope_parameters"] = {{"full_attention", yarn}, {"sliding_attention", yarn}};
  const ModelConfig config = make_model(json, "g").config;
  EXPECT_NEAR(config.local_rope->attention_factor, 0.1 * std::log(4) + 1, 1e-12);
  EXPECT_EQ(config.local_rope->attention_factor, config.rope.attention_factor);
  EXPECT_EQ(config.local_rope->original_max_position_embeddings, config.rope.original_max_position_embeddings);
}

TEST(Config, ThetaOfOlmosLayersWithAWindow) {
  Json json = config_of("olmo3");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}},
                             {"sliding_attention", {{"rope_type", "default"}}}};
  const ModelConfig config = make_model(json, "o").config;
  EXPECT_EQ(config.rope.rope_theta, 500000);
  EXPECT_EQ(config.local_rope->rope_theta, 500000);
}

// In Transformers, the number beside the settings of rope wins over the number in them.
TEST(Config, OriginalLengthBesideTheSettingsOfRope) {
  Json json = config_of("llama");
  json.erase("rope_scaling");
  json["max_position_embeddings"] = 256;
  json["original_max_position_embeddings"] = 32;
  Json rope = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}};
  json["rope_parameters"] = rope;
  EXPECT_EQ(make_model(json, "l").config.rope.original_max_position_embeddings, 32);
  rope["low_freq_factor"] = 1, rope["high_freq_factor"] = 4, rope["rope_type"] = "llama3";
  json["rope_parameters"] = rope;
  EXPECT_EQ(make_model(json, "l").config.rope.original_max_position_embeddings, 32);
  Json by_kind = config_of("gemma3");
  by_kind["original_max_position_embeddings"] = 32;
  by_kind["rope_parameters"]["full_attention"] = {{"rope_type", "yarn"}, {"factor", 4}};
  const ModelConfig gemma = make_model(by_kind, "g").config;
  EXPECT_EQ(gemma.rope.original_max_position_embeddings, gemma.max_position_embeddings);
}

TEST(Config, OlderNamesOfNemotronHWin) {
  Json json = config_of("nemotron_h");
  const int64_t heads = json["mamba_num_heads"];
  json.update(
      {{"mamba_n_groups", heads}, {"mamba_d_conv", 3}, {"mamba_conv_bias", false}, {"mamba_dt_limit", {0.25, 2.0}}});
  json.update({{"n_groups", 1}, {"conv_kernel", 4}, {"use_conv_bias", true}, {"time_step_limit", {0.0, 1.0}}});
  const Mamba2 mamba = *make_model(json, "n").config.mamba2;
  EXPECT_EQ(mamba.groups, heads);
  EXPECT_EQ(mamba.width, 3);
  EXPECT_FALSE(mamba.conv_bias);
  EXPECT_EQ(mamba.least_step, 0.25);
  EXPECT_EQ(mamba.largest_step, 2);
}

TEST(Config, GemmaCapsAndWindows) {
  Json json = config_of("gemma2");
  json.erase("layer_types");
  json["num_hidden_layers"] = 3;
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) json[cap] = nullptr;
  const ModelConfig off = make_model(json, "g").config;
  EXPECT_EQ(off.attention_softcap, 0) << "null switches it off";
  EXPECT_EQ(off.logit_softcap, 0);
  EXPECT_EQ(off.window, (std::vector<int64_t>{16, 0, 16}));
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) json.erase(cap);
  EXPECT_EQ(make_model(json, "g").config.attention_softcap, 50);
  EXPECT_EQ(make_model(json, "g").config.logit_softcap, 30);
}

// Tests the fields in which the published models differ: the 7B has max_position_embeddings, the 13B has
// model_max_length, and the first Baichuan has another vocabulary size.
TEST(Config, BaichuansOfBothSizesAndGenerations) {
  const ModelConfig small = make_model(config_of("baichuan7b"), "b").config;
  EXPECT_FALSE(small.alibi);
  EXPECT_TRUE(small.normalised_head);
  const ModelConfig large = make_model(config_of("baichuan13b"), "b").config;
  EXPECT_TRUE(large.alibi);
  EXPECT_EQ(large.max_position_embeddings, 128) << "model_max_length";
  Json first = config_of("baichuan7b");
  for (const int64_t vocabulary : {64000, 64001, 64064}) {  // also with new tokens
    first["vocab_size"] = vocabulary;
    EXPECT_FALSE(make_model(first, "b").config.normalised_head) << vocabulary;
  }
  first["vocab_size"] = 125696;
  EXPECT_TRUE(make_model(first, "b").config.normalised_head);
}

TEST(Config, Experts) {
  const Model mixtral = make_model(config_of("mixtral"), "m"), qwen = make_model(config_of("qwen3_moe"), "q");
  EXPECT_EQ(mixtral.config.router_aux_loss_coef, 0.05) << "output_router_logits is true";
  EXPECT_EQ(qwen.config.router_aux_loss_coef, 0) << "output_router_logits is false";
  EXPECT_TRUE(mixtral.config.routing.normalised);
  EXPECT_FALSE(qwen.config.routing.normalised);
  const Param& param = qwen.param("model.layers.{}.mlp.experts.{}.down_proj.weight");
  EXPECT_EQ(param.stack_dims(), 2);
  EXPECT_EQ(param.stored_count(), 2 * 16);
  EXPECT_EQ(param.stored_dims(), (Dims{64, 32}));
  EXPECT_EQ(param.stored_name(19), "model.layers.1.mlp.experts.3.down_proj.weight");
  EXPECT_EQ(stacked_shape(param, DType::kF32).dims, (Dims{2, 16, 64, 32}));
  Json published = config_of("qwen3_moe");  // in the spelling of Transformers 4
  published["num_experts"] = published["num_local_experts"];
  published.erase("num_local_experts");
  EXPECT_EQ(make_model(published, "q").config.num_experts, 16);
}

// The config of Phi-3-mini-128k as Microsoft first published it.
TEST(Config, LongropeOfTransformers4) {
  Json json = config_of("phi3");
  const Json factors = json["rope_parameters"];
  json.erase("rope_parameters");
  json["max_position_embeddings"] = 131072;
  json["original_max_position_embeddings"] = 4096;
  json["rope_theta"] = 5000;
  json["partial_rotary_factor"] = 0.75;
  json["rope_scaling"] = {
      {"type", "su"}, {"short_factor", factors["short_factor"]}, {"long_factor", factors["long_factor"]}};
  const ModelConfig config = make_model(json, "p").config;
  EXPECT_EQ(config.rope.rope_type, "longrope");
  EXPECT_EQ(config.rope.rope_theta, 5000);
  EXPECT_EQ(config.rope.rotary_dim(config.head_dim), 12);
  EXPECT_EQ(config.rope_turn(), 4096);
  EXPECT_NEAR(config.rope.attention_factor, std::sqrt(1 + std::log(32) / std::log(4096)), 1e-12);
  json["rope_scaling"]["type"] = "yarn";
  const ModelConfig older = make_model(json, "p").config;
  EXPECT_EQ(older.rope.rope_type, "longrope");
  EXPECT_EQ(older.rope.attention_factor, config.rope.attention_factor);
}

}  // namespace
}  // namespace fettle
