// Tests commands whose flags have the form of other tools' command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using testing::HasSubstr;

// Writes key=value words as flags: --key value.
std::vector<std::string> as_flags(const std::vector<std::string>& words) {
  std::vector<std::string> out{words[0]};
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    out.push_back("--" + words[i].substr(0, equals));
    out.push_back(words[i].substr(equals + 1));
  }
  return out;
}

TEST(Flags, TrainAsWordsDo) {
  const TempFolder folder;
  const Outcome words = run_fettle(folder, with(train_words(folder / "words"), {"max_steps=2", "packing=true"}));
  ASSERT_EQ(words.code, 0) << words.err;
  const Outcome flags = run_fettle(
      folder, with(as_flags(train_words(folder / "flags")), {"--max-steps=2", "--packing", "--push_to_hub"}));
  ASSERT_EQ(flags.code, 0) << flags.err;
  EXPECT_THAT(flags.err, HasSubstr("`fettle upload FOLDER ORG/NAME` sends the result after the run"));
  EXPECT_EQ(read_text(folder / "flags/adapter_model.safetensors"),
            read_text(folder / "words/adapter_model.safetensors"));
}

TEST(Flags, OverrideTheRecipe) {
  const TempFolder folder;
  write_text(folder / "tune.yaml", "seed: 1\nlearning_rate: 1.0e-4\nlora_rank: 2\n");
  const Outcome outcome =
      run_fettle(folder, {"convert", (folder / "tune.yaml").string(), "lora_rank=3", "--seed", "7"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "lora_rank: 3\nlearning_rate: 0.0001\nseed: 7\n");
  const Outcome quiet =
      run_fettle(folder, {"-q", "convert", (folder / "tune.yaml").string(), "lora_rank=3", "--seed", "7"});
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_EQ(quiet.out, outcome.out);
  EXPECT_THAT(run_fettle(folder, {"-q", "convrt"}).err, HasSubstr("did you mean 'convert'?"));
  for (const char* flag : {"-q", "--quiet", "-v", "--verbose"})
    EXPECT_EQ(run_fettle(folder, {"convert", (folder / "tune.yaml").string(), flag, "lora_rank=3", "--seed", "7"}).out,
              outcome.out)
        << flag;
}

TEST(Flags, ThePortOfLaunchIsChecked) {
  const TempFolder folder;
  for (const char* port : {"70000", "0", "-5"}) {
    const Outcome outcome = run_fettle(folder, {"launch", "--hosts", "a,b", "--port", port, "tune.yaml"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(std::string("--port: Value ") + port + " not in range 1 to 65535"));
  }
}

TEST(Flags, ThatAreUnknownEndTheCommand) {
  const TempFolder folder;
  const Outcome outcome = run_fettle(folder, {"train", "tune.yaml", "--lerning_rate", "1e-4"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--lerning_rate: neither a flag of this command nor a recipe key; did you mean "
                                     "'--learning_rate'?"));
  const Outcome own = run_fettle(folder, {"plan", "--jsom"});
  EXPECT_EQ(own.code, 2);
  EXPECT_THAT(own.err, HasSubstr("did you mean '--json'?"));
  EXPECT_THAT(run_fettle(folder, {"train"}).err,
              HasSubstr("recipe is missing; an example is `fettle train tune.yaml`"));
  // Commands without a recipe know only their own flags.
  EXPECT_THAT(run_fettle(folder, {"upload", "a", "b", "--bf16"}).err, HasSubstr("not expected"));
}

}  // namespace
}  // namespace fettle
