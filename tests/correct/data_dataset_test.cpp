#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "base/error.h"
#include "data/dataset.h"
#include "data/read/rows.h"
#include "data_fixtures.h"
#include "paths.h"

namespace fettle {
namespace {

// Returns a row as text, with its trained parts in [[ ]].
std::string show(const Tokenizer& tokenizer, const Example& example) {
  std::string out;
  for (size_t i = 0; i < example.input_ids.size();) {
    const bool trained = example.labels[i] != kIgnore;
    std::vector<int32_t> part;
    for (; i < example.input_ids.size() && (example.labels[i] != kIgnore) == trained; ++i) {
      part.push_back(example.input_ids[i]);
      EXPECT_EQ(example.labels[i], trained ? example.input_ids[i] : kIgnore);
    }
    const std::string text = tokenizer.decode(part, false);
    out += trained ? "[[" + text + "]]" : text;
  }
  return out;
}

struct Data : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;

  Data() {
    spec.template_name = "none";
    spec.dataset_dir = folder.path();
    spec.cache = "off";
  }
  std::string file(const std::string& name, const std::string& text) { return folder.write(name, text).string(); }
  // Returns the rows of one file as text.
  std::vector<std::string> rows(const std::string& name, const std::string& text) {
    spec.sets = {file(name, text)};
    std::vector<std::string> out;
    const Examples train = load().train;
    for (size_t i = 0; i < train.size(); ++i) out.push_back(show(tokenizer, train[i]));
    return out;
  }
  Datasets load() { return load_datasets(spec, tokenizer, tokenizer.vocab_size()); }
};

using Rows = std::vector<std::string>;

TEST_F(Data, ReadsAlpaca) {
  EXPECT_EQ(rows("a.json", R"([
    {"instruction": "Add", "input": "2 3", "output": "5"},
    {"instruction": "Hi", "input": "", "output": "Yo", "system": "S:", "history": [["a", "b"], ["c", "d"]]}])"),
            (Rows{"Add\n2 3[[5</s>]]", "S:a[[b</s>]]c[[d</s>]]Hi[[Yo</s>]]"}));
  EXPECT_EQ(rows("a.jsonl", R"({"instruction": "Hi", "output": "Yo", "history": " "}
{"instruction": "Hi", "output": "Yo", "history": "[[\"a\", \"b\"]]"}
)"),
            (Rows{"Hi[[Yo</s>]]", "a[[b</s>]]Hi[[Yo</s>]]"}))
      << "the history of a table is a text";
}

TEST_F(Data, ReadsSharegpt) {
  EXPECT_EQ(rows("a.jsonl",
                 R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "system": "S:"}

{"conversations": [{"from": "system", "value": "T:"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "train": false}, {"from": "human", "value": "r"}, {"from": "gpt", "value": "b"}]}
)"),
            (Rows{"S:q[[a</s>]]", "T:qa</s>r[[b</s>]]"}));
}

TEST_F(Data, ReadsOpenAi) {
  EXPECT_EQ(
      rows(
          "a.jsonl",
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "text", "text": "!"}]}, {"role": "assistant", "content": "a"}]}
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "weight": 1}]}
{"conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
)"),
      (Rows{"q![[a</s>]]", "qa</s>r[[b</s>]]", "q[[a</s>]]"}));
}

TEST_F(Data, ReadsPromptAndCompletion) {
  EXPECT_EQ(rows("a.jsonl", R"({"prompt": "q", "completion": "a"}
{"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "a"}]}
)"),
            (Rows{"q[[a</s>]]", "qx</s>r[[a</s>]]"}));
  EXPECT_EQ(rows("a.jsonl", R"({"prompt": "r", "completion": "a", "history": [["q", "x"]]})"),
            (Rows{"qx</s>r[[a</s>]]"}));
  EXPECT_EQ(rows("a.jsonl", R"({"system": "S:", "prompt": "q", "completion": "a"}
{"system": "S:", "prompt": [{"role": "user", "content": "q"}], "completion": "a"}
{"system": "S:", "prompt": [{"role": "system", "content": "T:"}, {"role": "user", "content": "q"}], "completion": "a"}
)"),
            (Rows{"S:q[[a</s>]]", "S:q[[a</s>]]", "T:q[[a</s>]]"}))
      << "the turn takes precedence over the column";
}

TEST_F(Data, ReadsTextAndTokens) {
  EXPECT_EQ(rows("a.jsonl", "{\"text\": \"one\"}\n{\"content\": \"two\"}\n"), (Rows{"[[one</s>]]", "[[two</s>]]"}));
  const Datasets data = [&] {
    spec.sets = {file("b.jsonl", R"({"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, -100]}
{"input_ids": [0, 5, 6, 0], "attention_mask": [0, 1, 1, 0]}
)")};
    return load();
  }();
  EXPECT_EQ(data.train[0].labels, (std::vector<int32_t>{kIgnore, 2, 3, kIgnore}));
  EXPECT_EQ(data.train[1].input_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(data.train[1].labels, (std::vector<int32_t>{5, 6}));
}

TEST_F(Data, MasksOfTokenRowsDecideWhatIsTrained) {
  const std::string text = R"({"input_ids": [1, 2, 3, 4], "assistant_masks": [0, 0, 1, 1]}
{"input_ids": [1, 2, 3, 4], "loss_mask": [true, true, false, true], "labels": [-100, 2, 3, 4]}
{"input_ids": [0, 2, 3, 4], "completion_mask": [0, 0, 0, 1], "attention_mask": [0, 1, 1, 1], "assistant_masks": null}
)";
  spec.sets = {file("a.jsonl", text)};
  const Examples masked = load().train;
  EXPECT_EQ(masked[0].labels, (std::vector<int32_t>{kIgnore, kIgnore, 3, 4}));
  EXPECT_EQ(masked[1].labels, (std::vector<int32_t>{kIgnore, 2, kIgnore, 4}));
  EXPECT_EQ(masked[2].labels, (std::vector<int32_t>{kIgnore, kIgnore, 4}));
  spec.train_on_prompt = true;
  const Examples whole = load().train;
  EXPECT_EQ(whole[0].labels, (std::vector<int32_t>{kIgnore, kIgnore, 3, 4}));
  EXPECT_EQ(whole[2].labels, (std::vector<int32_t>{2, 3, 4}));
}

TEST_F(Data, PackedTokenRowsAreDivided) {
  spec.sets = {file("a.jsonl", R"({"input_ids": [1, 2, 3, 4, 5], "seq_lengths": [2, 3]}
{"input_ids": [1, 2, 3, 4, 0, 0], "position_ids": [0, 1, 0, 1, 0, 0], "attention_mask": [1, 1, 1, 1, 0, 0]}
{"input_ids": [1, 2, 3], "position_ids": [0, 1, 2]}
{"input_ids": [9, 2, 3], "position_ids": [0, 0, 1]}
)")};
  const Datasets data = load();
  const Examples& train = data.train;
  ASSERT_EQ(train.size(), 6u);
  EXPECT_EQ(train[0].input_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(train[1].input_ids, (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(train[1].labels, (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(train[2].input_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(train[3].input_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(train[4].input_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(train[5].input_ids, (std::vector<int32_t>{2, 3})) << "a document of one token has nothing to train";
  EXPECT_EQ(data.report.dropped, 0) << "padding is no loss";
}

TEST_F(Data, PackedTokenRowsAreDroppedIfNoDocumentIsTrained) {
  spec.sets = {file("a.jsonl", R"({"input_ids": [1, 2, 3], "position_ids": [0, 1, 2]}
{"input_ids": [1, 2, 3], "position_ids": [0, 0, 0]}
{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8], "labels": [-100, -100, -100, -100, 5, 6, -100, -100], "seq_lengths": [6, 2]}
)")};
  spec.cutoff_len = 4;
  const Datasets data = load();
  EXPECT_EQ(data.train.size(), 1u);
  EXPECT_EQ(data.report.dropped, 2);
  std::string notes;
  for (const std::string& note : data.report.notes) notes += note + "\n";
  EXPECT_NE(notes.find("a.jsonl:2: no token is trained"), std::string::npos) << notes;
  EXPECT_NE(notes.find("a.jsonl:3: after the cut to cutoff_len, no trained token is left"), std::string::npos) << notes;
}

TEST_F(Data, ReadsTables) {
  EXPECT_EQ(rows("a.csv", "instruction,output\n\"say \"\"x\"\",\nplease\",y\r\nplain,z"),
            (Rows{"say \"x\",\nplease[[y</s>]]", "plain[[z</s>]]"}));
  EXPECT_EQ(load().train[1].source, (folder.path() / "a.csv").string() + ":4");
  EXPECT_EQ(rows("b.csv", "\"instruction\";output\nq, r;\"a;b\"\n"), (Rows{"q, r[[a;b</s>]]"})) << "semicolons";
  EXPECT_EQ(rows("a.tsv", "prompt\tcompletion\nq, r\ta\n"), (Rows{"q, r[[a</s>]]"}));
}

TEST_F(Data, ReadsPlainText) {
  spec.rows = RowKind::kTexts;
  EXPECT_EQ(rows("a.txt", "\xef\xbb\xbfone\r\n\n  \ntwo"), (Rows{"[[one</s>]]", "[[two</s>]]"}));
  EXPECT_EQ(load().train[1].source, (folder.path() / "a.txt").string() + ":4");
}

TEST_F(Data, TextFilesHoldLinesParagraphsOrOneText) {
  spec.rows = RowKind::kTexts;
  const std::string text = "\na\r\nb\n\n \nc\n";
  EXPECT_EQ(rows("a.txt", text), (Rows{"[[a</s>]]", "[[b</s>]]", "[[c</s>]]"}));
  spec.sample_by = TextRows::kParagraph;
  EXPECT_EQ(rows("a.txt", text), (Rows{"[[a\nb</s>]]", "[[c</s>]]"}));
  EXPECT_EQ(load().train[0].source, (folder.path() / "a.txt").string() + ":2");
  EXPECT_EQ(load().train[1].source, (folder.path() / "a.txt").string() + ":6");
  spec.sample_by = TextRows::kDocument;
  EXPECT_EQ(rows("a.md", text), (Rows{"[[\na\nb\n\n \nc</s>]]"}));
  spec.sets = {R"({"file_name": "a.md", "sample_by": "line"})"};
  EXPECT_EQ(load().train.size(), 3u) << "the entry takes precedence";
}

TEST_F(Data, FoldersOfTextsHaveMarkdownFiles) {
  spec.rows = RowKind::kTexts;
  for (const char* name : {"set/a.txt", "set/b.md", "set/c.MARKDOWN", "set/README.md", "set/license.md", "set/d.pdf",
                           "set/.git/e.md", "set/Makefile"})
    file(name, "x");
  spec.sets = {(folder.path() / "set").string()};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load().train.size(), 3u);
  load();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const size_t note = said.find("set: 2 files of other kinds are left out (1 .pdf, 1 no ending)");
  EXPECT_NE(note, std::string::npos) << said;
  EXPECT_EQ(said.find("left out", note + 80), std::string::npos) << "the note is printed once";
  file("rows/notes.md", "x");
  file("rows/a.jsonl", "{\"text\": \"a\"}\n");
  spec.sets = {(folder.path() / "rows").string()};
  EXPECT_EQ(load().train.size(), 1u) << "a Markdown file beside rows describes them";
}

TEST_F(Data, ReadsCompressedFiles) {
  const std::string text = "{\"prompt\": \"q\", \"completion\": \"a\"}\n";
  const std::string gz = (folder.path() / "a.jsonl.gz").string();
  for (int part = 0; part < 2; ++part) {  // two gzip members, as in `cat a.gz b.gz`
    gzFile out = gzopen(gz.c_str(), "ab");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
  }
  spec.sets = {gz};
  EXPECT_EQ(load().train.size(), 2u);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  spec.sets = {file("b.jsonl.zst", packed)};
  EXPECT_EQ(load().train.size(), 1u);
}

// pyarrow wrote these files (tests/reference/data/make_columns.py).
TEST(Rows, ReadsColumnsAsTheRowsTheyCameFrom) {
  const std::filesystem::path folder = source_folder() / "tests/reference/data";
  auto rows = [&](const char* name) {
    std::vector<Row> out;
    read_rows(folder / name, [&](Row row) {
      row.parse();
      out.push_back(std::move(row));
      return true;
    });
    return out;
  };
  const std::vector<Row> expected = rows("rows.jsonl");
  ASSERT_EQ(expected.size(), 7u);
  for (const char* name : {"rows.parquet", "rows.arrow", "rows.feather"}) {
    SCOPED_TRACE(name);
    const std::vector<Row> read = rows(name);
    ASSERT_EQ(read.size(), expected.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(nlohmann::json(read[i].value), nlohmann::json(expected[i].value));
      EXPECT_EQ(read[i].line, static_cast<int64_t>(i) + 1);
    }
  }
}

TEST_F(Data, CountsLinesInsideJsonArrays) {
  spec.sets = {file("a.json",
                    "[\n  {\"prompt\": \"q\",\n   \"completion\": \"a, ]\\\"\"},\n\n  {\"prompt\": \"r\", "
                    "\"completion\": \"b\"}\n]\n")};
  const Datasets data = load();
  EXPECT_EQ(data.train[0].source, spec.sets[0] + ":2");
  EXPECT_EQ(data.train[1].source, spec.sets[0] + ":5");
}

TEST_F(Data, ReadsFoldersAndPatterns) {
  const std::string row = "{\"prompt\": \"q\", \"completion\": \"a\"}\n";
  file("set/b.jsonl", row);
  file("set/a.jsonl", row);
  file("set/README.md", "no data");
  spec.sets = {(folder.path() / "set").string()};
  Datasets data = load();
  ASSERT_EQ(data.train.size(), 2u);
  EXPECT_TRUE(data.train[0].source.ends_with("a.jsonl:1"));
  spec.sets = {(folder.path() / "set" / "?.jsonl").string(), (folder.path() / "set" / "a.jsonl").string()};
  EXPECT_EQ(load().train.size(), 3u);
}

TEST_F(Data, FollowsDatasetInfo) {
  file("dataset_info.json", R"({
    "mapped": {"file_name": "rows.json", "columns": {"prompt": "question", "query": null, "response": "answer"}},
    "chat": {"file_name": "chat.json", "formatting": "sharegpt", "columns": {"messages": "turns", "system": "sys"},
             "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "me", "assistant_tag": "you"}},
    "plain": {"file_name": "text.json", "columns": {"prompt": "body"}},
    "half": {"file_name": "half.json", "formatting": "sharegpt", "tags": {"assistant_tag": "bot"}},
    "custom": {"file_name": "rows.json", "formatting": "alpaca_prompt", "prompt": {"no_input_format": "<{instruction}>"},
               "columns": {"prompt": "question", "response": "answer"}},
    "list": {"file_name": "half.json", "columns": {"messages": "conversations"}, "tags": {"assistant_tag": ["bot"]}},
    "few": {"file_name": "rows.json", "num_samples": 3, "columns": {"prompt": "question", "response": "answer"}}})");
  file("rows.json", R"([{"question": "q", "answer": "a"}, {"question": "r", "answer": "b"}])");
  file("chat.json", R"([{"sys": "S:", "turns": [{"who": "me", "says": "q"}, {"who": "you", "says": "a"}]}])");
  file("text.json", R"([{"body": "words"}])");
  spec.sets = {"mapped", "chat", "plain"};
  Rows shown;
  for (int i = 0; i < 4; ++i) shown.push_back(show(tokenizer, load().train[i]));
  EXPECT_EQ(shown, (Rows{"q[[a</s>]]", "r[[b</s>]]", "S:q[[a</s>]]", "[[words</s>]]"}));
  file("half.json", R"([{"conversations": [{"from": "user", "value": "q"}, {"from": "bot", "value": "a"},
                                           {"from": "human", "value": "r"}, {"from": "bot", "value": "b"}]}])");
  spec.sets = {"half"};
  EXPECT_EQ(show(tokenizer, load().train[0]), "q[[a</s>]]r[[b</s>]]") << "the usual names of the user need no tag";
  spec.sets = {"list"};
  EXPECT_EQ(show(tokenizer, load().train[0]), "q[[a</s>]]r[[b</s>]]") << "an entry without `formatting`";
  spec.sets = {"few"};
  EXPECT_EQ(load().train.size(), 3u);
  spec.sets = {"custom"};
  EXPECT_EQ(show(tokenizer, load().train[0]), "<q>[[a</s>]]");
}

TEST_F(Data, FunctionCallsBecomeToolCalls) {
  const Tokenizer own =
      TestTokenizer{.chat_template =
                        "{{ tools | tojson if tools }}{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content }}"
                        "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments.x }}{% endfor %}{{ "
                        "eos_token }}{% endfor %}"
                        "{% if add_generation_prompt %}a:{% endif %}"}
          .open();
  spec.template_name = "";
  spec.sets = {file("a.json", R"([{"tools": "[{\"name\": \"f\"}]", "conversations": [
    {"from": "human", "value": "q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
    {"from": "observation", "value": "7"}, {"from": "gpt", "value": "a"}]}])")};
  const Datasets data = load_datasets(spec, own, own.vocab_size());
  EXPECT_EQ(show(own, data.train[0]),
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]u:q</s>a:[[f1</s>]]t:7</s>a:[[a</s>]]")
      << "a bare tool is wrapped";
  EXPECT_EQ(data.report.trained_by_role, (std::map<std::string, int64_t>{{"assistant", 5}}));
}

TEST_F(Data, ASystemColumnBesideMessagesIsTheirFirstTurn) {
  spec.sets = {
      file("a.jsonl",
           R"({"system": "S", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
{"system": "S", "messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})")};
  const Datasets data = load();
  EXPECT_NE(show(tokenizer, data.train[0]).find("S"), std::string::npos) << show(tokenizer, data.train[0]);
  EXPECT_NE(show(tokenizer, data.train[1]).find("own"), std::string::npos) << show(tokenizer, data.train[1]);
  EXPECT_EQ(show(tokenizer, data.train[1]).find("S"), std::string::npos) << "the turn takes precedence over the column";
}

TEST_F(Data, OnlyTokensOfChosenRowsAreCounted) {
  spec.sets = {file("a.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2, 3, 4]}\n")};
  spec.val_size = 1;
  const Datasets data = load();
  EXPECT_EQ(data.report.tokens, 9 - data.eval.length(0));
  ASSERT_FALSE(data.report.notes.empty());
  EXPECT_NE(data.report.notes.back().find("2 of 3 examples were chosen by val_size;"), std::string::npos)
      << data.report.notes.back();
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";

TEST_F(Data, TrainsTheTurnsThatTheRecipeSelects) {
  spec.train_on_prompt = true;
  EXPECT_EQ(rows("a.jsonl", kTwoTurns), (Rows{"[[qa</s>rb</s>]]"}));
  spec.train_on_prompt = false;
  spec.mask_history = true;
  EXPECT_EQ(rows("a.jsonl", kTwoTurns), (Rows{"qa</s>r[[b</s>]]"}));
  spec.default_system = "S:";
  EXPECT_EQ(rows("a.jsonl", kTwoTurns), (Rows{"S:qa</s>r[[b</s>]]"}));
}

// The trained reply is at the end, so the cut takes the beginning, in whole turns.
TEST_F(Data, ALongRowKeepsItsLastReplyIfOnlyThisIsTrained) {
  nlohmann::json turns = nlohmann::json::array();
  for (const char* turn : {"qa", "rb", "sc"}) {
    turns.push_back({{"role", "user"}, {"content", std::string(1, turn[0])}});
    turns.push_back({{"role", "assistant"}, {"content", std::string(1, turn[1])}});
  }
  const std::string row = nlohmann::json{{"messages", turns}}.dump();
  spec.mask_history = true;
  spec.cutoff_len = 9;
  EXPECT_EQ(rows("a.jsonl", row), (Rows{"qa</s>rb</s>s[[c</s>]]"}));
  for (const int64_t cutoff : {8, 6}) {
    spec.cutoff_len = cutoff;
    EXPECT_EQ(rows("a.jsonl", row), (Rows{"rb</s>s[[c</s>]]"})) << cutoff;
    EXPECT_EQ(load().report.truncated, 1) << cutoff;
  }
  spec.cutoff_len = 8;
  EXPECT_THAT(load().report.notes,
              testing::Contains(testing::HasSubstr("9 tokens to 6, in whole turns (cutoff_len 8)")));
  spec.cutoff_len = 2;
  EXPECT_EQ(rows("a.jsonl", row), (Rows{"s[[c]]"})) << "the last turn alone is cut at its end";
  EXPECT_THAT(load().report.notes, testing::Contains(testing::HasSubstr("9 tokens to cutoff_len 2")));
  spec.default_system = "S:";
  spec.cutoff_len = 5;
  EXPECT_EQ(rows("a.jsonl", row), (Rows{"S:s[[c</s>]]"}));
}

// Finding the turns that fit renders the row several times.
TEST_F(Data, ACutRowIsCountedOnce) {
  TestTokenizer files;
  files.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
  tokenizer = files.open();
  nlohmann::json turns = nlohmann::json::array();
  for (int i = 0; i < 8; ++i) {
    turns.push_back({{"role", "user"}, {"content", "q"}});
    turns.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  spec.template_name = "";
  spec.mask_history = true;
  spec.cutoff_len = 5;
  EXPECT_EQ(rows("a.jsonl", nlohmann::json{{"messages", turns}}.dump()), (Rows{"qaq[[a]]"}));
  EXPECT_THAT(load().report.notes, testing::Contains(testing::HasSubstr("template: 1 trained turns end without")));
}

TEST_F(Data, AnEmptySystemMessageCountsAsNone) {
  const std::string
      with =
          R"({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
      null =
          R"({"messages": [{"role": "system", "content": null}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
      without = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  TestTokenizer files;
  for (const char* token : {"<|im_end|>", "<|eot_id|>", "<end_of_turn>"}) files.special.emplace_back(token);
  tokenizer = files.open();
  for (const char* name : {"qwen", "llama3", "gemma", "smollm2", "chatml"}) {
    spec.template_name = name;
    EXPECT_EQ(rows("a.jsonl", with), rows("a.jsonl", without)) << name;
    EXPECT_EQ(rows("a.jsonl", null), rows("a.jsonl", without)) << name;
  }
  files.chat_template =
      "{% for m in messages %}{{ m.role[0] + '|' + m.content + eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}a|{% endif %}";
  tokenizer = files.open();
  spec.template_name = "";
  EXPECT_EQ(rows("a.jsonl", with), (Rows{"s|</s>u|q</s>a|[[a</s>]]"})) << "the model's own template gets it";
  spec.template_name = files.chat_template;
  EXPECT_EQ(rows("a.jsonl", with), (Rows{"s|</s>u|q</s>a|[[a</s>]]"})) << "a text in the recipe gets it";
  spec.default_system = "S";
  EXPECT_EQ(rows("a.jsonl", with), (Rows{"s|S</s>u|q</s>a|[[a</s>]]"}));
}

TEST_F(Data, CutsOrDropsWhatIsTooLong) {
  const std::string text = R"({"prompt": "12345", "completion": "678"}
{"prompt": "1", "completion": "2"}
{"prompt": "123456789", "completion": "0"}
)";
  spec.cutoff_len = 7;
  EXPECT_EQ(rows("a.jsonl", text), (Rows{"12345[[67]]", "1[[2</s>]]"}));
  DataReport report = load().report;
  EXPECT_EQ(report.rows, 3);
  EXPECT_EQ(report.examples, 2);
  EXPECT_EQ(report.truncated, 1);
  EXPECT_EQ(report.dropped, 1);
  EXPECT_EQ(report.tokens, 10);
  EXPECT_EQ(report.trained_tokens, 4);
  EXPECT_EQ(report.trained_by_role.at("assistant"), 4);
  EXPECT_EQ(report.tokens_by_role.at("user"), 5 + 1);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes[0].find("a.jsonl:1: 9 tokens to cutoff_len 7"), std::string::npos) << report.notes[0];
  spec.overlength = Overlength::kDrop;
  EXPECT_EQ(rows("a.jsonl", text), (Rows{"1[[2</s>]]"}));
  EXPECT_EQ(load().report.dropped, 2);
}

TEST_F(Data, LongTextsContinueInFurtherExamples) {
  spec.rows = RowKind::kTexts;
  spec.cutoff_len = 4;
  EXPECT_EQ(rows("a.jsonl", "{\"text\": \"abcdefghij\"}"), (Rows{"[[abcd]]", "[[efgh]]", "[[ij</s>]]"}));
  EXPECT_EQ(load().report.truncated, 0);
}

// Axolotl cuts a text of `type: completion` into pieces of sequence_len tokens, even if its recipe drops conversations
// that are too long.
TEST_F(Data, TextsOfAnEntryContinueUnderSftToo) {
  spec.cutoff_len = 4;
  spec.overlength = Overlength::kDrop;
  file("dataset_info.json", R"({"texts": {"file_name": "t.json", "formatting": "text", "columns": {"text": "body"}}})");
  file("t.json", R"([{"body": "abcdefghij"}])");
  spec.sets = {"texts"};
  std::vector<std::string> shown;
  const Datasets data = load();
  for (size_t i = 0; i < data.train.size(); ++i) shown.push_back(show(tokenizer, data.train[i]));
  EXPECT_EQ(shown, (Rows{"[[abcd]]", "[[efgh]]", "[[ij</s>]]"}));
  EXPECT_EQ(data.report.dropped, 0);
}

TEST_F(Data, BosIsWrittenOnceInTexts) {
  tokenizer = TestTokenizer{.adds_bos = true}.open();
  spec.rows = RowKind::kTexts;
  EXPECT_EQ(rows("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"<s>ab\"}\n"), (Rows{"[[<s>ab</s>]]", "[[<s>ab</s>]]"}));
}

TEST_F(Data, SplitsOffEvaluationRowsBySeed) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  spec.sets = {file("a.jsonl", text)};
  spec.val_size = 0.25;
  Datasets data = load();
  EXPECT_EQ(data.train.size(), 15u);
  EXPECT_EQ(data.eval.size(), 5u);
  EXPECT_EQ(load().eval[0].source, data.eval[0].source);
  spec.val_size = 3;
  spec.seed = 1;
  EXPECT_EQ(load().eval.size(), 3u);
  spec.eval_sets = {spec.sets[0]};
  data = load();
  EXPECT_EQ(data.train.size(), 20u);
  EXPECT_EQ(data.eval.size(), 20u);
  EXPECT_EQ(data.eval_report.rows, 20);
  spec.max_samples = 7;
  EXPECT_EQ(load().train.size(), 7u);
}

TEST_F(Data, HeldOutRowsThatAreAlsoTrainedAreNoted) {
  spec.sets = {file("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n")};
  spec.eval_sets = {file("b.jsonl", "{\"text\": \"d\"}\n{\"text\": \"b\"}\n")};
  const DataReport report = load().report;
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_EQ(report.notes[0].find("held-out rows: 1 of 2 are also trained"), 0u) << report.notes[0];
  spec.eval_sets = {file("c.jsonl", "{\"text\": \"d\"}\n")};
  EXPECT_TRUE(load().report.notes.empty());
}

TEST_F(Data, SkipsBadRowsWhenAsked) {
  spec.on_bad_row = OnBadRow::kSkip;
  EXPECT_EQ(rows("a.jsonl", "{\"text\": \"a\"}\n{broken\n{\"other\": 1}\n\xff\n{\"text\": \"b\"}\n"),
            (Rows{"[[a</s>]]", "[[b</s>]]"}));
  const DataReport report = load().report;
  EXPECT_EQ(report.rows, 5);
  EXPECT_EQ(report.bad_rows, 3);
  EXPECT_NE(report.notes[0].find("a.jsonl:2"), std::string::npos);
}

TEST_F(Data, SkipsALineThatIsTooLong) {
  // The line has 300 MiB, but is small when compressed.
  const std::string block(size_t{1} << 20, 'x');
  const std::string path = (folder.path() / "long.jsonl.gz").string();
  gzFile out = gzopen(path.c_str(), "wb1");
  gzputs(out, "{\"text\": \"a\"}\n{\"text\": \"");
  for (int i = 0; i < 300; ++i) gzwrite(out, block.data(), static_cast<unsigned>(block.size()));
  gzputs(out, "\"}\n{\"text\": \"b\"}\n");
  gzclose(out);
  spec.sets = {path};
  spec.on_bad_row = OnBadRow::kSkip;
  const Datasets data = load();
  ASSERT_EQ(data.train.size(), 2u);
  EXPECT_EQ(data.train.source(1), path + ":3");
  EXPECT_EQ(data.report.bad_rows, 1);
  EXPECT_NE(data.report.notes[0].find(path + ":2: the row is longer than 256 MiB"), std::string::npos)
      << data.report.notes[0];
}

TEST_F(Data, TakesTheFirstRowsOfAllFiles) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "{\"text\": \"" + std::string(200, 'x') + "\"}\n";
  spec.sets = {file("set/a.jsonl", text), file("set/b.jsonl", text)};
  spec.sets = {(folder.path() / "set").string()};
  spec.max_samples = 3001;
  const Datasets data = load();
  ASSERT_EQ(data.train.size(), 3001u);
  EXPECT_TRUE(data.train.source(3000).ends_with("b.jsonl:1"));
}

TEST_F(Data, OrderDoesNotDependOnThreads) {
  std::string text;
  for (int i = 0; i < 10'000; ++i)
    text += "{\"text\": \"" + std::string(static_cast<size_t>(i % 50) + 1, 'x') + "\"}\n";
  spec.sets = {file("a.jsonl", text)};
  const Datasets data = load();
  ASSERT_EQ(data.train.size(), 10'000u);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(data.train.source(i), spec.sets[0] + ":" + std::to_string(i + 1));
    ASSERT_EQ(data.train.length(i), i % 50 + 2);
  }
}

}  // namespace
}  // namespace fettle
