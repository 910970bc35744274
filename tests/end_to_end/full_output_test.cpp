// Tests that a command fails if its results cannot be written to standard output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

TEST(FullOutput, EndsEachCommandWithAMessage) {
  const TempFolder folder;
  const std::string model = reference_model("llama").string();
  const std::string rows = (reference_model("llama").parent_path() / "rows.jsonl").string();
  write_text(folder / "recipe.yaml", "lora_rank: 3\n");
  write_text(folder / "lines", "a\n");
  write_text(folder / "talk.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  write_text(folder / "t.jinja", "{{ messages[0].content }}");
  const std::string at = folder.path().string() + "/";
  for (const std::string& words :
       {"convert " + at + "recipe.yaml", "tokenize " + model + " " + at + "lines",
        "render " + at + "t.jinja " + at + "talk.json", std::string("devices plugin=cpu"),
        "data --json model_name_or_path=" + model + " data_cache=off dataset=" + rows, std::string("train --help-keys"),
        std::string("train --help"), std::string("--version"), std::string("complete tr")}) {
    SCOPED_TRACE(words);
    const int status = std::system((program_file().string() + " " + words + " > /dev/full 2> " + at + "err").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2);
    EXPECT_THAT(read_text(folder / "err"), testing::HasSubstr("error: cannot write to standard output; is the disk"));
  }
}

}  // namespace
}  // namespace fettle
