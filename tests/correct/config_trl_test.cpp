// Tests keys that only the command of TRL reads.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

const std::string kStart = "model_name_or_path: m\ndataset_name: maker/rows\n";

// `trl sft` passes flags of accelerate on, and sets the variables in `env`.
TEST_F(RecipeShape, TrlsKeysAboutProcessesHaveNoEffect) {
  for (const Recipe& recipe : {read(kStart + "num_processes: 4\n"), read(kStart, {"num_processes=4"})}) {
    EXPECT_EQ(recipe.finetuning_type, "full");
    EXPECT_NE(said_.find("num_processes has no effect here: one process uses all devices"), std::string::npos) << said_;
  }
  read(kStart +
       "env:\n  CUDA_VISIBLE_DEVICES: 0\ndataset_streaming: true\nignore_bias_buffers: true\n"
       "gradient_checkpointing_use_reentrant: false\nmain_process_port: 29501\n");
  for (const char* said :
       {"env has no effect here: set the variables in the shell",
        "dataset_streaming has no effect here: rows are tokenised once",
        "no effect here: ignore_bias_buffers, gradient_checkpointing_use_reentrant, main_process_port"})
    EXPECT_NE(said_.find(said), std::string::npos) << said << '\n' << said_;
}

// TRL's command names the trainer, but the recipe may show it.
TEST_F(RecipeShape, TrlsLossesOfDpoMeanItsStage) {
  for (const char* loss : {"sigmoid", "ipo", "[hinge]", "[sigmoid, sft]"}) {
    const Recipe recipe = read(kStart + "beta: 0.2\nmax_prompt_length: 512\nloss_type: " + loss + "\n");
    EXPECT_EQ(recipe.stage, "dpo") << loss;
    EXPECT_EQ(recipe.learning_rate, 1e-6) << loss;
    EXPECT_EQ(recipe.pref_beta, 0.2) << loss;
    EXPECT_NE(said_.find("recipe.yaml:5: stage is not given, and loss_type is one of DPO's"), std::string::npos)
        << said_;
    EXPECT_EQ(said_.find("assistant_only_loss"), std::string::npos) << said_;
  }
  EXPECT_EQ(read(kStart, {"loss_type=sigmoid"}).stage, "dpo");
  EXPECT_EQ(read(kStart + "loss_type: sigmoid\n", {"stage=dpo"}).stage, "dpo");
  EXPECT_EQ(said_.find("stage is not given"), std::string::npos) << said_;
  for (const char* loss : {"nll", "chunked_nll", "dft"})
    EXPECT_EQ(read(kStart + "loss_type: " + loss + "\n").stage, "sft") << loss;
  for (const char* lines : {"loss_type: simpo\n", "loss_type: [simpo]\n", "loss_type: sigmoid\ncpo_alpha: 0\n"})
    EXPECT_NE(refusal(kStart + lines).find("stage is not given, and TRL's CPO also has this loss_type"),
              std::string::npos)
        << lines;
}

TEST_F(RecipeShape, TrlsKeysOfSeveralTrainersAskForTheStage) {
  for (const char* line : {"beta: 0.1\n", "max_prompt_length: 512\n", "precompute_ref_log_probs: true\n"}) {
    EXPECT_EQ(read(kStart + line).stage, "sft") << line;
    EXPECT_NE(said_.find("recipe.yaml:3: stage is not given, so the recipe is read as supervised tuning"),
              std::string::npos)
        << said_;
    EXPECT_EQ(said_.find("assistant_only_loss"), std::string::npos) << said_;
    read(kStart + line, {"stage=kto"});
    EXPECT_EQ(said_.find("stage is not given"), std::string::npos) << said_;
  }
  read(kStart);
  EXPECT_NE(said_.find("assistant_only_loss is not given"), std::string::npos) << said_;
}

TEST_F(RecipeShape, TrlsNoRemoveUnusedColumnsHasNoEffect) {
  read(kStart + "no_remove_unused_columns: true\n");
  EXPECT_NE(said_.find("no effect here: no_remove_unused_columns"), std::string::npos) << said_;
}

// Axolotl has `datasets`, too. The model of a file of TRL may be on the command line.
TEST_F(RecipeShape, TrlsMixturesNeedNoModelInTheFile) {
  const std::string sets = "datasets:\n- path: maker/rows\n";
  for (const char* key : {"use_peft: false\n", "test_split_size: 0.1\n", "assistant_only_loss: true\n",
                          "completion_only_loss: true\n", "dataset_test_split: test\n"}) {
    const Recipe recipe = read(sets + key, {"model_name_or_path=m"});
    EXPECT_NE(said_.find("read as a recipe of TRL"), std::string::npos) << key << said_;
    EXPECT_EQ(recipe.cutoff_len, 1024) << key;
  }
  read("base_model: m\nuse_peft: true\n" + sets);
  EXPECT_NE(said_.find("read as a recipe of Axolotl"), std::string::npos) << said_;
  read(sets, {"base_model=m"});
  EXPECT_NE(said_.find("read as a recipe of Axolotl"), std::string::npos) << said_;
}

}  // namespace
}  // namespace fettle
