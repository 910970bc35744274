// Recipes that the model at hand cannot be trained by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "step/job.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::string& model, const std::vector<std::string>& words) {
  const std::string file = std::string(FETTLE_SOURCE_DIR) + "/tests/reference/models/" + model + "/config.json";
  return user_error([&] { make_job(read_recipe("", words), nlohmann::json::parse(std::ifstream(file)), file, 1); });
}

TEST(JobError, LayersThatAreNotThere) {
  EXPECT_THAT(message("llama", {"layers_to_transform=0,2"}), AllOf(HasSubstr("'2' is no layer"), HasSubstr("0 to 1")));
  EXPECT_THAT(message("llama", {"layers_to_transform=last"}), HasSubstr("'last' is no layer"));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_trainable_layers=0"}), HasSubstr("nothing to train"));
}

TEST(JobError, ModulesThatAreNotThere) {
  EXPECT_THAT(message("llama", {"additional_target=score"}), AllOf(HasSubstr("'score'"), HasSubstr("lm_head")));
  EXPECT_THAT(message("llama", {"additional_target=q_proj"}), HasSubstr("q_proj has an adapter"));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_trainable_modules=attn"}),
              AllOf(HasSubstr("freeze_trainable_modules: 'attn'"), HasSubstr("self_attn")));
  EXPECT_THAT(message("llama", {"finetuning_type=freeze", "freeze_extra_modules=mlp"}),
              AllOf(HasSubstr("freeze_extra_modules: 'mlp'"), HasSubstr("embed_tokens")));
}

TEST(JobError, QuantisedWeightsAreNotTrainedOrChanged) {
  const std::string adapter = std::string(FETTLE_SOURCE_DIR) + "/tests/reference/models/llama/adapter_init";
  EXPECT_THAT(message("llama", {"quantization_bit=4", "pissa_init=true"}),
              AllOf(HasSubstr("pissa_init"), HasSubstr("nf4 with double quantization"), HasSubstr("remove it")));
  EXPECT_THAT(message("llama", {"quantization_bit=4", "adapter_name_or_path=" + adapter, "create_new_adapter=true"}),
              AllOf(HasSubstr("cannot be merged"), HasSubstr("fettle export")));
  EXPECT_THAT(message("llama/quantised/nf4", {"finetuning_type=full"}),
              AllOf(HasSubstr("nf4"), HasSubstr("finetuning_type: lora")));
  EXPECT_THAT(message("llama/quantised/nf4", {"finetuning_type=freeze"}), HasSubstr("finetuning_type: lora"));
  EXPECT_THAT(message("llama/quantised/nf4", {"quantization_bit=8"}),
              AllOf(HasSubstr("quantization_bit: 8"), HasSubstr("remove the key")));
  EXPECT_THAT(message("llama/quantised/nf4", {"lora_target=q_proj", "additional_target=down_proj"}),
              HasSubstr("additional_target"));
  EXPECT_EQ(message("llama/quantised/nf4", {"quantization_bit=4"}), "no error");
}

// PEFT would train a copy of a tied embedding apart from the head.
TEST(JobError, ATiedEmbeddingIsNotSavedWithAnAdapter) {
  EXPECT_THAT(message("llama2", {"additional_target=embed_tokens"}),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("freeze_extra_modules")));
}

TEST(JobError, AnEmbeddingRateWithoutATrainedEmbedding) {
  EXPECT_THAT(message("llama", {"embedding_lr=1e-5"}),
              AllOf(HasSubstr("embedding_lr"), HasSubstr("additional_target")));
  EXPECT_EQ(message("llama", {"embedding_lr=1e-5", "finetuning_type=full"}), "no error");
}

}  // namespace
}  // namespace fettle
