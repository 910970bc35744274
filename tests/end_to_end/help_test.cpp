// Tests `fettle COMMAND --help`, which shows the command's own flags, three examples and the most important keys, and
// `--help-keys`, which shows all keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/key_help.h"
#include "config/keys.h"
#include "config/recipe.h"
#include "run_fettle.h"
#include "stages/stages.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Command {
  std::string name;
  bool reads_recipe;
  std::vector<std::string> flags;
};

void PrintTo(const Command& command, std::ostream* out) {
  *out << command.name;
}

// Splits a shell line into words, up to a redirection. Words may be in double quotes.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : line + " ") {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (word == "<") break;
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else {
      word += c;
    }
  }
  return words;
}

std::vector<std::string> examples_in(const std::string& help) {
  std::vector<std::string> examples;
  std::istringstream in(help);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("  fettle ")) examples.push_back(line.substr(2));
  return examples;
}

class CommandHelp : public testing::TestWithParam<Command> {
 protected:
  TempFolder folder;
};

TEST_P(CommandHelp, ShowsFlagsThreeExamplesAndFewKeys) {
  const Command& command = GetParam();
  const Outcome help = run_fettle(folder, {command.name, "--help"});
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(help.err, "");
  for (const std::string& flag : command.flags) EXPECT_THAT(help.out, HasSubstr(flag));
  const std::vector<std::string> examples = examples_in(help.out);
  EXPECT_EQ(examples.size(), 3u) << help.out;
  for (const std::string& example : examples) {
    const std::vector<std::string> words = words_of(example);
    ASSERT_GE(words.size(), 2u);
    EXPECT_EQ(words[1], command.name);
    std::vector<std::string> overrides;
    for (const std::string& word : words) {
      if (word == "--lora-modules") break;  // its values also have the form NAME=PATH
      if (word.find('=') != std::string::npos && !word.starts_with("-")) overrides.push_back(word);
    }
    EXPECT_NO_THROW(read_recipe("", overrides)) << example;
  }
  const size_t part = help.out.find("\nRecipe keys");
  EXPECT_EQ(part != std::string::npos, command.reads_recipe) << help.out;
  int keys = 0;
  for (const Key& key : recipe_keys())
    keys += part != std::string::npos && help.out.find("\n  " + std::string(key.name) + " ", part) != std::string::npos;
  EXPECT_EQ(keys > 0, command.reads_recipe) << help.out;
  EXPECT_LE(keys, 12);
  std::istringstream lines(help.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST_P(CommandHelp, HelpKeysShowsAllKeys) {
  const Command& command = GetParam();
  const Outcome all = run_fettle(folder, {command.name, "--help-keys"});
  if (!command.reads_recipe) {
    EXPECT_EQ(all.code, 2);
    return;
  }
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.out, recipe_reference_text(stage_key_text()));
  EXPECT_THAT(run_fettle(folder, {command.name, "--help"}).out, HasSubstr("fettle " + command.name + " --help-keys"));
}

INSTANTIATE_TEST_SUITE_P(
    Commands, CommandHelp,
    testing::Values(Command{"train", true, {}}, Command{"plan", true, {"--target", "--fit", "--json", "--shards"}},
                    Command{"eval", true, {"--json"}}, Command{"generate", true, {}}, Command{"chat", true, {}},
                    Command{"serve", true, {"--host", "--port", "--rows"}},
                    Command{"board", false, {"--host", "--port", "--read-only"}}, Command{"export", true, {}},
                    Command{"data", true, {"--json", "--rows"}}, Command{"devices", true, {}},
                    Command{"download", false, {"--revision", "--dataset", "--all"}},
                    Command{"upload", false, {"--public", "--message"}}, Command{"doctor", true, {"--json"}},
                    Command{"launch", true, {"--hosts", "--per-host", "--shell", "--address", "--port"}},
                    Command{"tokenize", false, {"--jsonl", "--no-special", "--decode"}},
                    Command{"render", false, {"--name", "--jsonl"}}),
    [](const auto& info) { return info.param.name; });

TEST(Help, TrainNamesEveryLauncherAndItsFile) {
  TempFolder folder;
  const Outcome help = run_fettle(folder, {"train", "--help"});
  const std::string guide = read_text(source_folder() / "docs/hosts.md");
  for (const std::string& file : list_tree(source_folder() / "examples/launchers")) {
    EXPECT_THAT(help.out, HasSubstr("  " + file + " "));
    EXPECT_THAT(guide, HasSubstr("examples/launchers/" + file));
  }
  for (const char* launcher : {"fettle launch", "srun --mpi=pmix", "mpirun", "torchrun --no-python", "PyTorchJob",
                               "Kubeflow Trainer", "MPIJob", "JobSet", "SkyPilot", "dstack", "docs/hosts.md"})
    EXPECT_THAT(help.out, HasSubstr(launcher));
}

TEST(Help, IsAlsoACommand) {
  TempFolder folder;
  EXPECT_EQ(run_fettle(folder, {"help"}).out, run_fettle(folder, {"--help"}).out);
  const Outcome help = run_fettle(folder, {"help", "train"});
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(help.out, run_fettle(folder, {"train", "--help"}).out);
}

TEST(Help, NamesEveryCommandAndNoKeys) {
  TempFolder folder;
  const Outcome help = run_fettle(folder, {"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"train", "launch", "plan", "eval", "generate", "chat", "serve", "board", "export", "data",
                              "devices", "download", "upload", "doctor", "tokenize", "render"})
    EXPECT_THAT(help.out, HasSubstr("\n  " + std::string(command) + " "));
  EXPECT_THAT(help.out, HasSubstr("fettle train --help-keys"));
  EXPECT_THAT(help.out, Not(HasSubstr("lora_rank")));
  const Outcome keys = run_fettle(folder, {"--help-keys"});
  EXPECT_EQ(keys.code, 0) << keys.err;
  EXPECT_EQ(keys.out, recipe_reference_text(stage_key_text()));
}

}  // namespace
}  // namespace fettle
