#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/batches/batches.h"
#include "data/dataset.h"
#include "data/preferences.h"
#include "data_fixtures.h"
#include "temp_folder.h"

namespace fettle {
namespace {

struct PreferenceErrors : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;

  PreferenceErrors() {
    spec.rows = RowKind::kPreferencePairs;
    spec.template_name = "none";
    spec.cache = "off";
  }
  void expect(const std::string& row, const std::string& part) {
    spec.sets = {folder.write("a.jsonl", row + "\n").string()};
    try {
      load_datasets(spec, tokenizer, 0);
      ADD_FAILURE() << "no error: " << row;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("a.jsonl"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(PreferenceErrors, RowsThatAreNotPairs) {
  expect(R"({"prompt": "q", "completion": "a"})", "the column 'chosen' is missing; the row has prompt, completion");
  expect(R"({"prompt": "q", "chosen": "a"})", "the column 'rejected' is missing");
  expect(R"({"chosen": "a", "rejected": "b"})", "'chosen' has no prompt;");
  expect(R"({"prompt": "q", "chosen": 1.5, "rejected": {"a": 1}})", "'completion' is the number 1.5");
  expect(R"({"text": "q", "chosen": [], "rejected": []})", "the conversation has no messages");
  expect(
      R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a"}], "rejected": [{"role": "user", "content": "R"}, {"role": "assistant", "content": "b"}]})",
      "differ in message 1, whose role is 'user'");
  for (const char* prompt : {"messages", "prompt"})
    expect(
        fmt::format(R"({{"{}": [{{"role": "user", "content": "Q"}}], )", prompt) +
            R"("chosen": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "a"}], "rejected": "b"})",
        "a reply begins with a turn of the user or the system");
  expect(R"({"prompt": "q", "chosen": "same", "rejected": "same"})", "the chosen and the rejected reply are the same");
}

TEST_F(PreferenceErrors, ColumnsThatMayBelongToThePrompt) {
  for (const char* question : {"question", "input", "query", "instruction"})
    expect(fmt::format(R"({{"{}": "q", "Contexts": "c", "chosen": "a", "rejected": "b"}})", question),
           fmt::format("the column 'Contexts' may be a part of the prompt; join it with '{}', or", question));
  expect(R"({"question": "q", "input": "i", "chosen_messages": "a", "rejected_messages": "b"})",
         R"("columns": {"chosen": "chosen_messages", "rejected": "rejected_messages"})");
  for (const char* other : {"instruction", "question"})
    expect(fmt::format(R"({{"{}": "i", "query": "q", "response": "a", "rejected_response": "b"}})", other),
           "the column 'query' may be a part of the prompt");
  expect(R"({"Problem": "q", "system": "s", "chosen": "It is a", "rejected": "It is b"})",
         "the column 'Problem' may have the prompt; name it in an entry of dataset_info.json or of `dataset`: "
         R"("columns": {"prompt": "Problem", "chosen": "chosen", "rejected": "rejected", "system": "system"})");
}

TEST_F(PreferenceErrors, RowsThatAreNotRated) {
  spec.rows = RowKind::kRatedReplies;
  expect(R"({"prompt": "q", "completion": "a"})",
         "the column 'label' is missing; the row has prompt, completion; the column must be true for a good reply");
  expect(R"({"prompt": "q", "completion": "a", "label": "maybe"})",
         "'label' must be true or false, but it is \"maybe\"");
  expect(R"({"text": "q", "label": true})", "this stage needs a prompt and a reply");
}

TEST_F(PreferenceErrors, PairsInStageSft) {
  spec.rows = RowKind::kConversations;
  expect(R"({"x": "q", "chosen": "a", "rejected": "b"})",
         "the row is a preference pair ('chosen' and 'rejected'); set stage: dpo");
  expect(R"({"instruction": "q", "chosen": "a", "rejected": "b"})", "the row is a preference pair");
  // The prompt alone must not be taken for a text.
  const std::string file = folder.write("b.jsonl", R"({"q": "one", "chosen": "a", "rejected": "b"})").string();
  spec.sets = {R"({"file_name": ")" + file + R"(", "columns": {"prompt": "q", "chosen": "chosen"}})"};
  EXPECT_THAT(user_error([&] { load_datasets(spec, tokenizer, 0); }), testing::HasSubstr("set stage: dpo"));
}

TEST_F(PreferenceErrors, PackedPairsAndStepsOfOneRow) {
  const std::vector<Example> pair = {{.input_ids = {1, 2}, .labels = {kIgnore, 2}},
                                     {.input_ids = {1, 3}, .labels = {kIgnore, 3}}};
  EXPECT_THROW(Batches(pair, {.sequences = 2, .packing = true, .grouping = RowGrouping::kPairs}), UserError);
  for (const auto& [use, key] : {std::pair(BatchUse::kTraining, "per_device_train_batch_size: "),
                                 std::pair(BatchUse::kEvaluation, "per_device_eval_batch_size: ")})
    EXPECT_THAT(user_error([&, use = use] {
                  Batches(pair, {.sequences = 2, .grouping = RowGrouping::kWithMismatched, .use = use});
                }),
                testing::StartsWith(key));
}

TEST_F(PreferenceErrors, ASingleRatedRow) {
  const std::vector<Example> one = {{.input_ids = {1, 2}, .labels = {kIgnore, 2}, .source = "rows.jsonl:1"}};
  try {
    const Batches batches(one, {.sequences = 4, .grouping = RowGrouping::kWithMismatched});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "rows.jsonl:1: the loss pairs each prompt with the reply of another row, but this data set has only "
                 "one row; add rows");
  }
}

}  // namespace
}  // namespace fettle
