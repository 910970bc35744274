// Tests keys that belong to other stages, that a stage refuses, or that contradict each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/recipe.h"
#include "stages/stages.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::vector<std::string>& words) {
  try {
    const Recipe recipe = read_recipe("", words);
    check_stage_keys(stage_named(recipe.stage, recipe.where("stage")), KeyValues(recipe));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(StageKeys, BelongToTheirStages) {
  for (const char* stage : {"pt", "sft", "cls", "dpo", "kto", "rm"})
    EXPECT_EQ(message({std::string("stage=") + stage}), "") << stage;
  EXPECT_EQ(message({"pref_beta=0.2"}),
            "override 'pref_beta=0.2': pref_beta belongs to stage: dpo or kto, found stage: sft; remove the key, or "
            "change the stage");
  EXPECT_THAT(message({"stage=dpo", "kto_chosen_weight=2"}),
              HasSubstr("kto_chosen_weight belongs to stage: kto, found"));
  EXPECT_THAT(message({"stage=kto", "pref_ftx=1"}), HasSubstr("pref_ftx belongs to stage: dpo, found stage: kto"));
  EXPECT_THAT(message({"stage=rm", "ref_model=m"}),
              HasSubstr("ref_model belongs to stage: sft or dpo or kto, found stage: rm"));
  for (const char* key : {"num_labels=3", "problem_type=regression", "id2label=[a, b]"})
    EXPECT_THAT(message({key}), HasSubstr("belongs to stage: cls, found stage: sft")) << key;
}

TEST(StageKeys, StagesThatDoNotExistYet) {
  EXPECT_EQ(message({"stage=ppo"}),
            "override 'stage=ppo': stage: ppo is not available in this version; use one of pt, sft, cls, dpo, kto, rm");
}

TEST(StageKeys, SomeAreRefused) {
  for (const char* stage : {"dpo", "kto", "rm"}) {
    const std::string word = std::string("stage=") + stage, named = std::string("cannot be used with stage: ") + stage;
    EXPECT_THAT(message({word, "packing=true"}), AllOf(HasSubstr("packing " + named), HasSubstr("whole rows")));
    EXPECT_THAT(message({word, "train_on_prompt=true"}), HasSubstr("train_on_prompt " + named));
    EXPECT_THAT(message({word, "train_from_scratch=true", "finetuning_type=full"}),
                HasSubstr("train_from_scratch " + named));
  }
  for (const char* key : {"packing=true", "train_on_prompt=true", "mask_history=true"})
    EXPECT_THAT(message({"stage=cls", key}), HasSubstr("cannot be used with stage: cls: each row trains one label"))
        << key;
}

TEST(StageKeys, ContradictEachOther) {
  EXPECT_THAT(message({"stage=dpo", "pref_loss=hinge", "dpo_label_smoothing=0.1"}),
              HasSubstr("dpo_label_smoothing belongs to stage: dpo with pref_loss: sigmoid, simpo, robust or exo_pair, "
                        "found pref_loss: hinge"));
  EXPECT_THAT(message({"stage=dpo", "pref_loss=exo_pair"}), HasSubstr("needs dpo_label_smoothing above 0"));
  EXPECT_EQ(message({"stage=dpo", "pref_loss=exo_pair", "dpo_label_smoothing=0.01"}), "");
  EXPECT_THAT(message({"stage=dpo", "simpo_gamma=1"}),
              HasSubstr("simpo_gamma belongs to stage: dpo with pref_loss: simpo"));
  EXPECT_THAT(message({"stage=dpo", "pref_loss=orpo", "ref_model=m"}), HasSubstr("ref_model belongs to"));
  EXPECT_THAT(message({"stage=dpo", "pissa_init=true"}), HasSubstr("name the base in ref_model"));
  EXPECT_EQ(message({"stage=dpo", "pissa_init=true", "ref_model=m"}), "");
  EXPECT_THAT(message({"stage=kto", "kto_chosen_weight=0", "kto_rejected_weight=0"}), HasSubstr("are both 0"));
}

TEST(StageKeys, AnUnknownStageNamesTheNearest) {
  try {
    stage_named("dop", "r.yaml:2");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "r.yaml:2: stage: found 'dop', wanted one of pt, sft, cls, dpo, kto, rm; did you mean 'dpo'?");
  }
}

}  // namespace
}  // namespace fettle
