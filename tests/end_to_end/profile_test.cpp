// Tests profiler_steps: which steps are recorded, where the profile is written, and that a run without one goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/environment.h"
#include "environment.h"
#include "run_fettle.h"
#include "runtime/vendors/plugin.h"

namespace fettle {
namespace {

using testing::HasSubstr;

class Profile : public testing::Test {
 protected:
  // Trains four steps with a plugin that has a profiler.
  Outcome run(const std::vector<std::string>& more) {
    return run_fettle(
        folder_, with(train_words(folder_ / "out"), with({"plugin=" FETTLE_PROFILING_PLUGIN, "max_steps=4"}, more)));
  }
  std::filesystem::path file(int step) const {
    return folder_ / "out/profile/plugins/profile" / ("step_" + std::to_string(step)) / (host_name() + "-0.xplane.pb");
  }

  TempFolder folder_;
  const Environment plugin_{"PROFILED_PLUGIN", Plugin::find("cpu").string()};
};

TEST_F(Profile, HasTheStepsThatTheRecipeAsksFor) {
  const Outcome trained = run({"profiler_steps=2", "profiler_steps_start=1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_text(file(2)), "2 programs");
  EXPECT_THAT(trained.err, HasSubstr("the profile of steps 2 to 3 is in"));
}

TEST_F(Profile, EndsWithTheRun) {
  const Outcome trained = run({"profiler_steps=9", "profiler_steps_start=3"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_text(file(4)), "1 programs");
}

TEST_F(Profile, OfARunThatEndsEarlyHasTheStepsSoFar) {
  // The second evaluation is no better than the first one, because nothing is learned.
  const Outcome trained =
      run({"profiler_steps=4", "eval_dataset=" + (reference_model("llama").parent_path() / "rows.jsonl").string(),
           "eval_strategy=steps", "eval_steps=1", "learning_rate=1e-30", "early_stopping_patience=1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("the profile of steps 1 to 2 is in"));
  EXPECT_TRUE(std::filesystem::exists(file(1)));
}

TEST_F(Profile, OfAResumedRunBeginsThere) {
  ASSERT_EQ(run({"max_steps=2", "save_strategy=steps", "save_steps=2"}).code, 0);
  const Outcome resumed = run({"profiler_steps=3", "resume_from_checkpoint=true"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_text(file(3)), "1 programs");
  const Outcome late = run({"profiler_steps=2", "resume_from_checkpoint=true", "max_steps=5"});
  ASSERT_EQ(late.code, 0) << late.err;
  EXPECT_THAT(late.err, HasSubstr("profiler_steps: the run has no steps from 1 to 2"));
}

TEST_F(Profile, OfAnEarlierRunIsOverwritten) {
  ASSERT_EQ(run({"profiler_steps=1"}).code, 0);
  ASSERT_EQ(run({"profiler_steps=1", "profiler_steps_start=2", "overwrite_output_dir=true"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(file(1)));
  EXPECT_TRUE(std::filesystem::exists(file(3)));
}

TEST_F(Profile, DoesNotExistUnlessAskedFor) {
  const Outcome trained = run({});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/profile"));
}

TEST_F(Profile, ThatFailsDoesNotEndTheRun) {
  for (const char* function : {"Create", "Start", "Stop", "CollectData"}) {
    const Environment fails("PROFILER_FAILS", function);
    const Outcome trained = run({"profiler_steps=2", "overwrite_output_dir=true"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr("no profile of the steps: PLUGIN_Profiler_" + std::string(function) +
                                       " failed: as the test asked"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/profile"));
  }
}

TEST_F(Profile, OfAPluginWithoutAProfilerIsLeftOut) {
  const Outcome trained =
      run_fettle(folder_, with(train_words(folder_ / "out"), {"plugin=cpu", "max_steps=1", "profiler_steps=1"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("profiler_steps: plugin cpu cannot record profiles"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/profile"));
}

}  // namespace
}  // namespace fettle
