#include <gtest/gtest.h>

#include <sstream>

#include "config/recipe.h"
#include "data/example.h"
#include "data_fixtures.h"
#include "inspect/data_command.h"

namespace fettle {
namespace {

struct Report : ::testing::Test {
  TempFolder folder;
  Recipe recipe;

  Report() {
    TestTokenizer().save(folder.path());
    folder.write("config.json", R"({"vocab_size": 258})");
    recipe.model_name_or_path = folder.path().string();
    recipe.template_name = "none";
    recipe.data_cache = "off";
    recipe.per_device_train_batch_size = 2;
    recipe.dataset = {folder
                          .write("rows.jsonl", R"({"prompt": "q\n", "completion": "a\u001b[2J"}
{"prompt": "q\n", "completion": "a\u001b[2J"}
{"text": ""}
{"prompt": "long", "completion": "0123456789012345678901234567890123456789"}
{"prompt": "x", "completion": "y"}
)")
                          .string()};
    recipe.cutoff_len = 32;
  }
  std::string text(DataOptions options) {
    std::ostringstream out;
    EXPECT_EQ(run_data(Request(recipe, Command::kData), options, out), 0);
    return out.str();
  }
};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\nin: " << text;
}

TEST_F(Report, CountsWhatIsTrained) {
  const std::string report = text({});
  expect_has(report, "rows        5 of ");
  expect_has(report, "examples    4 to train\n");
  expect_has(report, "tokens      51, 42 of them trained (82.4 %)");
  expect_has(report, "assistant               42,             42 trained");
  expect_has(report, "user                     9,              0 trained");
  expect_has(report, "shortest 3, median 8, 95 % within 32, longest 32");
  expect_has(report, "     1 - 16              3  ########################################\n");
  expect_has(report, "    17 - 32              1  ##############\n");
  expect_has(report, "1 dropped (1 empty), 0 bad; 1 cut to cutoff_len 32; 1 duplicates kept");
  expect_has(report, "2 steps an epoch, 2 rows a step");
  expect_has(report, "rows.jsonl:3: the text is empty");
  expect_has(report, "rows.jsonl:2: an earlier row has the same tokens; the row is kept (remove_duplicates");
}

TEST_F(Report, CallsAnEntryInTheRecipeByItsFile) {
  const std::string file = recipe.dataset[0];
  recipe.dataset = {nlohmann::json{{"file_name", file}, {"sample_by", "line"}}.dump()};
  expect_has(text({}), "rows        5 of " + file + "\n");
}

TEST_F(Report, RendersWithTheTemplateOfTheAdapterThatIsTrainedFurther) {
  std::filesystem::create_directories(folder.path() / "adapter");
  folder.write("adapter/adapter_config.json", "{}");
  folder.write("adapter/chat_template.jinja", "{% for m in messages %}[{{ m.content }}]{{ eos_token }}{% endfor %}");
  recipe.template_name = "";
  recipe.adapter_name_or_path = {(folder.path() / "adapter").string()};
  recipe.dataset = {folder
                        .write("talk.jsonl", R"({"messages": [{"role": "user", "content": "q"}, )"
                                             R"({"role": "assistant", "content": "a"}]})")
                        .string()};
  expect_has(text({.rows = 1}), "[q]</s>⟦[a]</s>⟧");
}

TEST_F(Report, SaysWhenTheRolesCountMoreRows) {
  const std::string line = "by role     of all rows that were read, also of those to evaluate or left out later\n";
  EXPECT_EQ(text({}).find(line), std::string::npos);
  recipe.val_size = 1;
  expect_has(text({}), line);
}

TEST_F(Report, ShowsRowsWithTrainedSpans) {
  expect_has(text({.rows = 1}), "q⏎\n⟦a\\x1b[2J</s>⟧");
  expect_has(text({.colour = true, .rows = 1}), "q⏎\n\x1b[1;32ma\\x1b[2J</s>\x1b[0m");
  EXPECT_EQ(text({.rows = 0}).find("⟦"), std::string::npos);
}

TEST_F(Report, IsJsonWhenAsked) {
  const auto report = nlohmann::json::parse(text({.json = true, .rows = 2}));
  EXPECT_EQ(report["data"]["rows"], 5);
  EXPECT_EQ(report["data"]["trained_by_role"]["assistant"], 42);
  EXPECT_EQ(report["data"]["duplicates"], 1);
  EXPECT_EQ(report["lengths"]["max"], 32);
  EXPECT_EQ(report["steps_per_epoch"], 2);
  EXPECT_EQ(report["samples"].size(), 2u);
  EXPECT_EQ(report["samples"][0]["labels"][0], kIgnore);
}

TEST_F(Report, CountsStepsOfTheMesh) {
  recipe.mesh = {{"fsdp", 2}, {"tp", 4}};
  expect_has(text({}), "1 steps an epoch, 4 rows a step");
}

TEST_F(Report, SaysWhichDevicesItCountsOn) {
  auto assumed = [&] { return nlohmann::json::parse(text({.json = true, .rows = 0}))["assumed"]; };
  expect_has(text({}), "assumed     one device (neither device_count nor mesh is set; ");
  EXPECT_EQ(assumed()["devices"], 1);
  recipe.mesh = {{"auto", 1}};
  expect_has(text({}), "assumed     one device (device_count is not set and mesh has no sizes; ");
  recipe.mesh = {};
  recipe.target = "mi300x:2x8";
  expect_has(text({}), "assumed     16 devices, mesh fsdp 16 (target)\n");
  recipe.mesh = {{"fsdp", 2}, {"sp", 2}};
  expect_has(text({}), "assumed     4 devices, mesh fsdp 2 x sp 2 (the recipe's mesh)\n");
  EXPECT_EQ(assumed()["mesh"], (nlohmann::json{{"fsdp", 2}, {"sp", 2}}));
  recipe.mesh = {{"auto", 1}};
  recipe.device_count = 8;
  expect_has(text({}), "assumed     8 devices, mesh fsdp 8 (device_count); if `auto` chooses another mesh");
  EXPECT_EQ(assumed()["because"], "device_count");
}

TEST_F(Report, CountsTheStepsOfAnEvaluation) {
  recipe.val_size = 1;
  recipe.per_device_eval_batch_size = 3;
  recipe.device_count = 2;
  expect_has(text({}), "            to evaluate: 1 steps, 6 rows a step, laid into ");
  const auto report = nlohmann::json::parse(text({.json = true, .rows = 0}));
  EXPECT_EQ(report["eval_batches"]["rows"], 6);
  EXPECT_EQ(report["eval_batches"]["steps"], 1);
  EXPECT_EQ(report["batches"]["rows"], 4);
  EXPECT_FALSE(report.contains("eval_command_batches"));
  // `fettle eval` splits the rows over the devices of pp.
  recipe.mesh = {{"pp", 2}};
  expect_has(text({}), "            to evaluate: 1 steps, 3 rows a step, laid into ");
  expect_has(text({}), "            with `fettle eval`: 1 steps, 6 rows a step, laid into ");
}

TEST_F(Report, EvaluationRowsWithoutBatchesAreNamed) {
  recipe.stage = "kto";
  recipe.val_size = 1;
  std::string rows;
  for (int i = 0; i < 4; ++i)
    rows += "{\"prompt\": \"q" + std::to_string(i) + "\", \"completion\": \"a\", \"label\": true}\n";
  recipe.dataset = {folder.write("rated.jsonl", rows).string()};
  const std::string report = text({});
  expect_has(report, "batches     2 steps an epoch, 2 rows a step");
  expect_has(report, "this is the only row to evaluate on; raise val_size");
}

TEST_F(Report, ShowsLabels) {
  recipe.stage = "cls";
  recipe.template_name = "";
  recipe.dataset = {
      folder.write("rows.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n")
          .string()};
  const std::string report = text({});
  expect_has(report, "labels      2, one per row: x 1, y 1; always predicting x is right in 50.0 %");
  expect_has(report, "rows.jsonl:1: 1 tokens, label x");
  const auto json = nlohmann::json::parse(text({.json = true}));
  EXPECT_EQ(json["id2label"], (nlohmann::json{"x", "y"}));
  EXPECT_EQ(json["problem_type"], "single_label_classification");
  EXPECT_EQ(json["samples"][1]["label"], "y");
}

TEST_F(Report, PredictsPackedRows) {
  std::string rows;
  for (int i = 0; i < 23; ++i) rows += "{\"text\": \"" + std::string(3 + i * 7 % 20, 'a') + "\"}\n";
  recipe.dataset = {folder.write("texts.jsonl", rows).string()};
  recipe.gradient_accumulation_steps = 2;
  recipe.mesh = {{"dp", 2}};
  const auto before = nlohmann::json::parse(text({.json = true, .rows = 0}));
  expect_has(text({}), "laid into ");
  recipe.packing = true;
  const auto packed = nlohmann::json::parse(text({.json = true, .rows = 0}));
  EXPECT_EQ(before["packed_use"], packed["use"]);
  EXPECT_NE(before["use"], packed["use"]);
  expect_has(text({}), "packed and laid into ");
}

// The rows of a step share lines. The end token is one token of a row. The last step has only two rows, and the two
// places that no row takes need no positions.
TEST_F(Report, UseIsTheShareOfPositionsThatHoldTokens) {
  recipe.disable_shuffling = true;
  const auto report_of = [&](const std::vector<size_t>& lengths) {
    std::string rows;
    for (const size_t length : lengths) rows += "{\"text\": \"" + std::string(length - 1, 'a') + "\"}\n";
    recipe.dataset = {folder.write("lengths.jsonl", rows).string()};
    return nlohmann::json::parse(text({.json = true, .rows = 0}));
  };
  const auto shape = [](int lines, int length) { return nlohmann::json{{"lines", lines}, {"length", length}}; };
  recipe.per_device_train_batch_size = 4;
  const auto shared = report_of({2, 6, 3, 5, 8, 8, 7, 3, 8, 5});
  EXPECT_EQ(shared["data"]["tokens"], 55);
  EXPECT_EQ(shared["batches"]["shapes"], nlohmann::json::array({shape(2, 8), shape(4, 8)}));
  // 2 + 6, 3 + 5 | 8, 8, 7, 3 | 8, 5
  EXPECT_DOUBLE_EQ(shared["use"], (16.0 + 26 + 13) / (2 * 8 + 4 * 8 + 2 * 8));
  // The last step needs one of its two micro-batches. The positions of the other one are not computed.
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  const auto regrouped = report_of({32, 32, 32, 32, 32, 31});
  EXPECT_EQ(regrouped["batches"]["shapes"], nlohmann::json::array({shape(2, 32)}));
  EXPECT_DOUBLE_EQ(regrouped["use"], (128.0 + 63) / (2 * 2 * 32 + 2 * 32));
}

TEST_F(Report, ShowsEachSetsShareAndRowsOfSeveralFormats) {
  recipe.dataset.push_back(folder.write("texts.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n").string());
  recipe.mix_strategy = "interleave_under";
  const std::string report = text({});
  expect_has(report, "rows.jsonl 2 (50.0 %), ");
  expect_has(report, "texts.jsonl 2 (50.0 %)\n");
  expect_has(report, "are of several formats: 4 prompt and completion, 1 text\n");
}

TEST_F(Report, ShowsPairsSideBySide) {
  recipe.stage = "dpo";
  recipe.dataset = {folder
                        .write("pairs.jsonl", R"({"prompt": "q", "chosen": "yes", "rejected": "no"}
{"prompt": "r", "chosen": "good", "rejected": "bad"}
)")
                        .string()};
  const std::string report = text({.rows = 1});
  expect_has(report, "examples    2 pairs to train\n");
  expect_has(report, "chosen                   9,              9 trained");
  expect_has(report, "rejected                 7,              7 trained");
  expect_has(report, "1 steps an epoch, 2 rows a step");
  expect_has(report, "pairs.jsonl:1, chosen: 5 tokens, 4 trained (between ⟦ and ⟧)\nq⟦yes</s>⟧");
  expect_has(report, "pairs.jsonl:1, rejected: 4 tokens, 3 trained (between ⟦ and ⟧)\nq⟦no</s>⟧");
  EXPECT_EQ(report.find("pairs.jsonl:2"), std::string::npos);
  const auto json = nlohmann::json::parse(text({.json = true, .rows = 1}));
  EXPECT_EQ(json["samples"][1]["preference"], "rejected");
}

}  // namespace
}  // namespace fettle
