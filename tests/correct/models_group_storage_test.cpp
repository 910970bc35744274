// Tests which modules a checkpoint leaves out of its quantisation, by the rules of each format.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/group_storage.h"
#include "models/model.h"
#include "paths.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

Json config_of(const std::string& model) {
  return Json::parse(std::ifstream(source_folder() / "tests/reference/models" / model / "config.json"));
}

std::vector<int64_t> covered(const Json& config, const std::string& param) {
  const Model model = make_model(config, "config.json");
  return model.config.groups->covered_layers(model.param(param));
}

std::vector<int64_t> covered(const Json& ignore) {
  Json config = config_of("qwen3_moe_packed");
  config["quantization_config"]["ignore"] = ignore;
  return covered(config, "model.layers.{}.self_attn.q_proj.weight");
}

using Layers = std::vector<int64_t>;

// `ignore` of compressed-tensors has whole names, expressions for the start of a name (re:), or classes of modules.
TEST(GroupStorage, IgnoreComparesWholeNames) {
  EXPECT_EQ(covered({"lm_head"}), (Layers{0, 1}));
  EXPECT_EQ(covered({"model.layers.1.self_attn.q_proj"}), (Layers{0}));
  EXPECT_EQ(covered({"q_proj", "self_attn", "model.layers.1", "model.layers.1.self_attn"}), (Layers{0, 1}));
  EXPECT_EQ(covered({"re:.*q_proj"}), (Layers{}));
  EXPECT_EQ(covered({"re:q_proj"}), (Layers{0, 1})) << "the expression starts at the start of the name";
  EXPECT_EQ(covered({"re:model.layers.0.self"}), (Layers{1})) << "it need not reach the end";
  EXPECT_EQ(covered({"Linear"}), (Layers{}));
  EXPECT_EQ(covered({"Embedding"}), (Layers{0, 1}));
}

// compressed-tensors reads "dynamic" as "group", "static" as "weight", and true as "group".
TEST(GroupStorage, NamesOfTheOrderOfInputs) {
  Json config = config_of("qwen3_moe_packed");
  Json& weights = config["quantization_config"]["config_groups"]["group_0"]["weights"];
  for (const auto& [order, any] : std::vector<std::pair<Json, bool>>{{"group", true},
                                                                     {"dynamic", true},
                                                                     {"GROUP", true},
                                                                     {true, true},
                                                                     {"weight", false},
                                                                     {"static", false},
                                                                     {false, false},
                                                                     {nullptr, false}}) {
    weights["actorder"] = order;
    EXPECT_EQ(make_model(config, "config.json").config.groups->any_order, any) << order;
  }
}

TEST(GroupStorage, ModulesNotToConvertAreParts) {
  Json config = config_of("qwen2_awq");
  const std::string name = "model.layers.{}.self_attn.q_proj.weight";
  for (const auto& [part, left] :
       std::vector<std::pair<std::string, Layers>>{{"lm_head", {0, 1}},
                                                   {"q_proj", {}},
                                                   {"model.layers.1.", {0}},
                                                   {"self_attn", {}},
                                                   {"proj.x", {0, 1}},
                                                   {"model.layers.0.*", {1}},
                                                   {"model.layers.\\d+.self_attn.(q|k)_proj$", {}},
                                                   {".*layers.1.self_attn", {0}},
                                                   {".*layers.1.self_", {0, 1}},
                                                   {".*(0.self_attn.q|1.self_attn.q_proj)", {0}},
                                                   {".*self_attn.", {}},
                                                   {"layers.0.*", {0, 1}}}) {
    config["quantization_config"]["modules_to_not_convert"] = {part};
    EXPECT_EQ(covered(config, name), left) << part;
  }
}

// GPTQ and AWQ both have a list, and GPTQModel's rules.
TEST(GroupStorage, TheListAndTheRulesOfDynamic) {
  for (const char* model : {"qwen3_gptq", "qwen2_awq"}) {
    SCOPED_TRACE(model);
    const std::string name = "model.layers.{}.self_attn.q_proj.weight";
    Json config = config_of(model);
    config["quantization_config"]["modules_to_not_convert"] = {"model.layers.1.self_attn.q_proj"};
    EXPECT_EQ(covered(config, name), (Layers{0}));
    config["quantization_config"]["dynamic"] = {{"-:.*\\.0\\..*q_proj", Json::object()}};
    EXPECT_EQ(covered(config, name), (Layers{}));
  }
}

// One tensor has a projection of all experts. It does not count as quantised if `ignore` names this projection of one
// expert. `ignore` may use the names of Transformers 4.
TEST(GroupStorage, ModulesOfExpertsInOneTensor) {
  Json config = config_of("qwen3_5_moe");
  config["quantization_config"] = config_of("qwen3_moe_packed")["quantization_config"];
  const std::string layers = "model.language_model.layers.", gate_up = layers + "{}.mlp.experts.gate_up_proj";
  const Layers all{0, 1, 2, 3, 4, 5, 6, 7}, rest{0, 1, 2, 3, 5, 6, 7};
  auto ignoring = [&](const std::string& name) {
    config["quantization_config"]["ignore"] = {name};
    return covered(config, gate_up);
  };
  EXPECT_EQ(ignoring("lm_head"), all);
  EXPECT_EQ(ignoring(layers + "4.mlp.experts.7.up_proj"), rest);
  EXPECT_EQ(ignoring("language_model.model.layers.4.mlp.experts.0.gate_proj"), rest);
  EXPECT_EQ(ignoring(layers + "4.mlp.experts.7.down_proj"), all) << "another tensor";
  EXPECT_EQ(expert_modules("a.experts.down_proj", 3), (std::vector<std::string>{"a.experts.3.down_proj"}));
  EXPECT_EQ(expert_modules("a.mlp.up_proj", 3), (std::vector<std::string>{}));
}

}  // namespace
}  // namespace fettle
