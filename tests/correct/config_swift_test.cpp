// Tests that the keys of ms-swift mean what they mean in ms-swift.
#include <gtest/gtest.h>

#include <cstdlib>

#include "recipe_shape.h"

namespace fettle {
namespace {

const std::string kSwift = "model: m\ntuner_type: lora\ndataset: r.jsonl\n";

// A system prompt may be in a file. Elsewhere, the two characters \n mean a newline.
TEST_F(RecipeShape, SwiftsSystemPromptMayBeAFile) {
  const std::string file = write("prompt.txt", "Be brief.\nBe kind.\n");
  EXPECT_EQ(read(kSwift + "system: " + file + "\n").default_system, "Be brief.\nBe kind.\n");
  EXPECT_EQ(read(kSwift + "system: other\n", {"system=" + file}).default_system, "Be brief.\nBe kind.\n");
  EXPECT_EQ(read(kSwift, {R"(system=Be brief.\nBe kind.)"}).default_system, "Be brief.\nBe kind.");
  EXPECT_EQ(read(kSwift + "system: Be brief.\n").default_system, "Be brief.");
  EXPECT_NE(refusal(kSwift + "system: missing.txt\n").find("recipe.yaml:4: system: cannot read missing.txt"),
            std::string::npos);
}

// ms-swift leaves bad rows out unless `strict` is on.
TEST_F(RecipeShape, SwiftsStrictIsAboutBadRows) {
  EXPECT_EQ(read(kSwift).on_bad_row, "skip");
  EXPECT_EQ(read(kSwift + "strict: false\n").on_bad_row, "skip");
  EXPECT_EQ(read(kSwift + "strict: true\n").on_bad_row, "error");
  EXPECT_EQ(said_.find("strict"), std::string::npos) << said_;
  EXPECT_EQ(read(kSwift, {"strict=True"}).on_bad_row, "error");
  EXPECT_EQ(read(kSwift + "strict: true\non_bad_row: skip\n").on_bad_row, "skip");
}

// Names are on ModelScope unless use_hf or the variable USE_HF says otherwise.
TEST_F(RecipeShape, SwiftsNamesAreOnModelScope) {
  unsetenv("USE_HF");
  EXPECT_TRUE(read(kSwift).use_modelscope);
  EXPECT_TRUE(read(kSwift + "use_hf: false\n").use_modelscope);
  EXPECT_FALSE(read(kSwift + "use_hf: true\n").use_modelscope);
  EXPECT_FALSE(read(kSwift, {"use_hf=1"}).use_modelscope);
  EXPECT_FALSE(read(kSwift, {"use_modelscope=false"}).use_modelscope);
  setenv("USE_HF", "1", 1);
  EXPECT_FALSE(read(kSwift).use_modelscope);
  unsetenv("USE_HF");
}

// Published recipes write these keys with their usual values, which ask for nothing.
TEST_F(RecipeShape, SwiftsUsualValuesAreAccepted) {
  read(kSwift +
       "add_non_thinking_prefix: true\nuse_chat_template: true\nadd_version: false\ndataset_shuffle: true\n"
       "template_backend: swift\npadding_side: right\nfreeze_vit: true\nfreeze_aligner: True\nfreeze_llm: false\n"
       "packing: true\npacking_strategy: binpack\n");
  EXPECT_EQ(said_.find("no effect"), std::string::npos) << said_;
  read(kSwift + "add_version: true\ndevice_groups: {nproc_per_node: 8}\n");
  EXPECT_NE(said_.find("add_version has no effect here: output_dir is used as it is"), std::string::npos) << said_;
  EXPECT_NE(said_.find("device_groups has no effect here: no Ray cluster"), std::string::npos) << said_;
  read(kSwift + "freeze_vit: false\ndataset_shuffle: false\n");
  EXPECT_NE(said_.find("freeze_vit has no effect here: Fettle trains text only"), std::string::npos) << said_;
  EXPECT_NE(said_.find("dataset_shuffle has no effect here"), std::string::npos) << said_;
  EXPECT_NE(refusal(kSwift + "freeze_llm: true\n").find("freeze_llm is not available"), std::string::npos);
  EXPECT_NE(refusal(kSwift + "add_non_thinking_prefix: false\n").find("enable_thinking decides"), std::string::npos);
  EXPECT_NE(refusal(kSwift + "use_chat_template: false\n").find("set stage: pt"), std::string::npos);
}

TEST_F(RecipeShape, SwiftsPartsOfLossScaleAreExplained) {
  EXPECT_TRUE(read(kSwift + "loss_scale: last_round\n").mask_history);
  for (const char* scale : {"last_round+ignore_empty_think", "last_round_with_ignore_empty_think"})
    EXPECT_NE(
        refusal(kSwift + "loss_scale: " + scale + "\n")
            .find("recipe.yaml:4: loss_scale: 'ignore_empty_think' is not available; set loss_scale: last_round, and "
                  "if no reply has a thought, also enable_thinking: false"),
        std::string::npos);
  for (const char* scale : {"hermes", "default+hermes", "hermes+ignore_empty_think"})
    EXPECT_NE(refusal(kSwift, {std::string("loss_scale=") + scale})
                  .find("the command line: loss_scale: 'hermes' is not available: every part of a reply has the same "
                        "weight; set loss_scale: default"),
              std::string::npos)
        << scale;
}

}  // namespace
}  // namespace fettle
