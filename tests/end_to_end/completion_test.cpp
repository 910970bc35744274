// Tests `fettle complete WORDS...`, which lists what may stand at the cursor, and the completions of the shells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/keys.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

class Completion : public testing::Test {
 protected:
  // Returns the candidates without their descriptions.
  std::vector<std::string> complete(std::vector<std::string> words) {
    words.insert(words.begin(), "complete");
    const Outcome run = run_fettle(folder, words);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    std::vector<std::string> candidates;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) candidates.push_back(line.substr(0, line.find('\t')));
    return candidates;
  }
  TempFolder folder;
};

TEST_F(Completion, CommandsAreThoseOfTheHelp) {
  const std::string help = run_fettle(folder, {"--help"}).out;
  const std::vector<std::string> commands = complete({""});
  EXPECT_GE(commands.size(), 15u);
  for (const std::string& command : commands) EXPECT_THAT(help, testing::HasSubstr("\n  " + command + " "));
  EXPECT_THAT(complete({"-q", "tra"}), ElementsAre("train"));
  EXPECT_THAT(complete({"--ver"}), ElementsAre("--version", "--verbose"));
  EXPECT_THAT(run_fettle(folder, {"complete", "tra"}).out, "train\tfine-tune a model\n");
}

TEST_F(Completion, KeysAndFiles) {
  const std::vector<std::string> all = complete({"train", "_"});
  EXPECT_THAT(all, ElementsAre(":files"));
  EXPECT_THAT(complete({"train", "tune.yaml", "learning_ra"}), ElementsAre("learning_rate=", ":files"));
  const std::vector<std::string> important = complete({"train", ""});
  EXPECT_THAT(important, Contains("model_name_or_path="));
  EXPECT_LE(important.size(), 20u);
  for (const Key& key : recipe_keys())
    EXPECT_THAT(complete({"train", std::string(key.name)}), Contains(std::string(key.name) + "="));
  EXPECT_THAT(complete({"tokenize", "learning_ra"}), ElementsAre(":files"));
}

TEST_F(Completion, ValuesOfKeys) {
  EXPECT_THAT(complete({"train", "finetuning_type="}),
              ElementsAre("finetuning_type=lora", "finetuning_type=full", "finetuning_type=freeze"));
  EXPECT_THAT(complete({"train", "stage=d"}), ElementsAre("stage=dpo"));
  EXPECT_THAT(complete({"train", "bf16="}), ElementsAre("bf16=true", "bf16=false"));
  EXPECT_THAT(complete({"train", "plugin=c"}), ElementsAre("plugin=cuda", "plugin=cpu"));
  EXPECT_THAT(complete({"train", "template=llama3"}), ElementsAre("template=llama3"));
  EXPECT_THAT(complete({"train", "report_to=tensorboard,w"}), ElementsAre("report_to=tensorboard,wandb"));
  EXPECT_THAT(complete({"train", "dataset=a"}), ElementsAre(":files"));
  EXPECT_THAT(complete({"train", "learning_rate="}), ElementsAre());
  EXPECT_THAT(complete({"train", "abacus="}), ElementsAre());
}

TEST_F(Completion, FlagsAndTheirValues) {
  EXPECT_THAT(complete({"plan", "--f"}), ElementsAre("--fit"));
  EXPECT_THAT(complete({"plan", "tune.yaml", "--fit", ""}), ElementsAre("batch", "seq"));
  EXPECT_THAT(complete({"plan", "--target", "mi300"}), ElementsAre("mi300x"));
  EXPECT_THAT(complete({"plan", "--json", "learning_ra"}), ElementsAre("learning_rate=", ":files"));
  EXPECT_THAT(complete({"abacus", ""}), ElementsAre());
}

// Runs a script of bash after it has loaded the completion. Returns what the script prints.
std::string run_bash(const TempFolder& folder, const std::string& script) {
  write_text(folder.path() / "script", "cd " + folder.path().string() + "; source " +
                                           (source_folder() / "packaging/completions/fettle.bash").string() + script);
  FILE* pipe = popen(("bash " + (folder.path() / "script").string() + " 2>&1").c_str(), "r");
  std::string said;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) said += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0);
  return said;
}

// For each COMP_LINE, the script prints the completions of bash on one line.
TEST_F(Completion, BashReplacesWhatFollowsTheEqualsSign) {
  write_text(folder.path() / "tune.yaml", "");
  write_text(folder.path() / "two words.yaml", "");
  std::filesystem::create_directory(folder.path() / "rows");
  const std::string script = R"(
compopt() { printf '[%s] ' "$2"; }
for COMP_LINE in 'fettle trai' 'fettle train tu' 'fettle train tw' 'fettle train stage=d' 'fettle train dataset=ro' \
    'fettle train x.yaml lora_ran' 'fettle plan --fit b'; do
  COMP_POINT=${#COMP_LINE}
  _fettle ')" + program_file().string() +
                             R"('
  echo "${COMPREPLY[*]}"
done)";
  EXPECT_EQ(run_bash(folder, script),
            "train\ntune.yaml\ntwo\\ words.yaml\ndpo\n[nospace] rows/\n"
            "[nospace] lora_rank=\nbatch\n");
}

TEST_F(Completion, BashCompletesWhereUnsetVariablesAreErrors) {
  const std::string script = R"(
compopt() { :; }
set -u
COMP_LINE='fettle trai' COMP_POINT=11
_fettle ')" + program_file().string() +
                             R"('
echo "${COMPREPLY[*]}")";
  EXPECT_EQ(run_bash(folder, script), "train\n");
}

TEST_F(Completion, BashKnowsAliases) {
  const std::string script = R"(
compopt() { :; }
HOME=$PWD PATH=$PWD/bin:$PATH
mkdir bin
ln -s ')" + program_file().string() +
                             R"(' bin/fettle
COMP_LINE='fettle trai' COMP_POINT=11
for alias in "$PWD/bin/fettle" '~/bin/fettle' '~/bin/fettle -q' 'nice fettle' 'A=b fettle'; do
  alias fettle="$alias"
  _fettle fettle
  echo "${COMPREPLY[*]}"
done
_fettle '~/bin/fettle'
echo "${COMPREPLY[*]}")";
  EXPECT_EQ(run_bash(folder, script), "train\ntrain\ntrain\ntrain\ntrain\ntrain\n");
}

}  // namespace
}  // namespace fettle
