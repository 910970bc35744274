// Tests recipes that cannot train the given model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::string& model, const std::vector<std::string>& words) {
  const std::string file = source_folder().string() + "/tests/reference/models/" + model + "/config.json";
  return user_error([&] { make_run(read_recipe("", words), nlohmann::json::parse(std::ifstream(file)), file, 1); });
}

TEST(ResolveError, MissingLayers) {
  EXPECT_THAT(message("llama", {"layers_to_transform=0,2"}),
              AllOf(HasSubstr("'2' is not a layer"), HasSubstr("0 to 1")));
  EXPECT_THAT(message("llama", {"layers_to_transform=last"}), HasSubstr("'last' is not a layer"));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_trainable_layers=0"}),
              HasSubstr("nothing is trained"));
}

TEST(ResolveError, CorrectionsThatCannotMove) {
  const std::string key = "moe_router_bias_update_rate", word = key + "=0.001", full = "finetuning_type=full";
  EXPECT_EQ(message("deepseek_v3", {word, full}), "no error");
  EXPECT_THAT(message("llama", {word, full}), AllOf(HasSubstr(key), HasSubstr("llama has no experts")));
  EXPECT_THAT(message("mixtral", {word, full}),
              AllOf(HasSubstr("the routers of mixtral have no correction"), HasSubstr("moe_aux_loss_coef")));
  EXPECT_THAT(message("deepseek_v3", {word}), AllOf(HasSubstr("an adapter has no place for their corrections"),
                                                    HasSubstr("set finetuning_type: full")));
  EXPECT_THAT(message("deepseek_v3", {word, "finetuning_type=freeze"}), HasSubstr("most of its layers are frozen"));
  EXPECT_EQ(message("llama", {key + "=0"}), "no error");
}

TEST(ResolveError, MethodsOverWholeStacksCannotBeOffloaded) {
  const std::string adapter = source_folder().string() + "/tests/reference/models/llama/adapter_init";
  EXPECT_THAT(message("llama", {"offload_param=true", "pissa_init=true"}),
              AllOf(HasSubstr("offload_param: pissa_init"), HasSubstr("remove one")));
  EXPECT_THAT(message("llama", {"offload_param=true", "use_dora=true"}), HasSubstr("use_dora"));
  EXPECT_EQ(message("llama", {"offload_param=true", "create_new_adapter=true", "adapter_name_or_path=" + adapter}),
            "no error");
}

TEST(ResolveError, OffloadedLayersAreAllTreatedAlike) {
  EXPECT_THAT(message("llama", {"offload_param=true", "gradient_checkpointing=50%"}),
              AllOf(HasSubstr("gradient_checkpointing: 50%"), HasSubstr("use full")));
  EXPECT_EQ(message("llama", {"offload_param=true", "gradient_checkpointing=linear"}), "no error");
  EXPECT_EQ(message("llama", {"gradient_checkpointing=50%"}), "no error");
}

TEST(ResolveError, StagesOfAPipelineAreEqual) {
  const std::string file = source_folder().string() + "/tests/reference/models/";
  auto on = [&](const std::string& model, int64_t stages, std::vector<std::string> words = {}) {
    words.push_back("mesh=pp=" + std::to_string(stages));
    return user_error([&] {
      make_run(read_recipe("", words), nlohmann::json::parse(std::ifstream(file + model + "/config.json")),
               file + model + "/config.json", stages);
    });
  };
  EXPECT_EQ(on("llama", 2), "no error");
  EXPECT_THAT(on("llama", 4), AllOf(HasSubstr("mesh: pp 4: the 2 layers of "), HasSubstr("into 4 equal stages"),
                                    HasSubstr("choose a pp that divides")));
  EXPECT_THAT(on("gemma4", 2), AllOf(HasSubstr("of several kinds"), HasSubstr("use fsdp or tp")));
  EXPECT_THAT(on("lfm2_moe", 2), HasSubstr("of several kinds"));
  EXPECT_THAT(on("mixtral", 2), AllOf(HasSubstr("models with experts, such as mixtral"), HasSubstr("use ep or fsdp")));
  EXPECT_THAT(on("llama", 2, {"offload_param=true"}), HasSubstr("remove offload_param"));
  EXPECT_THAT(on("llama", 2, {"finetuning_type=freeze", "freeze_trainable_layers=1"}),
              AllOf(HasSubstr("only some layers are trained"), HasSubstr("freeze_trainable_layers")));
  EXPECT_THAT(user_error([] {
                make_mesh({{"xp", 2}}, 2);
              }),
              HasSubstr("mesh: the axis 'xp' is not known; the axes are pp, dp, fsdp, ep, tp, sp"));
}

TEST(ResolveError, StateOnADiskNeedsWholeWeightsAndState) {
  EXPECT_THAT(message("llama", {"offload_dir=/nvme"}),
              AllOf(HasSubstr("offload_dir is for"), HasSubstr("remove the key")));
  EXPECT_THAT(message("llama", {"offload_dir=/nvme", "finetuning_type=full", "optim=sgd"}),
              AllOf(HasSubstr("sgd has no state"), HasSubstr("remove offload_dir")));
  EXPECT_EQ(message("llama", {"offload_dir=/nvme", "finetuning_type=full"}), "no error");
  // DeepSpeed's settings have a folder whatever the method.
  const std::string deepspeed =
      R"(deepspeed={"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})";
  EXPECT_EQ(message("llama", {deepspeed}), "no error");
  EXPECT_EQ(message("llama", {deepspeed, "finetuning_type=full", "optim=sgd"}), "no error");
  const Recipe pipelined = read_recipe("", {deepspeed, "finetuning_type=full", "mesh=pp=2"});
  EXPECT_EQ(pipelined.offload_dir, "");
  EXPECT_FALSE(pipelined.offload_optimizer);
  EXPECT_THAT(user_error([] {
                make_run(
                    read_recipe("", {"offload_dir=/nvme", "finetuning_type=full", "mesh=pp=2"}),
                    nlohmann::json::parse(std::ifstream(source_folder() / "tests/reference/models/llama/config.json")),
                    "config.json", 2);
              }),
              AllOf(HasSubstr("offload_dir does not work with pp"), HasSubstr("use fsdp or tp")));
}

TEST(ResolveError, WeightsOnADiskNeedFloat32WeightsBesideThoseOfTheStep) {
  const auto refused = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"offload_dir_weights=true", "finetuning_type=full"});
    return message("llama", words);
  };
  EXPECT_EQ(refused({"offload_dir=/nvme", "bf16=true"}), "no error");
  EXPECT_EQ(refused({"offload_dir=/nvme", "fp16=true"}), "no error");
  EXPECT_THAT(refused({"bf16=true"}), AllOf(HasSubstr("'offload_dir_weights=true'"), HasSubstr("set offload_dir to")));
  EXPECT_THAT(refused({"offload_dir=/nvme", "pure_bf16=true"}),
              AllOf(HasSubstr("there are no float32 weights"), HasSubstr("set bf16: true instead of pure_bf16")));
  EXPECT_THAT(refused({"offload_dir=/nvme"}),
              AllOf(HasSubstr("computes with the float32 weights themselves"), HasSubstr("set bf16: true")));
  EXPECT_THAT(
      refused({"offload_dir=/nvme", "bf16=true", "finetuning_type=freeze", "freeze_trainable_modules=input_layernorm"}),
      AllOf(HasSubstr("no matrix of the layers is trained"), HasSubstr("remove the key")));
}

TEST(ResolveError, MissingModules) {
  EXPECT_THAT(message("llama", {"additional_target=score"}), AllOf(HasSubstr("'score'"), HasSubstr("lm_head")));
  EXPECT_THAT(message("llama", {"additional_target=q_proj"}), HasSubstr("q_proj has LoRA weights"));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_trainable_modules=attn"}),
              AllOf(HasSubstr("freeze_trainable_modules: 'attn'"), HasSubstr("self_attn")));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_extra_modules=mlp"}),
              AllOf(HasSubstr("freeze_extra_modules: 'mlp'"), HasSubstr("embed_tokens")));
}

TEST(ResolveError, QuantisedWeightsAreNotTrainedOrChanged) {
  const std::string adapter = (source_folder() / "tests/reference/models/llama/adapter_init").string();
  EXPECT_THAT(
      message("llama", {"quantization_bit=4", "pissa_init=true"}),
      AllOf(HasSubstr("pissa_init"), HasSubstr("nf4 with double quantization"), HasSubstr("remove pissa_init")));
  EXPECT_THAT(message("llama", {"quantization_bit=4", "adapter_name_or_path=" + adapter, "create_new_adapter=true"}),
              AllOf(HasSubstr("cannot be merged"), HasSubstr("fettle export")));
  EXPECT_THAT(message("llama/quantised/nf4", {"finetuning_type=full"}),
              AllOf(HasSubstr("nf4"), HasSubstr("finetuning_type: lora")));
  EXPECT_THAT(message("llama/quantised/nf4", {"finetuning_type=freeze"}), HasSubstr("finetuning_type: lora"));
  EXPECT_THAT(message("llama/quantised/nf4", {"quantization_bit=8"}),
              AllOf(HasSubstr("quantization_bit is 8"), HasSubstr("remove the key")));
  EXPECT_THAT(message("llama/quantised/nf4", {"lora_target=q_proj", "additional_target=down_proj"}),
              HasSubstr("additional_target"));
  EXPECT_EQ(message("llama/quantised/nf4", {"quantization_bit=4"}), "no error");
}

TEST(ResolveError, ParametersOfExperts) {
  EXPECT_THAT(message("llama", {"target_parameters=mlp.experts.down_proj"}),
              AllOf(HasSubstr("llama has no experts"), HasSubstr("mlp.gate_proj")));
  EXPECT_THAT(message("mixtral", {"target_parameters=mlp.router.weight"}),
              AllOf(HasSubstr("'mlp.router.weight'"),
                    HasSubstr("mlp.gate.weight, mlp.experts.gate_up_proj, mlp.experts.down_proj")));
  for (const char* layer : {"1.mlp.experts.down_proj", "model.layers.1.mlp.experts.down_proj"})
    EXPECT_THAT(message("gpt_oss", {std::string("target_parameters=") + layer}),
                AllOf(HasSubstr(layer), HasSubstr("names one layer"), HasSubstr("write 'mlp.experts.down_proj'")));
  for (const char* other : {"lora_dropout=0.1", "use_dora=true", "pissa_init=true", "layers_to_transform=0"})
    EXPECT_THAT(message("mixtral", {"target_parameters=down_proj", other}), HasSubstr("cannot be combined with"))
        << other;
  EXPECT_EQ(message("mixtral", {"target_parameters=down_proj"}), "no error");
}

TEST(ResolveError, Float8) {
  EXPECT_THAT(message("llama", {"fp8=true"}), AllOf(HasSubstr("found float32"), HasSubstr("bf16: true")));
  EXPECT_THAT(message("llama", {"fp8=true", "fp16=true"}), HasSubstr("found float16"));
  EXPECT_THAT(message("llama", {"fp8=true", "bf16=true", "quantization_bit=4"}), HasSubstr("stored as nf4"));
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  const Recipe recipe = read_recipe("", {"fp8=true", "bf16=true"});
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(file));
  auto on = [&](const char* capability) {
    return make_run(recipe, config, file, {.count = 1, .title = "the card", .capability = capability});
  };
  for (const char* without : {"", "8.0", "8.6", "gfx90a:sramecc+:xnack-", "gfx1100"}) try {
      on(without);
      ADD_FAILURE() << without;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the card"), HasSubstr(without)));
      if (*without == '\0') {
        EXPECT_THAT(error.what(), HasSubstr("the plugin does not report the capability"));
      }
    }
  for (const char* with : {"host", "8.9", "9.0a", "10.0a", "12.0", "gfx950:sramecc+:xnack-", "gfx1201"})
    EXPECT_EQ(on(with).precision.float8, Float8{}) << with;
  EXPECT_EQ(on("gfx942:sramecc+:xnack-").precision.float8, (Float8{DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ}));
}

TEST(ResolveError, AnEmbeddingRateWithoutATrainedEmbedding) {
  EXPECT_THAT(message("llama", {"embedding_lr=1e-5"}),
              AllOf(HasSubstr("embedding_lr"), HasSubstr("additional_target")));
  EXPECT_EQ(message("llama", {"embedding_lr=1e-5", "finetuning_type=full"}), "no error");
}

TEST(ResolveError, NothingToTrain) {
  EXPECT_THAT(message("llama", {"lora_target=[]"}), HasSubstr("nothing is trained"));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_trainable_modules=[]"}),
              HasSubstr("nothing is trained"));
}

TEST(ResolveError, EncodersOnlyClassify) {
  for (const char* stage : {"sft", "pt", "dpo"})
    EXPECT_THAT(message("bert", {std::string("stage=") + stage}), AllOf(HasSubstr("encoder"), HasSubstr("stage: cls")));
  EXPECT_THAT(message("roberta", {"stage=rm"}), AllOf(HasSubstr("encoder"), HasSubstr("stage: cls")));
}

TEST(ResolveError, ARefModelWithAQuantisedBase) {
  const std::string folder = source_folder().string() + "/tests/reference/models/llama";
  for (const std::string& base : {std::string("llama"), std::string("llama/quantised/nf4")}) {
    std::vector<std::string> words = {"stage=dpo", "ref_model=" + folder};
    if (base == "llama") words.push_back("quantization_bit=4");
    EXPECT_THAT(message(base, words), AllOf(HasSubstr("ref_model"), HasSubstr("stored as nf4")));
  }
}

TEST(ResolveError, ClassifiersAndTheirLabels) {
  EXPECT_THAT(message("llama", {"stage=cls"}), HasSubstr("num_labels is missing"));
  EXPECT_THAT(message("baichuan7b", {"stage=cls", "num_labels=2"}),
              AllOf(HasSubstr("no classifier"), HasSubstr("qwen3_moe, bert, roberta")));
  EXPECT_THAT(message("llama_classifier", {"stage=rm"}), AllOf(HasSubstr("3 labels"), HasSubstr("a single score")));
  EXPECT_THAT(message("llama_classifier", {"stage=sft"}),
              AllOf(HasSubstr("LlamaForSequenceClassification"), HasSubstr("stage: cls")));
  const std::string folder = (source_folder() / "tests/reference/models/").string();
  EXPECT_THAT(message("llama", {"adapter_name_or_path=" + folder + "llama/reward_init"}),
              AllOf(HasSubstr("SEQ_CLS"), HasSubstr("stage: cls")));
  EXPECT_EQ(message("llama", {"stage=rm", "adapter_name_or_path=" + folder + "llama/reward_init"}), "no error");
}

}  // namespace
}  // namespace fettle
