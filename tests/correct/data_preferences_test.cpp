#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "data/batches/batches.h"
#include "data/dataset.h"
#include "data/preferences.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

std::string show(const Tokenizer& tokenizer, const Example& example) {
  std::string out;
  for (size_t i = 0; i < example.input_ids.size(); ++i) {
    const std::string token = tokenizer.decode(std::vector{example.input_ids[i]}, false);
    out += example.labels[i] == kIgnore ? token : "[" + token + "]";
  }
  size_t at = 0;
  while ((at = out.find("][", at)) != std::string::npos) out.erase(at, 2);
  return (example.preference == Preference::kChosen     ? "+ "
          : example.preference == Preference::kRejected ? "- "
                                                        : "") +
         out;
}

struct Preferences : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;

  Preferences() {
    spec.rows = RowKind::kPreferencePairs;
    spec.template_name = "none";
    spec.dataset_dir = folder.path();
    spec.cache = "off";
  }
  Datasets load() { return load_datasets(spec, tokenizer, tokenizer.vocab_size()); }
  std::vector<std::string> rows(const std::string& text, const std::string& info = "") {
    spec.sets = {folder.write("rows.jsonl", text).string()};
    if (!info.empty()) {
      folder.write("dataset_info.json", R"({"mine": {"file_name": "rows.jsonl", )" + info + "}}");
      spec.sets = {"mine"};
    }
    std::vector<std::string> out;
    const Examples train = load().train;
    for (size_t i = 0; i < train.size(); ++i) out.push_back(show(tokenizer, train[static_cast<int64_t>(i)]));
    return out;
  }
};

using Rows = std::vector<std::string>;

TEST_F(Preferences, PairsOfEveryFormatAreTheSame) {
  const Rows pair = {"+ Q[yes</s>]", "- Q[no</s>]"};
  EXPECT_EQ(rows(R"({"prompt": "Q", "chosen": "yes", "rejected": "no"})"), pair);
  EXPECT_EQ(
      rows(
          R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]})"),
      pair);
}

TEST_F(Preferences, PairsWithoutAPromptShareTheirBeginning) {
  EXPECT_EQ(
      rows(
          R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "yes"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "no"}]})"),
      (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
}

// In the data sets UltraFeedback and HH, each reply begins with the turns of the prompt. The prompt is also in a column
// of its own, as text or as turns.
TEST_F(Preferences, RepliesMayRepeatThePrompt) {
  const std::string replies =
      R"("chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "yes"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "no"}]})";
  const Rows pair = {"+ Q[yes</s>]", "- Q[no</s>]"};
  EXPECT_EQ(rows(R"({"prompt": "Q", )" + replies), pair);
  EXPECT_EQ(rows(R"({"prompt": [{"role": "user", "content": "Q"}], )" + replies), pair);
  EXPECT_EQ(rows(R"({"prompt": "Q", "system": "S", )" + replies), (Rows{"+ SQ[yes</s>]", "- SQ[no</s>]"}));
}

// In Parquet files, the fields of a message may have another order in each column.
TEST_F(Preferences, TheOrderOfAMessagesFieldsDoesNotCount) {
  const auto turns = [](const char* reply) {
    return fmt::format(
        R"([{{"content": "S", "role": "system"}}, {{"content": "Q", "role": "user", "id": 7}}, {{"content": "{}", "role": "assistant"}}])",
        reply);
  };
  const std::string replies = R"(, "chosen": )" + turns("yes") + R"(, "rejected": )" + turns("no") + "}",
                    prompt = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"})";
  const Rows pair = {"+ SQ[yes</s>]", "- SQ[no</s>]"};
  EXPECT_EQ(rows(R"({"prompt": )" + prompt + "]" + replies), pair);
  EXPECT_EQ(rows(R"({"messages": )" + prompt + "]" + replies), pair);
  EXPECT_EQ(rows(R"({"messages": )" + prompt + R"(, {"role": "assistant", "content": "yes"}])" + replies), pair);
}

TEST_F(Preferences, TheOrderOfACallsFieldsDoesNotCount) {
  const auto reply = [](const char* call, const char* text) {
    return nlohmann::ordered_json::parse(fmt::format(
        R"([{{"role": "user", "content": "Q"}}, {{"role": "assistant", "tool_calls": [{{"function": {}}}]}},
            {{"role": "tool", "content": "7"}}, {{"role": "assistant", "content": "{}"}}])",
        call, text));
  };
  const Sample pair = read_pair({{"chosen", reply(R"({"name": "f", "arguments": {"x": 1, "y": 2}})", "yes")},
                                 {"rejected", reply(R"({"arguments": {"y": 2, "x": 1}, "name": "f"})", "no")}},
                                {});
  const std::vector<Message>& messages = pair.conversation.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_FALSE(messages[1].train) << "the call is part of the prompt";
  EXPECT_TRUE(messages[3].train);
}

TEST_F(Preferences, WholeConversationsMayHaveTheNamesOfTheEntry) {
  EXPECT_EQ(
      rows(
          R"({"input": "Q", "chosen": [{"speaker": "U", "text": "Q"}, {"speaker": "A", "text": "yes"}], "rejected": [{"speaker": "U", "text": "Q"}, {"speaker": "A", "text": "no"}]})",
          R"("tags": {"role_tag": "speaker", "content_tag": "text", "user_tag": "U", "assistant_tag": "A"})"),
      (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
}

// UltraFeedback has a copy of the chosen conversation in `messages`. Capybara has pairs of input and output in
// `conversation`.
TEST_F(Preferences, WholeConversationsWinOverOtherColumns) {
  const std::string chosen = R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "yes"}])";
  const std::string replies =
      R"("chosen": )" + chosen +
      R"(, "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "no"}])";
  const Rows pair = {"+ Q[yes</s>]", "- Q[no</s>]"};
  EXPECT_EQ(rows(R"({"prompt": "Q", "messages": )" + chosen + ", " + replies + "}"), pair);
  EXPECT_EQ(rows(R"({"prompt": "Q", "conversation": [{"input": "Q", "output": "yes"}], )" + replies + "}"), pair);
  EXPECT_EQ(
      rows(
          R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "yes"}], "chosen": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "yes"}], "rejected": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "no"}]})"),
      pair);
  // Replies may also go on with further turns after a complete conversation.
  EXPECT_EQ(
      rows(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "chosen": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "yes"}], "rejected": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "no"}]})"),
      (Rows{"+ ab</s>c[yes</s>]", "- ab</s>c[no</s>]"}));
}

TEST_F(Preferences, ThePromptMayBeTheSystemTurnAlone) {
  EXPECT_EQ(
      rows(
          R"({"messages": [{"role": "system", "content": "S"}], "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "yes"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "no"}]})"),
      (Rows{"+ SQ[yes</s>]", "- SQ[no</s>]"}));
}

TEST_F(Preferences, TurnsMayHaveFieldsThatTemplatesDoNotUse) {
  EXPECT_EQ(
      rows(
          R"({"chosen": [{"from": "human", "value": "Q", "id": "1"}, {"from": "gpt", "value": "yes", "id": "2"}], "rejected": [{"from": "human", "value": "Q", "id": "3"}, {"from": "gpt", "value": "no", "id": "4"}]})"),
      (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
}

TEST_F(Preferences, TextsOfAnthropicsDataSetsAreConversations) {
  EXPECT_EQ(
      rows(
          R"({"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c d\n\nAssistant: yes", "rejected": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c d\n\nAssistant: no\n\nno"})"),
      (Rows{"+ ab</s>c d[yes</s>]", "- ab</s>c d[no\n\nno</s>]"}));
  EXPECT_EQ(
      rows(
          R"({"query": "Q", "chosen": "\n\nHuman: Q\n\nAssistant: yes", "rejected": "\n\nHuman: Q\n\nAssistant: no"})"),
      (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}))
      << "the texts have the question, too";
}

TEST_F(Preferences, ThePromptMayBeAQuestion) {
  const Rows pair = {"+ SQ[yes</s>]", "- SQ[no</s>]"};
  EXPECT_EQ(rows(R"({"system": "S", "question": "Q", "chosen": "yes", "rejected": "no"})"), pair);
  EXPECT_EQ(rows(R"({"system": "S", "input": "Q", "chosen": "yes", "rejected": "no"})"), pair);
  EXPECT_EQ(rows(R"({"system": "S", "query": "Q", "chosen": "yes", "rejected": "no"})"), pair);
  EXPECT_EQ(rows(R"({"query": "Q", "chosen": "It is so", "rejected": "It is not"})"),
            (Rows{"+ Q[It is so</s>]", "- Q[It is not</s>]"}))
      << "what both replies begin with is no prompt";
  EXPECT_EQ(rows(R"({"question": "", "input": "Q", "context": " ", "images": [], "chosen": "yes", "rejected": "no"})"),
            (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}))
      << "columns without content do not count";
}

// An entry that names both replies says that the other columns are not part of the prompt.
// nvidia/When2Call: `messages` end with the prompt, although `rejected_response` is also a column of ms-swift's pairs.
TEST_F(Preferences, TheRepliesMayBeCalledResponses) {
  const Rows pair = {"+ Q[yes</s>]", "- Q[no</s>]"};
  const std::string prompt = R"({"messages": [{"role": "user", "content": "Q"}], )";
  const std::string texts = prompt + R"("chosen_response": "yes", "rejected_response": "no"})";
  const std::string turns = prompt + R"("chosen_response": {"role": "assistant", "content": "yes"},
                                        "rejected_response": {"role": "assistant", "content": "no"}})";
  for (const std::string& row : {texts, turns}) {
    std::string line = row;
    std::erase(line, '\n');
    EXPECT_EQ(rows(line), pair);
    EXPECT_EQ(
        rows(line,
             R"("columns": {"messages": "messages", "chosen": "chosen_response", "rejected": "rejected_response"})"),
        pair);
  }
  const std::string other = prompt + R"("good": "yes", "rejected_response": "no"})";
  EXPECT_EQ(rows(other, R"("columns": {"messages": "messages", "chosen": "good", "rejected": "rejected_response"})"),
            pair);
}

TEST_F(Preferences, AnEntryThatNamesBothRepliesLeavesOutOtherColumns) {
  const std::string replies = R"("columns": {"chosen": "chosen", "rejected": "rejected"})";
  for (const char* question : {"question", "input", "query", "instruction"})
    EXPECT_EQ(rows(fmt::format(R"({{"system": "S", "{}": "Q", "context": "c", "chosen": "yes", "rejected": "no"}})",
                               question),
                   replies),
              (Rows{"+ SQ[yes</s>]", "- SQ[no</s>]"}))
        << question;
  EXPECT_EQ(rows(R"({"question": "Q", "context": "S", "chosen": "yes", "rejected": "no"})",
                 R"("columns": {"system": "context"})"),
            (Rows{"+ SQ[yes</s>]", "- SQ[no</s>]"}));
  EXPECT_EQ(rows(R"({"problem": "Q", "chosen": "It is so", "rejected": "It is not"})", replies),
            (Rows{"+ It is[ so</s>]", "- It is[ not</s>]"}));
}

TEST_F(Preferences, ThePromptMayHaveAHistory) {
  for (const char* prompt : {"prompt", "question", "input", "query", "instruction"})
    EXPECT_EQ(rows(fmt::format(R"({{"{}": "Q", "history": [["a", "b"]], "chosen": "yes", "rejected": "no"}})", prompt)),
              (Rows{"+ ab</s>Q[yes</s>]", "- ab</s>Q[no</s>]"}))
        << prompt;
}

TEST_F(Preferences, RepliesBesideAPromptMayBeSingleMessages) {
  const std::string replies =
      R"("chosen": {"role": "assistant", "content": "yes"}, "rejected": {"role": "assistant", "content": "no"}})";
  const Rows pair = {"+ Q[yes</s>]", "- Q[no</s>]"};
  EXPECT_EQ(rows(R"({"prompt": "Q", )" + replies), pair);
  EXPECT_EQ(rows(R"({"prompt": [{"role": "user", "content": "Q"}], )" + replies), pair);
  EXPECT_EQ(rows(R"({"question": "Q", )" + replies), pair);
}

TEST_F(Preferences, TheConversationBeforeTheRepliesIsNotTrained) {
  EXPECT_EQ(
      rows(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "chosen": {"role": "assistant", "content": "yes"}, "rejected": "no"})"),
      (Rows{"+ ab</s>c[yes</s>]", "- ab</s>c[no</s>]"}));
}

TEST_F(Preferences, RankingInDatasetInfoLikeLlamaFactory) {
  EXPECT_EQ(
      rows(
          R"({"instruction": "Q", "input": "x", "chosen": "yes", "rejected": "no"})",
          R"("ranking": true, "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"})"),
      (Rows{"+ Q\nx[yes</s>]", "- Q\nx[no</s>]"}));
  EXPECT_EQ(
      rows(
          R"({"conversations": [{"from": "human", "value": "Q"}], "good": {"from": "gpt", "value": "yes"}, "bad": {"from": "gpt", "value": "no"}})",
          R"("ranking": true, "formatting": "sharegpt", "columns": {"messages": "conversations", "chosen": "good", "rejected": "bad"})"),
      (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
  // The entry names only the replies. The prompt is detected.
  EXPECT_EQ(rows(R"({"messages": [{"role": "user", "content": "Q"}], "good": "yes", "bad": "no"})",
                 R"("ranking": true, "columns": {"chosen": "good", "rejected": "bad"})"),
            (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
  // The format is detected from the columns alone.
  EXPECT_EQ(rows(R"({"instruction": "Q", "chosen": "yes", "rejected": "no"})"), (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
}

// TRL's form without a prompt. The space before the first difference belongs to the replies.
TEST_F(Preferences, TwoTextsWithoutAPromptBeginWithIt) {
  EXPECT_EQ(rows(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})"),
            (Rows{"+ The sky is[ blue.</s>]", "- The sky is[ green.</s>]"}));
  EXPECT_EQ(
      rows(
          R"({"prompt_id": "1", "prompt": null, "system": "S", "chosen": "It is so", "rejected": "It is not", "annotator": "A7", "comment": "good", "order": ["a", "b"]})"),
      (Rows{"+ SIt is[ so</s>]", "- SIt is[ not</s>]"}))
      << "as in TRL, columns of other names do not count";
  const Sample accents = read_pair({{"chosen", "aé"}, {"rejected", "aè"}}, {});  // the letters share their first byte
  EXPECT_EQ(accents.conversation.messages.at(0).content, "a");
  EXPECT_EQ(accents.conversation.messages.at(1).content, "é");
}

TEST_F(Preferences, APairIsTwoRatedReplies) {
  spec.rows = RowKind::kRatedReplies;
  const std::string pair = R"({"prompt": "Q", "chosen": "yes", "rejected": "no"})";
  EXPECT_EQ(rows(pair), (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
  EXPECT_EQ(rows(pair, R"("ranking": true)"), (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
  EXPECT_EQ(load().report.examples, 2);
  EXPECT_EQ(rows(R"({"chosen": "It is so", "rejected": "It is not"})"),
            (Rows{"+ It is[ so</s>]", "- It is[ not</s>]"}));
}

TEST_F(Preferences, ARatedCompletionIsTrainedWhole) {
  spec.rows = RowKind::kRatedReplies;
  const std::string turns =
      R"([{"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}])";
  for (const char* prompt : {R"("Q")", R"([{"role": "user", "content": "Q"}])"})
    EXPECT_EQ(rows(R"({"label": true, "prompt": )" + std::string(prompt) + R"(, "completion": )" + turns + "}"),
              Rows{"+ Q[a</s>]r[b</s>]"});
  EXPECT_EQ(rows(R"({"label": true, "messages": [{"role": "user", "content": "Q"}, )" + turns.substr(1) + "}"),
            Rows{"+ Qa</s>r[b</s>]"})
      << "of other conversations, only the last reply is rated";
}

TEST_F(Preferences, PairsAreCutOrDroppedTogether) {
  const std::string text =
      "{\"prompt\": \"Q\", \"chosen\": \"yes\", \"rejected\": \"0123456789\"}\n"
      "{\"prompt\": \"R\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
      "{\"prompt\": \"S\", \"chosen\": \"same\", \"rejected\": \"same\"}\n";
  spec.cutoff_len = 6;
  EXPECT_EQ(rows(text), (Rows{"+ Q[yes</s>]", "- Q[01234]", "+ R[a</s>]", "- R[b</s>]"}));
  const DataReport cut = load().report;
  EXPECT_EQ(cut.truncated, 1);
  EXPECT_EQ(cut.dropped, 1);
  EXPECT_EQ(cut.examples, 2);
  EXPECT_EQ(cut.trained_by_role.at("chosen"), 4 + 2);
  EXPECT_EQ(cut.trained_by_role.at("rejected"), 5 + 2);
  spec.overlength = Overlength::kDrop;
  EXPECT_EQ(rows(text), (Rows{"+ R[a</s>]", "- R[b</s>]"}));
  EXPECT_EQ(load().report.dropped, 2);
}

TEST_F(Preferences, PairsThatAreEqualAfterTheCutAreDropped) {
  spec.cutoff_len = 6;
  EXPECT_EQ(rows("{\"prompt\": \"Q\", \"chosen\": \"012345\", \"rejected\": \"01234x\"}\n"
                 "{\"prompt\": \"R\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"),
            (Rows{"+ R[a</s>]", "- R[b</s>]"}));
  EXPECT_EQ(load().report.dropped, 1);
}

TEST_F(Preferences, RatedRepliesOfEveryFormat) {
  spec.rows = RowKind::kRatedReplies;
  EXPECT_EQ(rows("{\"prompt\": \"Q\", \"completion\": \"yes\", \"label\": true}\n"
                 "{\"prompt\": \"Q\", \"completion\": \"no\", \"label\": false}\n"),
            (Rows{"+ Q[yes</s>]", "- Q[no</s>]"}));
  EXPECT_EQ(rows(R"({"instruction": "Q", "output": "yes", "kto_tag": true})",
                 R"("columns": {"prompt": "instruction", "response": "output", "kto_tag": "kto_tag"})"),
            (Rows{"+ Q[yes</s>]"}));
  EXPECT_EQ(
      rows(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "no"}], "label": false})"),
      (Rows{"- ab</s>c[no</s>]"}));
  // argilla/kto-mix-15k
  EXPECT_EQ(
      rows(
          R"({"prompt": "a", "completion": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "no"}], "label": false})"),
      (Rows{"- ab</s>c[no</s>]"}));
}

TEST_F(Preferences, AnEntryMayNameOnlyTheRating) {
  spec.rows = RowKind::kRatedReplies;
  for (const char* rating : {R"("columns": {"kto_tag": "good"})", R"("columns": {"label": "good"})"}) {
    EXPECT_EQ(
        rows(
            R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "no"}], "good": false})",
            rating),
        Rows{"- Q[no</s>]"})
        << rating;
    EXPECT_EQ(rows(R"({"question": "Q", "answer": "yes", "good": true})", rating), Rows{"+ Q[yes</s>]"}) << rating;
  }
}

// An entry may name the label of a class. In stage kto, the same label is a rating.
TEST_F(Preferences, ALabelThatTheEntryNamesIsARatingOnlyForRatedReplies) {
  const DataSource source{.columns = {{"label", "is_spam"}}};
  const nlohmann::ordered_json row = {{"prompt", "Q"}, {"completion", "yes"}, {"is_spam", false}},
                               number = {{"prompt", "Q"}, {"completion", "yes"}, {"is_spam", 0}};
  EXPECT_EQ(read_unrated(row, source).conversation.messages.size(), 2u);
  for (const auto& rated : {row, number}) {
    EXPECT_EQ(read_rated(rated, source).preference, Preference::kRejected);
    EXPECT_TRUE(has_rating_columns(rated, source));
  }
}

// Cells of CSV files are texts. Excel writes TRUE and FALSE.
TEST_F(Preferences, ARatingMayBeAText) {
  for (const char* column : {"label", "kto_tag"})
    for (const auto& [text, good] : {std::pair{"True", true}, {"TRUE", true}, {"false", false}, {"FALSE ", false}}) {
      const nlohmann::ordered_json row = {{"question", "Q"}, {"answer", "yes"}, {column, text}};
      EXPECT_TRUE(has_rating_columns(row, {})) << column << text;
      EXPECT_EQ(read_rated(row, {}).preference, good ? Preference::kChosen : Preference::kRejected) << column << text;
    }
  const nlohmann::ordered_json of_class = {{"question", "Q"}, {"answer", "yes"}, {"label", "spam"}};
  EXPECT_FALSE(has_rating_columns(of_class, {}));
}

TEST_F(Preferences, TheRatingIsNoPartOfTheQuestion) {
  const std::string asked = R"({"question": "Q", "answer": "yes", )";
  for (const RowKind kind : {RowKind::kRatedReplies, RowKind::kConversations}) {
    spec.rows = kind;
    const Rows reply = {std::string(kind == RowKind::kRatedReplies ? "+ " : "") + "Q[yes</s>]"};
    for (const char* rating : {R"("label": true})", R"("kto_tag": true})", R"("kto_tag": 1})"})
      EXPECT_EQ(rows(asked + rating), reply) << rating;
  }
  spec.rows = RowKind::kRatedReplies;
  EXPECT_EQ(rows(asked + R"("label": 0})"), Rows{"- Q[yes</s>]"});
  EXPECT_EQ(rows(asked + R"("good": false})",
                 R"("columns": {"prompt": "question", "response": "answer", "kto_tag": "good"})"),
            Rows{"- Q[yes</s>]"});
}

TEST_F(Preferences, PairsStayTogetherWhenRowsAreSelected) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += fmt::format("{{\"prompt\": \"{}:\", \"chosen\": \"yes{}\", \"rejected\": \"no{}\"}}\n", i, i, i);
  spec.val_size = 0.25;
  rows(text, R"("num_samples": 50)");
  const Datasets data = load();
  ASSERT_EQ(data.train.size() + data.eval.size(), 100u);
  EXPECT_EQ(data.eval.size(), 26u);
  for (const Examples* part : {&data.train, &data.eval})
    for (int64_t i = 0; i < static_cast<int64_t>(part->size()); i += 2) {
      EXPECT_EQ(part->source(i), part->source(i + 1));
      EXPECT_EQ(part->preference(i), Preference::kChosen);
      EXPECT_EQ(part->preference(i + 1), Preference::kRejected);
    }
  const Batches batches(data.train,
                        {.micro_batches = 2, .sequences = 6, .max_length = 32, .grouping = RowGrouping::kPairs});
  EXPECT_EQ(batches.groups(), 37);
  EXPECT_EQ(batches.steps_per_epoch(), 7);
  std::multiset<std::string> seen;
  for (int64_t step = 0; step < 7; ++step) {
    const Batch batch = batches.at(step);
    const auto preferences = batch.preferences.as<int32_t>();
    for (size_t r = 0; r < 12; r += 2) {
      EXPECT_EQ(batch.sources[r], batch.sources[r + 1]);
      EXPECT_EQ(preferences[r], batch.sources[r].empty() ? 0 : 1);
      EXPECT_EQ(preferences[r + 1], batch.sources[r].empty() ? 0 : 2);
      if (!batch.sources[r].empty()) seen.insert(batch.sources[r]);
    }
  }
  EXPECT_EQ(seen.size(), 37u);
}

TEST_F(Preferences, APairOfRatedRepliesIsOneRow) {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += fmt::format("{{\"prompt\": \"{}:\", \"chosen\": \"yes{}\", \"rejected\": \"no{}\"}}\n", i, i, i);
  spec.rows = RowKind::kRatedReplies;
  spec.val_size = 4;
  rows(text);
  const Datasets data = load();
  ASSERT_EQ(data.eval.size(), 8u);
  for (const Examples* part : {&data.train, &data.eval})
    for (int64_t i = 0; i < static_cast<int64_t>(part->size()); i += 2) EXPECT_EQ(part->source(i), part->source(i + 1));
}

TEST_F(Preferences, TheMismatchedReplyIsOfAnotherRowThanThePair) {
  spec.rows = RowKind::kRatedReplies;
  const std::string pair = R"({"prompt": "Q", "chosen": "yes", "rejected": "no"})";
  const BatchSpec in_order{.sequences = 4, .max_length = 8, .grouping = RowGrouping::kWithMismatched, .shuffle = false};
  rows(pair + "\n" + R"({"prompt": "R", "completion": "so", "label": true})");
  const Batches batches(load().train, in_order);
  const Batch batch = batches.at(0);
  const int64_t length = batch.tokens.shape().dims[2];
  for (const int64_t mismatched : {1, 3})
    EXPECT_EQ(tokenizer.decode(std::vector(batch.tokens.as<int32_t>().begin() + mismatched * length,
                                           batch.tokens.as<int32_t>().begin() + mismatched * length + 3),
                               false),
              "Qso");
  rows(pair);
  EXPECT_THROW(Batches(load().train, in_order), UserError) << "the data set has only one row";
}

TEST_F(Preferences, MismatchedRowsHaveTheNextRowsReply) {
  spec.rows = RowKind::kRatedReplies;
  rows(
      "{\"prompt\": \"Q\", \"completion\": \"yes\", \"label\": true}\n"
      "{\"prompt\": \"RR\", \"completion\": \"no\", \"label\": false}\n"
      "{\"prompt\": \"S\", \"completion\": \"maybe\", \"label\": true}\n");
  spec.cutoff_len = 8;
  const Batches batches(load().train,
                        {.sequences = 4, .max_length = 8, .grouping = RowGrouping::kWithMismatched, .shuffle = false});
  ASSERT_EQ(batches.steps_per_epoch(), 2);
  auto text = [&](const Batch& batch, int64_t row) {
    const int64_t T = batch.tokens.shape().dims[2];
    Example example;
    for (int64_t t = 0; t < T; ++t) {
      if (batch.segments.as<int32_t>()[row * T + t] == 0) break;
      example.input_ids.push_back(batch.tokens.as<int32_t>()[row * T + t]);
      example.labels.push_back(t == 0 ? kIgnore : batch.targets.as<int32_t>()[row * T + t - 1]);
    }
    return show(tokenizer, example);
  };
  const Batch first = batches.at(0), last = batches.at(1);
  EXPECT_EQ(text(first, 0), "Q[yes</s>]");
  EXPECT_EQ(text(first, 1), "Q[no</s>]");
  EXPECT_EQ(text(first, 2), "RR[no</s>]");
  EXPECT_EQ(text(first, 3), "RR[yes</s>]");
  EXPECT_EQ(first.trained_tokens, 4 + 3 + 3 + 4);
  EXPECT_EQ(text(last, 0), "S[maybe</s>]");
  EXPECT_EQ(text(last, 1), "S[yes</s>]");  // the step has no other row, so the reply of the data set's next row is used
  EXPECT_EQ(text(last, 2), "");
  EXPECT_EQ(last.preferences.as<int32_t>()[0], 1);
}

TEST_F(Preferences, NoMismatchedRowHasItsOwnReplyInAnyEpoch) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 5; ++i)
    examples.push_back({.input_ids = {1, 10 + i, 20 + i}, .labels = {kIgnore, kIgnore, 20 + i}});
  const Batches batches(examples, {.sequences = 4, .max_length = 8, .grouping = RowGrouping::kWithMismatched});
  ASSERT_EQ(batches.steps_per_epoch(), 3);
  for (int64_t step = 0; step < 12; ++step) {
    const Batch batch = batches.at(step);
    const auto tokens = batch.tokens.as<int32_t>();
    for (int64_t row = 1; row < 4; row += 2) {
      const int64_t at = row * batch.tokens.shape().dims[2];
      if (batch.segments.as<int32_t>()[at] == 0) continue;
      EXPECT_NE(tokens[at + 1] + 10, tokens[at + 2]) << "step " << step << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace fettle
