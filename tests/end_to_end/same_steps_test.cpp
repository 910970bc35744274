// `fettle data`, `plan`, `train` and `eval` count the same steps and lay out batches in the same way.
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using nlohmann::json;

struct Case {
  const char* name;
  std::vector<std::string> words;
};

std::string rows_of(const std::string& stage) {
  std::string lines;
  for (int i = 0; i < 29; ++i) {
    const std::string prompt = "ab " + std::to_string(i),
                      reply = std::string(static_cast<size_t>(1 + i * 13 % 90), 'c');
    json row{{"prompt", prompt}};
    if (stage == "dpo" || stage == "rm")
      row.update({{"chosen", reply}, {"rejected", "d" + reply}});
    else
      row["completion"] = reply;
    if (stage == "kto") row["label"] = i % 3 == 0;
    lines += row.dump() + "\n";
  }
  return lines;
}

// Returns the text after `start` on the first line of `text` that contains it.
std::string after(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  if (at == std::string::npos) return "no line has '" + start + "': " + text;
  const size_t first = at + start.size();
  return text.substr(first, text.find('\n', first) - first);
}

class SameSteps : public testing::TestWithParam<Case> {};

TEST_P(SameSteps, InAllCommands) {
  const TempFolder folder;
  std::string stage = "sft";
  for (const std::string& word : GetParam().words)
    if (word.starts_with("stage=")) stage = word.substr(6);
  write_text(folder / "rows.jsonl", rows_of(stage));
  auto run = [&](const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> words =
        with(train_words(folder / "out"), {"dataset=" + (folder / "rows.jsonl").string(), "template=none",
                                           "cutoff_len=128", "val_size=5", "num_train_epochs=1", "max_steps=-1"});
    words[0] = command;
    const Outcome outcome = run_fettle(folder, with(with(words, GetParam().words), more));
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome;
  };

  const std::string text = run("data", {}).out;
  Outcome outcome = run("data", {"--json"});
  ASSERT_EQ(outcome.code, 0);
  const json data = json::parse(outcome.out);
  outcome = run("plan", {"--json"});
  ASSERT_EQ(outcome.code, 0);
  const json plan = json::parse(outcome.out);
  const std::string train = run("train", {"plan_only=true"}).err;
  // `eval` measures texts. With a recipe of preferences it reads other rows.
  const bool texts = stage == "sft";
  const std::string eval = texts ? run("eval", {}).err : "";

  EXPECT_EQ(plan["step"]["rows"], data["batches"]["rows"]);
  EXPECT_EQ(plan["step"]["length"], data["batches"]["longest"]);
  EXPECT_EQ(after(train, "batches: "), after(text, "batches     "));
  EXPECT_EQ(after(train, "Total optimization steps = "), std::to_string(data["steps_per_epoch"].get<int64_t>()));
  if (texts) {
    EXPECT_EQ(after(eval, "evaluation: "), after(text, "to evaluate: "));
  }
  EXPECT_GT(data["eval_batches"]["steps"], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, SameSteps,
    testing::Values(Case{"AutoMesh", {"mesh=auto", "device_count=2", "per_device_eval_batch_size=3"}},
                    Case{"SequenceAxis", {"mesh={sp: 3}", "gradient_accumulation_steps=2"}},
                    Case{"SeveralDevices", {"mesh={dp: 2, fsdp: 2}", "per_device_eval_batch_size=1"}},
                    Case{"Packed", {"device_count=2", "packing=true"}},
                    Case{"PreferencePairs", {"stage=dpo", "mesh={fsdp: 2}", "gradient_accumulation_steps=2"}},
                    Case{"RatedReplies", {"stage=kto", "mesh={dp: 2, sp: 2}"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fettle
