// Tests labelled rows: one text, two texts, conversations, and labels of every kind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/classes/class_counts.h"
#include "data/classes/settle_labels.h"
#include "data/dataset.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using nlohmann::json;

struct Classes : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer{.adds_bos = true}.open();
  DataSpec spec;
  LabelRequest asked;
  LabelSet labels;  // the labels that the last load() found

  Classes() {
    spec.rows = RowKind::kLabelled;
    spec.cache = "off";
    spec.dataset_dir = folder.path();
  }
  void settle() {
    labels = settle_labels(asked, {}, spec);
    spec.labels = labels;
  }
  // Loads the rows, finds their labels and returns the rows as examples.
  Examples load(const std::string& name, const std::string& text) {
    spec.sets = {folder.write(name, text).string()};
    settle();
    return load_datasets(spec, tokenizer, 0).train;
  }
  Examples load(const std::string& rows) { return load("rows.jsonl", rows); }
  std::vector<std::vector<float>> classes(const std::string& rows) {
    std::vector<std::vector<float>> out;
    const Examples examples = load(rows);
    for (size_t i = 0; i < examples.size(); ++i) out.push_back(examples[static_cast<int64_t>(i)].classes);
    return out;
  }
  std::string text(const Example& example) { return tokenizer.decode(example.input_ids, false); }
  using Lists = std::vector<std::vector<float>>;
  using Names = std::vector<std::string>;
};

TEST_F(Classes, NamesAreSorted) {
  EXPECT_EQ(classes(R"({"text": "a", "label": "spam"}
{"text": "b", "label": "ham"}
{"text": "c", "label": "spam"}
)"),
            (Lists{{1}, {0}, {1}}));
  EXPECT_EQ(labels.id2label, (Names{"ham", "spam"}));
  EXPECT_EQ(labels.size(), 2);
  EXPECT_EQ(labels.problem, Problem::kSingleLabel);
}

TEST_F(Classes, NumbersAreIndicesOrNames) {
  EXPECT_EQ(classes("{\"text\": \"a\", \"labels\": 2}\n{\"text\": \"b\", \"labels\": 0}\n"), (Lists{{2}, {0}}));
  EXPECT_EQ(labels.id2label, (Names{"LABEL_0", "LABEL_1", "LABEL_2"}));
  // Numbers other than 0, 1, 2, ... are names, in numeric order. csv files have numbers as text.
  const Examples stars = load("stars.csv", "sentence,category\ngood,10\nbad,2\nso so,5\n");
  EXPECT_EQ(labels.id2label, (Names{"2", "5", "10"}));
  EXPECT_EQ(stars[0].classes, std::vector<float>{2});
  EXPECT_EQ(text(stars[2]), "<s>so so");
}

TEST_F(Classes, WholeRealsAreLabelsWhereTheRecipeSaysSo) {
  asked.problem = Problem::kSingleLabel;
  EXPECT_EQ(load("a.csv", "text,label\nx,1.0\ny,0.0\n")[0].classes, std::vector<float>{1});
  EXPECT_EQ(labels.size(), 2);
}

TEST_F(Classes, AConversationIsAListOfMessages) {
  for (const char* column : {"conversation", "conversations", "messages"}) {
    const std::string row = fmt::format(R"({{"text": "Hi", "{}": "c-17", "label": )", column);
    const Examples rows = load(row + "1}\n" + row + "0}\n");
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(text(rows[0]), "<s>Hi") << column;
  }
}

TEST_F(Classes, SeveralLabelsPerRow) {
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [\"x\", \"z\"]}\n{\"text\": \"b\", \"label\": []}\n{\"text\": \"c\", "
                    "\"label\": [\"y\"]}\n"),
            (Lists{{1, 0, 1}, {0, 0, 0}, {0, 1, 0}}));
  EXPECT_EQ(labels.problem, Problem::kMultiLabel);
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [0, 0, 1]}\n{\"text\": \"b\", \"label\": [1, 1, 0]}\n"),
            (Lists{{0, 0, 1}, {1, 1, 0}}));
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [3, 1]}\n{\"text\": \"b\", \"label\": [0]}\n"),
            (Lists{{0, 1, 0, 1}, {1, 0, 0, 0}}));
  EXPECT_EQ(load("a.csv", "text,label\nx,\"[\"\"b\"\", \"\"a\"\"]\"\ny,[]\n")[0].classes, (std::vector<float>{1, 1}));
}

// With two labels, the list [0, 1] may contain label numbers or one flag per label. It contains label numbers if
// another row's list can only be label numbers, such as [1].
TEST_F(Classes, ListsAreReadTheSameWayWithinADataSet) {
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [0, 1]}\n{\"text\": \"b\", \"label\": [1]}\n"),
            (Lists{{1, 1}, {0, 1}}));
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [0, 1]}\n{\"text\": \"b\", \"label\": [1, 0]}\n"),
            (Lists{{0, 1}, {1, 0}}));
  // With three labels, [2, 0, 1] has as many entries as flags would have, but the 2 shows that the entries are label
  // numbers. So [1, 0] contains label numbers, too.
  asked.id2label = {"x", "y", "z"};
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": [1, 0]}\n{\"text\": \"b\", \"label\": [2, 0, 1]}\n"),
            (Lists{{1, 1, 0}, {1, 1, 1}}));
}

// Hugging Face's data sets write -1 for a row without a label.
TEST_F(Classes, MinusOneIsNoLabelUnlessItIsAClass) {
  const std::string rows =
      "{\"text\": \"a\", \"label\": -1}\n{\"text\": \"b\", \"label\": 0}\n{\"text\": \"c\", \"label\": 2}\n";
  asked.count = 3;
  spec.labels_optional = true;
  EXPECT_EQ(classes(rows), (Lists{{}, {0}, {2}}));
  EXPECT_EQ(labels.id2label, (Names{"LABEL_0", "LABEL_1", "LABEL_2"}));
  asked.count = {};
  asked.id2label = {"x", "y", "z"};
  EXPECT_EQ(classes(rows), (Lists{{}, {0}, {2}}));
  asked.id2label = {"-1", "0", "2"};
  EXPECT_EQ(classes(rows), (Lists{{0}, {1}, {2}}));
  asked.id2label = {};
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": -1}\n{\"text\": \"b\", \"label\": 0}\n{\"text\": \"c\", "
                    "\"label\": 1}\n"),
            (Lists{{0}, {1}, {2}}));
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": -1}\n{\"text\": \"b\", \"label\": 1}\n"), (Lists{{0}, {1}}));
}

TEST_F(Classes, ListsOfPythonInCells) {
  const Examples rows =
      load("a.csv", "text,label\nx,\"['joy', 'it\\'s']\"\ny,\"[\"\"it's\"\"]\"\nz,\"['joy',]\"\nu,[]\n");
  EXPECT_EQ(labels.id2label, (Names{"it's", "joy"}));
  EXPECT_EQ(rows[0].classes, (std::vector<float>{1, 1}));
  EXPECT_EQ(rows[1].classes, (std::vector<float>{1, 0}));
  EXPECT_EQ(rows[2].classes, (std::vector<float>{0, 1}));
  load("b.csv", "text,label\nx,[other]\ny,[SEP x]\n");
  EXPECT_EQ(labels.id2label, (Names{"[SEP x]", "[other]"})) << "names may be in brackets";
}

TEST_F(Classes, PairsOfQuestionsAndReplies) {
  for (const auto& [first, second] : {std::pair{"question", "answer"},
                                      {"prompt", "response"},
                                      {"prompt", "completion"},
                                      {"query", "response"},
                                      {"sentence_A", "sentence_B"}}) {
    const std::string row = fmt::format("{{\"{}\": \"q\", \"{}\": \"a\", \"label\": ", first, second);
    EXPECT_EQ(text(load(row + "0}\n" + row + "1}\n")[0]), "<s>q<s>a") << first;
  }
}

TEST_F(Classes, DigitsInTextAreNamesExceptInTableCells) {
  EXPECT_EQ(classes("{\"text\": \"a\", \"label\": \"3.11\"}\n{\"text\": \"b\", \"label\": \"3.9\"}\n"
                    "{\"text\": \"c\", \"label\": \"007\"}\n{\"text\": \"d\", \"label\": \"7\"}\n"),
            (Lists{{1}, {2}, {0}, {3}}));
  EXPECT_EQ(labels.problem, Problem::kSingleLabel);
  EXPECT_EQ(labels.id2label, (Names{"007", "3.11", "3.9", "7"}));
  EXPECT_EQ(load("a.csv", "text,label\nx, 3.5 \ny,3\n")[0].classes, std::vector<float>{3.5});
  EXPECT_EQ(labels.problem, Problem::kRegression);
  load("b.csv", "text,label\nx, up \ny,up\nz,down\nu,7\n");
  EXPECT_EQ(labels.id2label, (Names{"7", "down", "up"}));
}

TEST_F(Classes, Regression) {
  EXPECT_EQ(classes("{\"text\": \"a\", \"score\": 2}\n{\"text\": \"b\", \"score\": 0.5}\n"), (Lists{{2}, {0.5}}));
  EXPECT_EQ(labels.problem, Problem::kRegression);
  EXPECT_EQ(labels.size(), 1);
  EXPECT_EQ(classes("{\"text\": \"a\", \"score\": [2, 0.25]}\n"), (Lists{{2, 0.25}}));
  EXPECT_EQ(load("a.csv", "text,score\nx,1.0\ny,3\n")[1].classes, std::vector<float>{3});
}

// With two labels, [0, 1] may be the numbers of both labels, or one flag per label. Fettle reads all data sets in the
// same way.
TEST_F(Classes, ListsAreReadAlikeInAllDataSets) {
  const std::string numbers = R"({"text": "a", "label": [0]})"
                              "\n"
                              R"({"text": "b", "label": [0, 1]})"
                              "\n";
  const std::string flags = R"({"text": "a", "label": [0, 0]})"
                            "\n"
                            R"({"text": "b", "label": [0, 1]})"
                            "\n";
  const std::string either = R"({"text": "c", "label": [0, 1]})"
                             "\n";
  for (const auto& [train, wanted] : {std::pair{numbers, Lists{{1, 1}}}, {flags, Lists{{0, 1}}}, {either, {{0, 1}}}}) {
    asked.count = 2;
    asked.problem = Problem::kMultiLabel;
    spec.sets = {folder.write("train.jsonl", train).string()};
    spec.eval_sets = {folder.write("eval.jsonl", either).string()};
    settle();
    const Datasets data = load_datasets(spec, tokenizer, 0);
    EXPECT_EQ(Lists{data.eval[0].classes}, wanted) << train;
    // `eval` knows the labels, so it does not read the training rows, which may be gone.
    std::filesystem::remove(spec.sets[0]);
    asked.id2label = labels.id2label;
    EXPECT_NO_THROW(settle());
    asked = {};
  }
}

TEST_F(Classes, LabelsOfModelOrRecipeTakePrecedenceOverRows) {
  const json config = {{"architectures", {"BertForSequenceClassification"}},
                       {"id2label", {{"1", "good"}, {"0", "bad"}}},
                       {"problem_type", "single_label_classification"}};
  spec.sets = {folder.write("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n").string()};
  auto names = [&](const std::vector<std::string>& adapters) {
    return settle_labels(asked, taught_labels(adapters, config, "config.json"), spec).id2label;
  };
  EXPECT_EQ(names({}), (Names{"bad", "good"}));
  // An adapter's own label file takes precedence over config.json.
  folder.write("classifier.json",
               R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "x", "1": "y"}})");
  EXPECT_EQ(names({folder.path().string()}), (Names{"x", "y"}));
  asked.id2label = {"no", "yes"};
  EXPECT_EQ(names({folder.path().string()}), (Names{"no", "yes"}));
  // The id2label in the config.json of a language model does not count.
  const json plain = {{"architectures", {"BertModel"}}, {"id2label", {{"0", "x"}}}};
  EXPECT_EQ(settle_labels({.count = 4}, taught_labels({}, plain, "config.json"), {}).id2label, default_labels(4));
}

TEST_F(Classes, TwoTextsAndConversations) {
  const Examples pair = load(
      "{\"premise\": \"ab\", \"hypothesis\": \"c\", \"label\": 0}\n{\"premise\": \"d\", "
      "\"hypothesis\": \"e\", \"label\": 1}\n");
  EXPECT_EQ(text(pair[0]), "<s>ab<s>c");
  EXPECT_EQ(pair[0].second_text, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(pair[0].labels, std::vector<int32_t>(5, kIgnore));
  EXPECT_EQ(pair[0].trained_tokens(), 1);
  spec.template_name = "none";
  const Examples chat = load(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"label\": 1}\n"
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"x\"}, {\"from\": \"gpt\", \"value\": "
      "\"y\"}], \"label\": 0}\n");
  EXPECT_NE(text(chat[0]).find("hello"), std::string::npos);
  EXPECT_EQ(chat.size(), 2u);
}

TEST_F(Classes, AnEntryMayNameOnlyTheLabelOfConversations) {
  spec.template_name = "none";
  const std::string file = folder
                               .write("rows.jsonl", R"({"messages": [{"role": "user", "content": "a"}], "kind": "x"}
{"messages": [{"role": "user", "content": "b"}], "kind": "y"})")
                               .string();
  spec.sets = {R"({"file_name": ")" + file + R"(", "columns": {"label": "kind"}})"};
  settle();
  EXPECT_EQ(labels.id2label, (Names{"x", "y"}));
  EXPECT_EQ(load_datasets(spec, tokenizer, 0).train.size(), 2u);
}

TEST_F(Classes, ATextMayBeTheJsonTextOfMessages) {
  const Examples rows = load(R"({"prompt": "[{\"role\": \"user\", \"content\": \"hi\"}]", "label": "ok"})"
                             "\n"
                             R"({"prompt": "bomb", "label": "bad"})");
  EXPECT_EQ(text(rows[0]), R"(<s>[{"role": "user", "content": "hi"}])");
}

TEST_F(Classes, ARowGivesVariablesToItsTemplate) {
  tokenizer = TestTokenizer{.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ style }}"}.open();
  const Examples chat = load(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"label\": 1}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"label\": 0, \"chat_template_kwargs\": "
      "{\"style\": \"b\"}}\n");
  EXPECT_EQ(text(chat[0]), "a");
  EXPECT_EQ(text(chat[1]), "ab");
}

TEST_F(Classes, ColumnsAreNamedByDatasetInfo) {
  folder.write("rows.csv", "kind,title,body\nk1,t,b\nk2,u,c\n");
  folder.write(
      "dataset_info.json",
      R"({"mine": {"file_name": "rows.csv", "columns": {"text": "title", "text_pair": "body", "label": "kind"}}})");
  spec.sets = {"mine"};
  settle();
  const Datasets data = load_datasets(spec, tokenizer, 0);
  EXPECT_EQ(text(data.train[1]), "<s>u<s>c");
  EXPECT_EQ(data.train[1].classes, std::vector<float>{1});
}

TEST_F(Classes, LongTextsAreCutWithinTheSpecialTokens) {
  spec.cutoff_len = 6;
  const Examples rows = load(
      "{\"sentence1\": \"abcdef\", \"sentence2\": \"xy\", \"label\": 0}\n{\"text\": \"abcdefgh\", "
      "\"label\": 1}\n");
  EXPECT_EQ(text(rows[0]), "<s>ab<s>xy");
  EXPECT_EQ(text(rows[1]), "<s>abcde");
}

TEST_F(Classes, RowsWithoutALabelAreSkippedOrKept) {
  const std::string file =
      folder
          .write("a.jsonl",
                 "{\"text\": \"a\", \"label\": -100}\n{\"text\": \"b\", \"label\": \"x\"}\n{\"text\": \"c\", "
                 "\"label\": null}\n{\"text\": \"d\", \"label\": \"y\"}\n")
          .string();
  spec.sets = {file};
  spec.on_bad_row = OnBadRow::kSkip;
  settle();
  const Datasets skipped = load_datasets(spec, tokenizer, 0);
  EXPECT_EQ(skipped.train.size(), 2u);
  EXPECT_EQ(skipped.report.bad_rows, 2);
  spec.labels_optional = true;
  const Datasets kept = load_datasets(spec, tokenizer, 0);
  ASSERT_EQ(kept.train.size(), 4u);
  EXPECT_TRUE(kept.train[0].classes.empty());
  EXPECT_EQ(kept.report.trained_tokens, 2);
  const ClassCounts counts = count_classes(kept.train, labels);
  EXPECT_EQ(counts.unlabelled, 2);
  EXPECT_EQ(counts.rows, (std::vector<int64_t>{1, 1}));
}

TEST_F(Classes, TheReportCountsThem) {
  const Examples rows = load(
      "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n{\"text\": \"c\", "
      "\"label\": \"y\"}\n");
  const ClassCounts counts = count_classes(rows, labels);
  EXPECT_EQ(format_classes(counts, labels), "2, one per row: y 2, x 1; always predicting y is right in 66.7 %");
  EXPECT_EQ(classes_json(counts, labels)["rows"]["x"], 1);
}

}  // namespace
}  // namespace fettle
