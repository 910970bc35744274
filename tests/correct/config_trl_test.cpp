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

}  // namespace
}  // namespace fettle
