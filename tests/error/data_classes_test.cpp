#include <gtest/gtest.h>

#include "base/error.h"
#include "data/classes/settle_labels.h"
#include "data/dataset.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using nlohmann::json;

struct ClassErrors : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;
  LabelRequest asked;
  std::vector<std::string> adapters;

  ClassErrors() {
    spec.rows = RowKind::kLabelled;
    spec.cache = "off";
  }
  void expect(const std::vector<std::string>& rows, const std::string& part, const json& config = json::object(),
              const std::string& name = "a.jsonl") {
    std::string lines;
    for (const std::string& row : rows) lines += row + "\n";
    DataSpec settled = spec;
    if (!rows.empty()) settled.sets = {folder.write(name, lines).string()};
    try {
      const TaughtLabels taught = taught_labels(adapters, config, "config.json");
      check_taught(asked, taught);
      settled.labels = settle_labels(asked, taught, settled);
      load_datasets(settled, tokenizer, 0);
      ADD_FAILURE() << "no error: " << lines;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(ClassErrors, LabelsOfSeveralKinds) {
  expect({R"({"text": "a", "label": "x"})", R"({"text": "b", "label": 3})"}, "a.jsonl:2: the label 3 is a number");
  expect({R"({"text": "a", "label": ["x"]})", R"({"text": "b", "label": "x"})"}, "is a single label");
  asked.problem = Problem::kMultiLabel;
  expect({R"({"text": "a", "label": "x"})", R"({"text": "a", "label": "y"})"},
         "a.jsonl:1: the label \"x\" is not a list, but problem_type");
  asked.problem = Problem::kSingleLabel;
  expect({R"({"text": "a", "label": ["x"]})", R"({"text": "a", "label": ["y"]})"}, "the label [\"x\"] is a list");
  asked.problem = Problem::kRegression;
  expect({R"({"text": "a", "label": "x"})"}, "the label \"x\" is not a number");
  expect({R"({"text": "a", "label": "+-5"})"}, "the label \"+-5\" is not a number");
  expect({R"({"text": "a", "label": 1})", R"({"text": "a", "label": [1, 2]})"}, "num_labels is");
}

TEST_F(ClassErrors, TextCellsAmongNumbers) {
  for (const std::string cell : {"n/a", "nan", "inf"}) {
    expect({"text,label", "a,1.5", "b," + cell, "c,2.5"}, "a.csv:3: the label " + cell + " is a name, but",
           json::object(), "a.csv");
    expect({"text,label", "a,1", "b," + cell, "c,0"}, "the labels of all rows must be of one kind; correct",
           json::object(), "a.csv");
  }
  expect({"text,label", "a,x", "b,", "c,y"}, "a.csv:3: the row has no label: 'label' is empty", json::object(),
         "a.csv");
}

TEST_F(ClassErrors, MinusOneBesideOtherNumbers) {
  const std::vector<std::string> rows = {R"({"text": "a", "label": 0})", R"({"text": "b", "label": 1})",
                                         R"({"text": "c", "label": -1})", R"({"text": "d", "label": 2})"};
  expect(rows,
         "a.jsonl:3: the label is -1, and other labels are 0 to 2. If -1 means that a row has no label, set "
         "num_labels: 3 and on_bad_row: skip. If -1 is a class, name all labels: id2label: [-1, 0, 1, 2]");
  asked.count = 4;
  expect(rows, "set num_labels: 3");
  asked.count = 3;
  expect(rows, "a.jsonl:3: the row has no label: 'label' is -1, which is not one of the labels");
  asked.count = 2;
  expect(rows, "a.jsonl:4: the label 2 is too large: num_labels is 2");
}

TEST_F(ClassErrors, CellsThatLookLikeLists) {
  for (const std::string cell : {"[0 1]", "[ 0. 1. ]", "\"['joy', love]\""})
    expect({"text,label", "a," + cell, "b," + cell}, "looks like a list, but is not JSON; write", json::object(),
           "a.csv");
}

TEST_F(ClassErrors, RowsThatCannotBeReadAreNamedFirst) {
  expect({R"({"text": "a", "label": "x"})", "{\"text\": \"\xe9\", \"label\": \"y\"}"},
         "a.jsonl:2: byte 11 of the line");
  expect({"text,label", "a,x", "\xe9,y"}, "a.csv:3: byte 1 of the line", json::object(), "a.csv");
}

TEST_F(ClassErrors, ListsOfZeroAndOneAmongOtherLists) {
  expect({R"({"text": "a", "label": [0, 0, 1]})", R"({"text": "b", "label": [2]})"},
         "a.jsonl:1: the list of labels [0,0,1] has a number twice");
}

TEST_F(ClassErrors, ConversationsWithoutATemplate) {
  expect({R"({"messages": [{"role": "user", "content": "a"}], "label": 0})", R"({"text": "b", "label": 1})"},
         "a.jsonl:1: this row is a conversation, but the model has no chat template");
}

TEST_F(ClassErrors, EmptyLabelNames) {
  asked.problem = Problem::kSingleLabel;
  expect({R"({"text": "a", "label": 1})", R"({"text": "a", "label": 0.5})"},
         "a.jsonl:2: the label 0.5 is not a whole number, but problem_type is single_label_classification; leave");
  asked.id2label = {"x", "y"};
  expect({R"({"text": "a", "label": 0.5})"},
         "not a whole number, but problem_type is single_label_classification, whose labels");
  asked.id2label.clear(), asked.problem.reset();
  expect({R"({"text": "a", "label": 1})", R"({"text": "b", "label": {"x": 1}})"},
         "a.jsonl:2: a label must be a name or a number, but this is {\"x\":1}");
  expect({R"({"text": "a", "label": []})"}, "is a name or a whole number; is problem_type: multi_label");
}

TEST_F(ClassErrors, OneLabelOfTheRecipe) {
  asked.problem = Problem::kSingleLabel;
  asked.id2label = {"ham"};
  for (const std::vector<std::string>& rows : {std::vector<std::string>{}, {R"({"text": "a", "label": "ham"})"}})
    expect(rows, "recipe: single_label_classification needs at least two labels; name them in id2label");
}

TEST_F(ClassErrors, UnknownLabels) {
  asked.id2label = {"ham", "spam"};
  expect({R"({"text": "a", "label": "spma"})"},
         "the label \"spma\" is not among the 2 labels (did you mean 'spam'?): ham, spam");
  expect({R"({"text": "a", "label": 2})"}, "the label 2 is not one of the 2 labels, which are numbered 0 to 1");
  expect({R"({"text": "a", "label": -1})"},
         "a.jsonl:1: the row has no label: 'label' is -1, which is not one of the labels");
  asked.id2label = {"1", "2", "3"};
  expect({R"({"text": "a", "label": 0})"}, "the label 0 is not among the 3 labels: 1, 2, 3");
  asked.id2label.clear();
  asked.count = 2;
  expect(
      {R"({"text": "a", "label": 0})", R"({"text": "a", "label": 2})"},
      "a.jsonl:2: the label 2 is too large: num_labels is 2 (recipe), so the label numbers are 0 to 1; the rows have "
      "2 labels: number them from 0 on, or name them with id2label: [0, 2]");
  expect({R"({"text": "a", "label": 0})", R"({"text": "a", "label": 1})", R"({"text": "a", "label": 2})"},
         "correct the row, or raise num_labels to 3");
}

TEST_F(ClassErrors, RowsWithoutLabelOrText) {
  asked.count = 2;
  asked.problem = Problem::kSingleLabel;
  asked.id2label = {"x", "y"};
  expect({R"({"text": "a"})"}, "a.jsonl:1: the row has no label; name the column label");
  expect({R"({"text": "a", "label": -100})"}, "the row has no label: 'label' is -100");
  expect({R"({"text": "a", "label": null})"}, "'label' is null");
  expect({R"({"words": "a", "label": 1})"}, "the columns [words, label] hold no text to classify");
  expect({R"({"text": "", "label": 1})"}, "the text is empty");
  expect({R"({"text": "a", "label": {"x": 1}})"}, "a label must be a name or a number");
  spec.cutoff_len = 0;
  expect({R"({"text": "a", "label": 1})"}, "leave no room for text");
}

TEST_F(ClassErrors, NoRowsToReadLabelsFrom) {
  expect({}, "num_labels is missing");
  expect({R"({"text": "a"})"}, "no row has a label");
  expect({R"({"text": "a", "label": "x"})"}, "so there is nothing to learn");
  const json broken = {{"architectures", {"BertForSequenceClassification"}}, {"id2label", {{"1", "x"}}}};
  expect({R"({"text": "a", "label": 1})"}, "id2label must name the numbers 0 to 0", broken);
}

TEST_F(ClassErrors, NumberOfLabelsDiffersFromTheModels) {
  const json bert = {{"architectures", {"BertForSequenceClassification"}}, {"id2label", {{"0", "x"}, {"1", "y"}}}};
  const std::vector<std::string> rows = {R"({"text": "a", "label": "x"})", R"({"text": "a", "label": "y"})"};
  asked.count = 5;
  asked.places.set("num_labels", "recipe.yaml:3");
  expect(rows, "recipe.yaml:3: num_labels asks for 5 labels, but config.json describes a classifier with 2", bert);
  asked.count.reset();
  asked.id2label = {"x", "y", "z"};
  expect(rows, "id2label asks for 3 labels, but config.json describes a classifier with 2", bert);
  asked.id2label.clear();
  asked.problem = Problem::kRegression;
  expect(rows, "a.jsonl:1: the label \"x\" is not a number, but problem_type is regression", bert);
}

TEST_F(ClassErrors, LabelsInAnotherOrderThanTheyWereTaught) {
  const std::vector<std::string> rows = {R"({"text": "a", "label": "x"})", R"({"text": "a", "label": "y"})"};
  asked.id2label = {"y", "x"};
  const std::string order = "id2label is [y, x], but in ";
  expect(rows, order + "config.json the order of these names is [x, y]",
         {{"architectures", {"BertForSequenceClassification"}}, {"id2label", {{"0", "x"}, {"1", "y"}}}});
  folder.write("classifier.json",
               R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "x", "1": "y"}})");
  adapters = {folder.path().string()};
  expect(rows, "classifier.json the order of these names is [x, y]; remove id2label");
}

TEST_F(ClassErrors, MalformedLabelsOfTheModel) {
  const std::vector<std::string> rows = {R"({"text": "a", "label": "x"})"};
  auto taught = [](const json& id2label) {
    return json{{"architectures", {"BertForSequenceClassification"}}, {"id2label", id2label}};
  };
  for (const json& labels : {json{{"0", 5}}, json{{"0", "x"}, {"00", "y"}}, json{{"-1", "x"}}})
    expect(rows, "config.json: id2label must name the numbers", taught(labels));
  for (const json& labels : {json::array({"x"}), json(3), json::object()})
    expect(rows, "config.json: id2label must be an object", taught(labels));
  expect(rows, "config.json: id2label has 'x' twice", taught({{"0", "x"}, {"1", "x"}}));
}

TEST_F(ClassErrors, KeysThatContradict) {
  const std::vector<std::string> rows = {R"({"text": "a", "label": 0})", R"({"text": "a", "label": 1})"};
  asked.id2label = {"x", "x"};
  expect(rows, "id2label has 'x' twice");
  asked.id2label = {"x", "y"};
  asked.count = 3;
  expect(rows, "num_labels is 3, but id2label names 2");
}

}  // namespace
}  // namespace fettle
