// Defines EvalCommand, the fixture of the tests of `fettle eval` on a reference model.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "correct/generate_models.h"
#include "eval/eval.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {

class EvalCommand : public testing::Test {
 protected:
  EvalCommand() {
    recipe = reference_recipe("llama");
    recipe.stage = "pt";  // pretraining, so there is no template
    recipe.cutoff_len = 128;
    recipe.data_cache = "off";
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(temp / name) << text;
    return (temp / name).string();
  }
  std::string choices_file() {
    std::string lines;
    for (const nlohmann::ordered_json& row : recorded["rows"])
      lines +=
          nlohmann::ordered_json{{"question", row["question"]}, {"choices", row["choices"]}, {"answer", row["answer"]}}
              .dump() +
          "\n";
    return file("choices.jsonl", lines);
  }
  void tune() { recipe.adapter_name_or_path = {(kReferenceModels / "llama" / "adapter_final").string()}; }
  std::string text() {
    std::ostringstream out;
    EXPECT_EQ(run_eval(Request(recipe, Command::kEval), false, out), 0);
    return out.str();
  }
  nlohmann::ordered_json json() {
    std::ostringstream out;
    EXPECT_EQ(run_eval(Request(recipe, Command::kEval), true, out), 0);
    return nlohmann::ordered_json::parse(out.str());
  }

  TempFolder temp;
  Recipe recipe;
  const nlohmann::ordered_json recorded =
      nlohmann::ordered_json::parse(std::ifstream(source_folder() / "tests/reference/choices.json"));
};

}  // namespace fettle
