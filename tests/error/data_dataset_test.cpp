#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data_fixtures.h"
#include "paths.h"

namespace fettle {
namespace {

struct DataErrors : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer = TestTokenizer().open();
  DataSpec spec;

  DataErrors() {
    spec.template_name = "none";
    spec.dataset_dir = folder.path();
    spec.cache = "off";
  }
  std::string failure() {
    try {
      load_datasets(spec, tokenizer, tokenizer.vocab_size());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  std::string failure_of(const std::string& name, const std::string& text) {
    spec.sets = {folder.write(name, text).string()};
    return failure();
  }
};

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "wanted: " << part << "\nsaid: " << message;
}

TEST_F(DataErrors, BrokenRowsNameFileAndLine) {
  expect_says(failure_of("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \n"),
              "a.jsonl:3: not valid JSON: the text ends too early");
  expect_says(failure(), "on_bad_row: skip");
  expect_says(failure_of("a.jsonl", "{\"text\": \"a\"}\n[1]\n"), "a.jsonl:2: a row must be a JSON object");
  expect_says(failure_of("a.jsonl", "{\"text\": \"\xc3\x28\"}\n"),
              "a.jsonl:1: byte 11 of the line (0xc3) is not UTF-8; convert the file");
  expect_says(failure_of("a.jsonl", "{\"text\": \"a\", \"meta\": {\"x\": \"k\", \"x\": \":\"}}\n"),
              "a.jsonl:1: an object has the key 'x' twice");
  expect_says(failure_of("a.jsonl", "{\"text\": 1e999}\n"), "a.jsonl:1: not valid JSON: a number is too large");
  expect_says(failure_of("a.jsonl", std::string("PK\x03\x04\0\0", 6)), "a zero byte; is this a binary file?");
  expect_says(failure_of("a.json", "[{\"text\": \"a\"},\n {\"text\": nope}]"),
              "a.json:2: not valid JSON: syntax error at column 11, at `ope}`");
  expect_says(failure_of("a.json", "[{\"text\": \"a\"},\n {\"text\": \"b\""),
              "a.json:2: the row that begins here is not closed");
  expect_says(failure_of("a.json", "[{\"text\": \"a\"}\n"), "the array of rows is not closed by ]");
  expect_says(failure_of("a.json", "hello"), "must begin with [ or {");
  for (const char* start : {"{\n", "{\"text\": \"a\",\n", "{\"text\":\n", "{\"meta\": {\"x\": 1},\n"})
    expect_says(failure_of("a.json", std::string("{\"text\": \"a\"}\n") + start + "  \"b\": 1\n}\n"),
                "a.json:2: rows must be in a JSON array, or one object per line; this object has several lines");
  for (const char* rest : {"", "\n{\"text\": \"b\"}\n", "\n\n{\"text\": \"b\"}\n"})
    expect_says(failure_of("a.json", std::string("{\"text\": \"a\",") + rest), "a.json:1: not valid JSON");
  expect_says(failure_of("a.jsonl", "{\"text\": " + std::string(100000, '[') + "}"), "nested more than 100 deep");
  expect_says(failure_of("a.csv", "a,b\n1,2,3\n"), "a.csv:2: the row has 3 cells, but the head line has 2 columns");
  expect_says(failure_of("a.csv", "a,b\n1,\"2\n"), "a.csv:2: a quote that opens in this row is not closed");
  expect_says(failure_of("a.csv", " ,\n1,2\n"), "a.csv:1: the head line has no names; write the names of the columns");
  expect_says(failure_of("a.csv", "sep=;\na;a\n"), "a.csv:2: two columns are called 'a'");
  expect_says(failure_of("a.csv", "a,a\n1,2\n"), "two columns are called 'a'; rename one of them, or add a head line");
}

// If rows share a line, the line does not tell which row is meant.
TEST_F(DataErrors, RowsOfAnArrayOnOneLineAreNumbered) {
  const std::string good = R"({"text": "a"})", bad = R"({"text": 4.5})";
  expect_says(failure_of("a.json", "[" + good + ", " + good + ", " + bad + "]"),
              "a.json (row 3): 'text' is the number");
  expect_says(failure_of("a.json", "[" + bad + ", " + good + "]"), "a.json (row 1): ");
  expect_says(failure_of("a.json", "[" + good + "," + good + "\n," + bad + "]"), "a.json (row 3): ");
  expect_says(failure_of("a.json", "[" + good + ",{" + good), "a.json (row 2): the row that begins here is not closed");
  expect_says(failure_of("a.json", "[" + bad + "]"), "a.json:1: ");
  expect_says(failure_of("a.json", "[" + good + ",\n" + bad + "]"), "a.json:2: ");
  expect_says(failure_of("a.json", "[{\n\"text\": \"a\"\n}, {\n\"text\": 4.5\n}]"), "a.json:3: ");
  spec.on_bad_row = OnBadRow::kSkip;
  spec.sets = {folder.write("a.json", "[" + bad + ", " + good + "]").string()};
  const Datasets data = load_datasets(spec, tokenizer, tokenizer.vocab_size());
  EXPECT_EQ(data.train.source(0), spec.sets[0] + " (row 2)");
  expect_says(data.report.notes.at(0), "a.json (row 1): 'text' is the number");
}

TEST_F(DataErrors, UnusableFiles) {
  EXPECT_EQ(failure_of("a.jsonl", ""), (folder.path() / "a.jsonl").string() + " is empty; write it again");
  expect_says(failure_of("a.jsonl", "\n \n"), " has no rows");
  expect_says(failure_of("a.csv", "a,b\n"), " has no rows");
  expect_says(failure_of("c.parquet", "nothing"), "c.parquet is not a Parquet file");
  expect_says(failure_of("c.parquet", "\x1f\x8b\x08"), "unpack it first");
  expect_says(failure_of("a.json", "[]"), " has no rows");
  expect_says(failure_of("a.xlsx", "PK"), "files of kind '.xlsx' cannot be read");
  expect_says(failure_of("a.parquet", "PAR1"), "a.parquet: ");
  expect_says(failure_of("b.parquet", "PAR1" + std::string(100, 'x') + "PAR1"), "b.parquet: ");
  expect_says(failure_of("a.arrow", "ARROW1"), "a.arrow: ");
  expect_says(failure_of("b.arrow", std::string(64, 'z')), "b.arrow is not an Arrow file (");
  expect_says(failure_of("a.jsonl", "\xff\xfe{\0"), "UTF-16");
  expect_says(failure_of("a.jsonl.gz", "\x1f\x8b\x08"), "the gzip data ends early");
  expect_says(failure_of("b.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\0", 10) + std::string(40, '\xff')),
              "the gzip data is broken");
  expect_says(failure_of("a.jsonl.zst", "\x28\xb5\x2f\xfd\x20"), "the Zstandard data ends early");
  const std::string rows = folder.write("rows.jsonl", "{\"text\": \"a\"}\n").string();
  for (const char* count : {"#0", "#000", "#1000000000000000", "#99999999999999999999"}) {
    spec.sets = {rows + count};
    expect_says(failure(), "wanted a number of rows after #, at least 1 and with at most 15 digits");
  }
  spec.sets = {"{\"file_name\": \"" + rows + "\", \"split\": \"train[:10%]\"}"};
  expect_says(failure(), "the slice in `split` takes none of the 1 examples; make it larger");
  spec.sets = {(folder.path() / "none.jsonl").string()};
  expect_says(failure(), "none.jsonl' is not a file, and there is no ");
  folder.write("chats.jsonl", "");
  spec.sets = {(folder.path() / "chat.jsonl").string()};
  expect_says(failure(), "(did you mean '" + (folder.path() / "chats.jsonl").string() + "'?)");
  spec.sets = {"chat.jsonl"};  // found in dataset_dir
  expect_says(failure(), "(did you mean '" + (folder.path() / "chats.jsonl").string() + "'?)");
  folder.write("dataset_info.json", R"({"alpaca_de": {"file_name": "a"}, "alpaca_en": {"file_name": "b"}})");
  spec.sets = {"alpaca_fr"};
  expect_says(failure(), "(did you mean 'alpaca_de'?); it has alpaca_de, alpaca_en");
  folder.write("dataset_info.json", "{\"a\": {\n  \"file_name\": nope}\n}");
  expect_says(failure(), "dataset_info.json: is not valid JSON: syntax error at line 2, column 17, at `ope}`");
  std::filesystem::remove(folder.path() / "dataset_info.json");
  spec.sets = {(folder.path() / "*.nothing").string()};
  expect_says(failure(), "no file matches");
  std::filesystem::create_directory(folder.path() / "empty");
  spec.sets = {(folder.path() / "empty").string()};
  expect_says(failure(), "has no data file");
  spec.sets = {};
  expect_says(failure(), "dataset: the key is missing");
}

// A question may be about another column, which would then be missing from the prompt.
TEST_F(DataErrors, QuestionsWithAColumnThatTheyMayNeed) {
  for (const char* column : {"image_id", "context", "contexts", "documents", "evidence", "facts", "hint", "sources",
                             "passages", "references", "title", "options", "A", "Table"}) {
    const nlohmann::ordered_json row = {{"question", "q"}, {column, "c"}, {"answer", "a"}};
    expect_says(failure_of("rows.jsonl", row.dump()),
                fmt::format("no known format has the columns [question, {}, answer]", column));
  }
}

// GAIR/LIMO has the reasoning in `solution`, and the answer is only its result.
TEST_F(DataErrors, QuestionsWithAReasoningBesideTheAnswer) {
  for (const char* column : {"solution", "rationale", "reasoning"}) {
    nlohmann::ordered_json row = {{"question", "q"}, {column, "six times seven"}, {"answer", "42"}};
    expect_says(
        failure_of("rows.jsonl", row.dump()),
        fmt::format(R"("columns": {{"prompt": "question", "response": "{}"}}}}; to train the short answer alone, )"
                    R"(write "response": "answer")",
                    column));
    row[column] = " ";
    EXPECT_EQ(failure_of("rows.jsonl", row.dump()), "") << "the column is empty";
  }
  EXPECT_EQ(failure_of("rows.jsonl", R"({"question": "q", "explanation": "six times seven", "answer": "42"})"), "");
}

// Congliu/Chinese-DeepSeek-R1-Distill-data-110k has replies in `content`. The rows of OpenAssistant/oasst1 are
// messages.
TEST_F(DataErrors, TextsThatAreAPartOfAConversation) {
  for (const char* column : {"question", "prompt", "query", "input"}) {
    nlohmann::ordered_json row = {{column, "q"}, {"content", "a"}, {"score", 1}};
    const std::string said = failure_of("rows.jsonl", row.dump());
    expect_says(said, fmt::format("the row has '{}' beside 'content'", column));
    expect_says(said, fmt::format(R"("columns": {{"prompt": "{}", "response": "content"}}; for plain texts)", column));
    row[column] = "";
    EXPECT_EQ(failure_of("rows.jsonl", row.dump()), "") << "the column is empty";
  }
  const std::string thought = R"({"input": "q", "content": "a", "reasoning_content": "t"})";
  expect_says(failure_of("rows.jsonl", thought), "(this leaves out 'reasoning_content'; to train the thoughts, write");
  spec.sets = {fmt::format(R"({{"file_name": "{}", "formatting": "text", "columns": {{"text": "content"}}}})",
                           folder.write("rows.jsonl", thought).string())};
  EXPECT_EQ(failure(), "") << "the entry says that the rows are texts";
  const std::string tree = R"({"text": "q", "role": "prompter", "parent_id": null})";
  expect_says(failure_of("rows.jsonl", tree), "belong to a message tree, so the text is only one message");
  spec.rows = RowKind::kTexts;
  for (const std::string& row : {thought, tree}) EXPECT_EQ(failure_of("rows.jsonl", row), "");
}

// Without its images, a row would train something else than it means.
TEST_F(DataErrors, RowsWithImagesVideosOrSound) {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], )";
  const std::string alpaca = R"({"instruction": "q", "output": "a", )";
  for (const std::string& row : {chat, alpaca, std::string(R"({"question": "q", "answer": "a", )")}) {
    expect_says(failure_of("a.jsonl", row + R"("images": ["a.png"]})"),
                "a.jsonl:1: the row has images (column 'images'), but Fettle trains on text only; leave such rows out");
    expect_says(failure_of("a.jsonl", row + R"("image": "a.png"})"), "the row has an image (column 'image')");
    expect_says(failure_of("a.jsonl", row + R"("image": {"bytes": null, "path": null}})"), "the row has an image");
    expect_says(failure_of("a.jsonl", row + R"("videos": [[1, 2]]})"), "the row has videos (column 'videos')");
    expect_says(failure_of("a.jsonl", row + R"("audios": ["a.wav"]})"), "the row has sound (column 'audios')");
  }
  expect_says(failure_of("a.csv", "instruction,output,images\nq,a,a.png\n"), "a.csv:2: the row has images");
  expect_says(failure_of("a.jsonl", alpaca + R"("Image": "a.png"})"), "the row has an image");
  const std::string question = R"({"question": "q", "answer": "a", )";
  for (const char* none : {"null", "[]", R"("")", "{}", "[null]", "false", "0", R"("nan")"})
    for (const char* column : {"images", "video", "audios"})
      for (const std::string& row : {alpaca, question})
        EXPECT_EQ(failure_of("a.jsonl", fmt::format(R"({}"{}": {}}})", row, column, none)), "") << column << none;
  EXPECT_EQ(failure_of("a.csv", "instruction,output,images\nq,a,[]\n"), "");
  const std::string text = folder.write("a.jsonl", R"({"image": "a red ball", "reply": "a"})").string();
  spec.sets = {R"({"file_name": ")" + text + R"(", "columns": {"prompt": "image", "response": "reply"}})"};
  EXPECT_EQ(failure(), "") << "the entry says that the column is a text";
  const auto beside_image = [&](const char* prompt) {
    const std::string file =
        folder.write("a.jsonl", fmt::format(R"({{"q": "{}", "a": "a", "image": "shop/mug.png"}})", prompt)).string();
    spec.sets = {R"({"file_name": ")" + file + R"(", "columns": {"prompt": "q", "response": "a"}})"};
    return failure();
  };
  EXPECT_EQ(beside_image("What is a mug?"), "") << "the entry names the columns with text";
  expect_says(beside_image("<image>What is this?"), "the row has an image");
}

TEST_F(DataErrors, RowsOfParquetFilesWithTheBytesOfImages) {
  for (const auto& [file, said] : {std::pair{"images.parquet", "an image (column 'image')"},
                                   {"image_bytes.parquet", "images (column 'images')"}}) {
    spec.on_bad_row = OnBadRow::kError;
    spec.sets = {(source_folder() / "tests/reference/data" / file).string()};
    expect_says(failure(), fmt::format("{}:1: the row has {}", file, said));
    spec.on_bad_row = OnBadRow::kSkip;
    EXPECT_EQ(load_datasets(spec, tokenizer, tokenizer.vocab_size()).report.bad_rows, 1) << "the second row has none";
  }
}

TEST_F(DataErrors, RowsWithImagesAreBadRows) {
  spec.on_bad_row = OnBadRow::kSkip;
  spec.sets = {folder.write("a.jsonl", "{\"text\": \"a\", \"images\": [\"a.png\"]}\n{\"text\": \"b\"}\n").string()};
  EXPECT_EQ(load_datasets(spec, tokenizer, tokenizer.vocab_size()).report.bad_rows, 1);
}

TEST_F(DataErrors, RowsOfAnUnknownOrWrongFormat) {
  struct Case {
    std::string row, reason;
  };
  const Case cases[] = {
      {R"({"id": 1, "Frage": "q", "Antwort": "a"})", "no known format has the columns [id, Frage, Antwort]"},
      {R"({"id": 1, "Frage": "q", "Antwort": "a"})", R"("columns": {"prompt": "Frage", "response": "Antwort"}})"},
      {R"({"User question": "q", "Reply": "a"})", R"("columns": {"prompt": "User question", "response": "Reply"}})"},
      {R"({"question": "q", "answer": "a", "choices": ["a", "b"]})", "no known format has the columns"},
      {R"({"context": "c", "question": "q", "answer": "a"})", "no known format has the columns"},
      {R"({"answers": "a", "id": 1})", R"("columns": {"prompt": "...", "response": "answers"}})"},
      {R"({"article": "a", "highlights": "h", "id": 1})", R"({"prompt": "article", "response": "highlights"}})"},
      {R"({"a": 1, "b": 2, "c": 3})", R"("columns": {"prompt": "...", "response": "..."}})"},
      {R"({"question_id": 1, "body": "b", "reply": "r"})", R"("columns": {"prompt": "body", "response": "reply"}})"},
      {R"({"id": "x", "system_prompt": "s", "question": "q", "response": "a"})",  // Open-Orca/OpenOrca
       R"("columns": {"prompt": "question", "response": "response", "system": "system_prompt"}})"},
      {R"({"system_prompt": "s", "user_prompt": "q", "response": "a"})",
       R"("columns": {"prompt": "user_prompt", "response": "response", "system": "system_prompt"}})"},
      {R"({"system": "s", "chat": "USER: q ASSISTANT: a"})",  // glaiveai/glaive-function-calling-v2
       R"("columns": {"prompt": "...", "response": "...", "system": "system"}})"},
      {R"({"query": "q", "id": 1, "answers": "[{\"name\": \"f\", \"arguments\": {}}]", "tools": "[]"})",  // xlam
       "The calls in 'answers' would be trained as text; write the rows as {\"conversations\": [{\"from\": \"human\""},
      {R"({"request": "q", "reply": "a", "functions": [], "history": []})",
       R"("columns": {"prompt": "request", "response": "reply", "tools": "functions", "history": "history"}})"},
      {R"({"request": "q", "reply": "a", "history": "the post"})", R"({"prompt": "request", "response": "reply"}})"},
      {R"({"input": [{"role": "user", "content": "q"}], "output": "a", "system_prompt": "s"})",  // Llama-Nemotron
       R"("columns": {"prompt": "...", "response": "output", "system": "system_prompt"}})"},
      {R"({"problem": "q", "generated_solution": "s", "expected_answer": "7", "problem_source": "x"})",
       R"("columns": {"prompt": "problem", "response": "generated_solution"}})"},
      {R"({"problem": "q", "expected_answer": "7", "trace": "s"})", R"({"prompt": "problem", "response": "..."}})"},
      {R"({"problem": "q", "expected_answer": "7"})", R"({"prompt": "problem", "response": "expected_answer"}})"},
      {R"({"prompt_type": "x", "prompt": "q", "reply": "a"})", R"({"prompt": "prompt", "response": "reply"}})"},
      {R"({"context": "c", "question": "q", "answer": "a"})",
       R"({"prompt": "question", "query": "context", "response": "answer"}})"},
      {R"({"instruction": "q"})", R"("columns": {"prompt": "instruction", "response": "..."}})"},
      {R"({"instruction": "q", "context": "c"})", "the column 'response' is missing; the row has instruction, context"},
      {R"({"instruction": "q", "context": "c", "response": "a", "choices": "b"})",
       R"("columns": {"prompt": "instruction", "query": "context", "response": "response"}})"},
      {R"({"instruction": "q", "input": "c", "response": "a"})",
       R"("columns": {"prompt": "instruction", "query": "input", "response": "response"}})"},
      {R"({"instruction": "q", "chosen": "a", "rejected": "b"})", "the row is a preference pair"},
      {R"({"instruction": "", "output": "a"})", "the row has no prompt: 'instruction' is empty"},
      {R"({"instruction": ["q"], "output": "a"})", "'instruction' must be a text, but it is array"},
      {R"({"instruction": "q", "output": 4.50})",
       "'output' is the number 4.5, but Fettle cannot tell how the file writes it"},
      {R"({"messages": [{"role": "user", "content": 1e3}]})", "'content' is the number 1000.0"},
      {R"({"instruction": "q", "output": "a", "history": ["x"]})", "messages, but it has \"x\"; to leave it out, name"},
      {R"({"prompt": "q", "completion": "a", "history": "the post"})",
       "'history' must be a list of [prompt, reply] or of messages, but it has \"the post\"; to leave it out, name"},
      {R"({"instruction": "q", "output": "a", "history": "{}"})", "messages, but it has \"{}\""},
      {R"({"conversations": []})", "the conversation has no messages"},
      {R"({"conversations": "x"})", "'conversations' must be an array"},
      {R"({"conversations": [{"from": "human", "value": "q"}]})", "ends with a turn of role 'user'"},
      {R"({"conversations": [{"from": "alien", "value": "q"}]})", "the role 'alien' is not known; use one of"},
      {R"({"conversations": [{"from": "human"}]})", "has no 'value'"},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": null, "tool_calls": 3}]})",
       "'tool_calls' must be an array"},
      {R"({"conversations": [{"from": "gpt", "value": "a"}]})", "no user or tool spoke before"},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "call f"}]})",
       "the function call is not valid JSON"},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"args\": {}}"}]})",
       "a function call has no 'arguments', but 'args'; rename the field to 'arguments': {\"name\":\"f\""},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "user", "content": "r"}]})", "both the user's"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       "messages 2 and 3 are both the assistant's"},
      {R"({"messages": null})", "the column 'messages' is null"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{bad"}}]}]})",
       "the arguments of a function call are not valid JSON: {bad"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "label": false})",
       "'label' is false: the reply is rated as bad, so the model must not learn it; set stage: kto"},
      {R"({"instruction": "q", "output": "a", "kto_tag": 0})", "'kto_tag' is 0: the reply is rated as bad"},
      {R"({"instruction": "q", "output": "a", "kto_tag": "false"})", "'kto_tag' is \"false\": the reply is rated"},
      {R"({"messages": [{"content": "q"}]})", "has no 'role'"},
      {R"({"messages": [{"role": "bot", "content": "q"}]})",
       "the role 'bot' is not known; use one of assistant developer function function_call gpt human ipython "
       "observation system tool tool_call tool_response user, or name it in an entry of dataset_info.json or of "
       "`dataset`: \"tags\": "
       "{\"assistant_tag\": [\"assistant\", \"gpt\", \"bot\"]}"},
      {R"({"messages": [{"role": "prompter", "content": "q"}]})",
       R"("tags": {"user_tag": ["human", "user", "prompter"]})"},
      {R"({"conversations": [{"from": "chatgpt", "value": "q"}]})",
       R"("tags": {"assistant_tag": ["assistant", "gpt", "chatgpt"]})"},
      {R"({"messages": [{"role": "function-call", "content": "q"}]})",
       R"("tags": {"function_tag": ["function_call", "tool_call", "function-call"]})"},
      {R"({"messages": [{"role": "function-response", "content": "q"}]})",
       R"("tags": {"observation_tag": ["observation", "tool", "tool_response", "function-response"]})"},
      {R"({"messages": [{"role": "alien", "content": "q"}]})", "or of `dataset`: its tag (user_tag, assistant_tag, "},
      {R"({"messages": [{"role": "user"}]})", "has no 'content'"},
      {R"({"messages": [7]})", "a message must be an object, but it is number"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})",
       "'content' has a part of type \"image_url\", but only text is supported"},
      {R"({"messages": [{"role": "user", "content": [{"type": 7, "value": "x"}]}]})",
       "'content' has a part of type 7, but only text is supported"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": -0.5}]})",
       "'weight' of a message must be from 0 to 1000, but it is -0.5"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "tools": "{"})",
       "'tools' is a text, but not valid JSON"},
      {R"({"prompt": null, "completion": "a"})", "'prompt' is null"},
      {R"({"prompt": "q", "chosen": "a", "rejected": "b"})",
       "the row is a preference pair ('chosen' and 'rejected'); set stage: dpo"},
      {R"({"messages": [{"role": "user", "content": null}, {"role": "assistant", "content": "a"}]})",
       "the 'content' of a message of role 'user' is null"},
      {R"({"input_ids": [1, "2"]})", "'input_ids' must hold 32-bit integers"},
      {R"({"input_ids": [1, -2]})", "holds -2, which is not a token id"},
      {R"({"input_ids": []})", "'input_ids' is empty"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "2 input_ids but 1 labels"},
      {R"({"input_ids": [1, 2], "labels": [1, 3]})", "label 2 is 3, but its token is 2"},
      {R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})", "attention_mask may have zeros only at its ends"},
      {R"({"input_ids": [1, 2], "assistant_masks": [1]})", "2 input_ids but 1 numbers in assistant_masks"},
      {R"({"input_ids": [1, 2], "completion_mask": [0, 2]})", "'completion_mask' must hold only 0 and 1"},
      {R"({"input_ids": [1, 2], "seq_lengths": [1, 2]})", "the sum of 'seq_lengths' is 3, but the row has 2 input_ids"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.row);
    const std::string said = failure_of("rows.jsonl", one.row + "\n");
    expect_says(said, one.reason);
    expect_says(said, "rows.jsonl:1: ");
  }
}

// A misspelt name would otherwise leave out a part of each prompt.
TEST_F(DataErrors, AColumnThatNoRowHas) {
  const std::string csv = "question,context,response\nq,c,a\nr,d,b\n";
  const auto entry = [&](const std::string& text, const std::string& columns, const std::string& more = "") {
    spec.sets = {fmt::format(R"({{"file_name": "{}", "columns": {{{}}}{}}})", folder.write("rows.csv", text).string(),
                             columns, more)};
    return failure();
  };
  const std::string prompt = R"("prompt": "question", "response": "response")";
  expect_says(entry(csv, prompt + R"(, "query": "contxt")"),
              "`columns` names 'contxt' for `query`, but no row has this column (did you mean 'context'?); correct the "
              "name, or remove `query`");
  for (const char* part : {"system", "history", "kto_tag"})
    expect_says(entry(csv, prompt + fmt::format(R"(, "{}": "other")", part)),
                fmt::format("names 'other' for `{}`, but no row has this column; correct", part));
  EXPECT_EQ(entry(csv, prompt + R"(, "tools": "other")"), "") << "sets with and without tools may share an entry";
  EXPECT_EQ(entry(csv, prompt + R"(, "query": "context", "system": "system")"), "");
  EXPECT_EQ(entry(csv, prompt + R"(, "query": "contxt")", R"(, "formatting": "alpaca_prompt")"), "")
      << "Axolotl's rows may lack the input";
  spec.max_samples = 1;
  EXPECT_EQ(entry(csv, prompt + R"(, "query": "contxt")"), "");
  const std::vector<std::string> notes = load_datasets(spec, tokenizer, tokenizer.vocab_size()).report.notes;
  ASSERT_FALSE(notes.empty());
  expect_says(notes[0], "no row that was read has this column (did you mean 'context'?)");
}

// In other rows, `label` is the label of a class.
TEST_F(DataErrors, ALabelOfOtherKindsDoesNotRateTheReply) {
  for (const char* mark : {R"("label": 0)", R"("label": "no")", R"("label": "False")", R"("label": true)",
                           R"("kto_tag": 1)", R"("kto_tag": " ")", R"("kto_tag": null, "label": null)"})
    EXPECT_EQ(failure_of("a.jsonl", std::string(R"({"instruction": "q", "output": "a", )") + mark + "}\n"), "") << mark;
  for (const char* bad : {"False", "FALSE", "false"}) {
    const std::string beside = fmt::format(",{}\n", bad), good = std::string(",True\n");
    expect_says(failure_of("a.csv", "prompt,completion,label\nq,a" + good + "q,b" + beside),
                fmt::format("a.csv:3: 'label' is \"{}\": the reply is rated as bad", bad));
    expect_says(failure_of("a.csv", "instruction,output,kto_tag\nq,a" + beside),
                fmt::format("'kto_tag' is \"{}\": the reply is rated as bad", bad));
  }
  folder.write("dataset_info.json", R"({"mine": {"file_name": "a.jsonl", "columns": {"prompt": "q", "response": "a",
                                        "kto_tag": "label"}}})");
  folder.write("a.jsonl", R"({"q": "q", "a": "a", "label": 0})");
  spec.sets = {"mine"};
  expect_says(failure(), "'label' is 0: the reply is rated as bad");
}

// A row with an empty reply is left out and counted, in all formats.
TEST_F(DataErrors, RowsWithAnEmptyReplyAreLeftOut) {
  for (const char* row : {R"({"instruction": "q", "output": ""})", R"({"instruction": "q", "output": null})",
                          R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": " "}]})",
                          R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": null}]})",
                          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]})",
                          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null}]})",
                          R"({"prompt": "q", "completion": ""})", R"({"prompt": "q", "completion": null})"}) {
    SCOPED_TRACE(row);
    const std::string said = failure_of("rows.jsonl", std::string(row) + "\n");
    expect_says(said, "none of the 1 rows has a trained token left (1 dropped, 0 bad)");
    expect_says(said, "rows.jsonl:1: a reply is empty, so there is nothing to learn");
  }
}

TEST_F(DataErrors, TheFirstBadRowIsNamedWhateverThreadRunsFirst) {
  std::string text;
  for (int i = 1; i <= 3000; ++i) text += i % 1000 == 0 ? "{\"nothing\": 1}\n" : "{\"text\": \"a\"}\n";
  expect_says(failure_of("a.jsonl", text), "a.jsonl:1000:");
  // The row with invalid JSON comes after a row of no known format. The error names the first of the two.
  expect_says(failure_of("a.jsonl", "{\"nothing\": 1}\n{broken\n"), "a.jsonl:1: no known format");
}

TEST_F(DataErrors, IdsBeyondTheVocabulary) {
  expect_says(failure_of("a.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 99999]}\n"),
              "a.jsonl:2: token id 99999 ('') is beyond the model's vocabulary of 258");
}

TEST_F(DataErrors, NothingLeftToTrain) {
  expect_says(failure_of("a.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n"),
              "none of the 1 rows has a trained token");
  expect_says(failure(), "a.jsonl:1: no token is trained");
  spec.cutoff_len = 4;
  expect_says(failure_of("a.jsonl", "{\"prompt\": \"a long question\", \"completion\": \"a\"}\n"),
              "no trained token is left");
}

TEST_F(DataErrors, TooLongUnderOverlengthError) {
  spec.cutoff_len = 4;
  spec.overlength = Overlength::kError;
  expect_says(
      failure_of("a.jsonl",
                 "{\"prompt\": \"q\", \"completion\": \"a\"}\n{\"prompt\": \"q\", \"completion\": \"too long\"}\n"),
      "a.jsonl:2: 10 tokens are more than cutoff_len 4");
}

TEST_F(DataErrors, ColumnsWithoutAnything) {
  expect_says(failure_of("a.jsonl", "{\"prompt\": null, \"completion\": null}\n"), "a.jsonl:1: 'prompt' is null");
}

TEST_F(DataErrors, TextAfterTheArrayOfRows) {
  expect_says(failure_of("a.json", "[{\"prompt\": \"q\", \"completion\": \"a\"}]\n\n[1]"),
              "a.json:3: the file continues after the ] of its array");
  spec.sets = {folder.write("b.json", "[{\"prompt\": \"q\", \"completion\": \"a\"}] \n\n").string()};
  EXPECT_EQ(failure(), "");
}

TEST_F(DataErrors, NumbersBeyondAnyRange) {
  expect_says(failure_of("a.jsonl", "{\"prompt\": 1e999}\n"), "a.jsonl:1: not valid JSON: a number is too large");
}

// Copying a value that is nested so deeply would overflow the stack.
TEST_F(DataErrors, JsonInAStringMayNotNestDeeperThanARow) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  auto row = [&](const std::string& call) {
    return R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": )" +
           nlohmann::json(call).dump() + "}]}";
  };
  expect_says(failure_of("a.jsonl", row(deep)), "the function call is not valid JSON");
  expect_says(failure_of("a.jsonl", row(R"({"name": "f", "arguments": )" + deep + "}")),
              "the function call is not valid JSON");
  expect_says(failure_of("a.jsonl", R"({"prompt": "q", "completion": "a", "tools": ")" + deep + R"("})"),
              "'tools' is a text, but not valid JSON");
}

TEST_F(DataErrors, ToolsOfAWrongType) {
  const std::string head = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")";
  expect_says(failure_of("a.jsonl", head + R"(, "tool_calls": "x"}]})"), "'tool_calls' is a text, but not valid JSON");
  expect_says(failure_of("a.jsonl", head + R"(, "tool_calls": "{}"}]})"),
              "'tool_calls' must be an array, but it is object");
  expect_says(failure_of("a.jsonl", head + R"(, "tool_calls": [3]}]})"), "'tool_calls' must hold objects");
  expect_says(failure_of("a.jsonl", head + R"(}], "tools": [3]})"), "'tools' must hold objects, but one is number");
}

TEST_F(DataErrors, ValidationSplitThatLeavesNoTrainingRows) {
  spec.val_size = 1;
  expect_says(failure_of("a.jsonl", "{\"text\": \"a\"}\n"),
              "val_size: 1 leaves no rows to train on, out of 1 rows; make val_size smaller, or name held-out rows");
}

TEST_F(DataErrors, ConversationsInStagePt) {
  spec.rows = RowKind::kTexts;
  expect_says(failure_of("a.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\"}\n"),
              "is a conversation, but the stage reads plain texts");
}

TEST_F(DataErrors, TemplateFailuresNameTheRow) {
  spec.template_name = "mistral";
  expect_says(
      failure_of(
          "a.jsonl",
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
      "a.jsonl:1: the template mistral does not render");
}

TEST_F(DataErrors, DatasetInfo) {
  auto info = [&](const std::string& text) {
    folder.write("dataset_info.json", text);
    spec.sets = {"mine"};
    return failure();
  };
  folder.write("rows.json", R"([{"text": "a"}])");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "format": "sharegpt"}})"),
              "the key 'format' is not known (did you mean 'formatting'?)");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "columns": {"promt": "x"}}})"), "did you mean 'prompt'?");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "tags": {"role": "x"}}})"), "the key 'role' is not known");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "formatting": "chat"}})"),
              "use one of alpaca, sharegpt, openai, alpaca_prompt, text");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "sample_by": "page"}})"),
              "mine.sample_by: 'page' is not known; use one of line, paragraph, document");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "columns": {"text": "text"}}})"),
              "neither `prompt` and `response` nor `messages` is among them");
  expect_says(
      info(R"({"mine": {"file_name": "rows.json", "columns": {"prompt": "a", "images": "pictures"}}})"),
      "mine.columns.images: rows with images cannot be used, because Fettle trains on text only; leave the data "
      "set out, or, if the column 'pictures' is empty in all rows, remove the key");
  auto prompt = [&](const std::string& text) {
    return info(R"({"mine": {"file_name": "rows.json", "formatting": "alpaca_prompt", "prompt": )" + text + "}}");
  };
  expect_says(prompt(R"({"format": "{instruction} {inputs}"})"),
              "mine.prompt.format: found {inputs}, but only {instruction} and {input} may be used");
  expect_says(prompt(R"({"no_input_format": "{instruction} {input}"})"),
              "mine.prompt.no_input_format: found {input}, but only {instruction} may be used");
  expect_says(prompt(R"({"system_format": "{system"})"), "mine.prompt.system_format: found {, but only {system}");
  expect_says(prompt(R"({"formt": ""})"), "did you mean 'format'?");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "prompt": {}}})"),
              "mine.prompt: belongs to formatting: alpaca_prompt, found alpaca");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "drop_system": "yes"}})"),
              "mine.drop_system: found \"yes\", wanted true or false");
  expect_says(info(R"({"mine": {"file_name": "gone.json"}})"), "gone.json: there is no such file");
  expect_says(info(R"({"mine": {"hf_hub_url": "someone/set"}})"),
              "mine: Fettle cannot fetch the data set; download it yourself, and set file_name to the path");
  expect_says(info(R"({"mine": {}})"), "file_name is missing");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "num_samples": -1}})"),
              "num_samples: found -1, wanted a count above 0");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "ranking": true}})"),
              "mine holds preference pairs (`ranking: true` in dataset_info.json), but this stage reads conversations "
              "and texts");
  expect_says(info(R"({"mine": {"file_name": "rows.json", "ranking": 1}})"), "ranking: found 1, wanted true or false");
  expect_says(info(R"({"mines": {"file_name": "rows.json"}})"), "did you mean 'mines'?");
  expect_says(info("{"), "dataset_info.json: ");
}

}  // namespace
}  // namespace fettle
