// Runs fettle tokenize and fettle render as a user does: their output, and their messages for bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.h"
#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::HasSubstr;

const std::string kLlama3 = (source_folder() / "tests/reference/tokenizer/llama3").string();

class TextCommands : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    write_text(folder / name, text);
    return (folder / name).string();
  }
  Outcome run(std::vector<std::string> words) { return run_fettle(folder, words); }

  TempFolder folder;
};

TEST_F(TextCommands, TokenizePrintsOneArrayPerLine) {
  const std::string lines = file("lines", "a\nHello, world!\n\n<|eot_id|>");
  EXPECT_EQ(run({"tokenize", kLlama3, lines, "--no-special"}).out,
            "[64]\n[39,523,400,11,220,265,75,67,0]\n[]\n[904]\n");
  EXPECT_EQ(run({"tokenize", kLlama3, lines}).out, "[900,64]\n[900,39,523,400,11,220,265,75,67,0]\n[900]\n[900,904]\n");
}

TEST_F(TextCommands, TokenizeReadsAndWritesJsonStrings) {
  const std::string text = "two\nlines \u00e9\t\U0001F600 <|eot_id|>";
  const std::string line = nlohmann::json(text).dump() + "\n";
  const Outcome ids = run({"tokenize", kLlama3, file("text.jsonl", line), "--jsonl"});
  ASSERT_EQ(ids.code, 0) << ids.err;
  const std::string back = file("ids", ids.out);
  EXPECT_EQ(run({"tokenize", kLlama3, back, "--decode", "--jsonl"}).out,
            nlohmann::json("<|begin_of_text|>" + text).dump() + "\n");
  EXPECT_EQ(run({"tokenize", kLlama3, back, "--decode", "--no-special"}).out, text.substr(0, text.size() - 10) + "\n");
}

TEST_F(TextCommands, TokenizeNamesTheLineThatIsWrong) {
  struct Case {
    std::string text, option, said;
  };
  const Case cases[] = {
      {"\"a\"\nb\n", "--jsonl", "lines:2: wanted a JSON string"},
      {"\"a\"\n1\n", "--jsonl", "lines:2: wanted a JSON string"},
      {"\"\\ud800\"\n", "--jsonl", "lines:1: wanted a JSON string"},
      {"[1]\n\"a\"\n", "--decode", "lines:2: wanted a JSON array of ids"},
      {"[1, 1.5]\n", "--decode", "lines:1: 1.5 is not a token id"},
      {"[-1]\n", "--decode", "lines:1: -1 is not a token id"},
      {"[4294967297]\n", "--decode", "lines:1: 4294967297 is not a token id"},
      {"[[1]]\n", "--decode", "lines:1: [1] is not a token id"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    const Outcome outcome = run({"tokenize", kLlama3, file("lines", one.text), one.option});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(one.said));
  }
}

TEST_F(TextCommands, NestedGarbageDoesNotCrash) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  const Outcome ids = run({"tokenize", kLlama3, file("ids", deep + "\n"), "--decode"});
  EXPECT_EQ(ids.code, 2);
  EXPECT_THAT(ids.err, HasSubstr("ids:1: wanted a JSON array of ids"));
  const Outcome talk = run({"render", kLlama3, file("talk.json", "{\"messages\": " + deep + "}")});
  EXPECT_EQ(talk.code, 2);
  EXPECT_THAT(talk.err, HasSubstr("talk.json: is not valid JSON: values are nested more than 100 deep"));
}

TEST_F(TextCommands, MissingFilesAndFoldersAreRefused) {
  for (const char* command : {"tokenize", "render"}) {
    for (const std::string& none : {folder.path().string(), (folder / "missing").string()}) {
      const Outcome outcome = run({command, kLlama3, none});
      EXPECT_EQ(outcome.code, 2) << command;
      EXPECT_THAT(outcome.err, HasSubstr(none + ": cannot be read"));
    }
  }
  EXPECT_THAT(run({"tokenize", folder.path().string(), file("x", "a")}).err,
              HasSubstr("there is no tokenizer in this folder"));
}

TEST_F(TextCommands, RenderTakesAModelFolder) {
  const std::string talk = file("talk.json", R"({"messages": [{"role": "user", "content": "Hi <b>"}]})");
  const std::string tools = file("tools.json", R"({"messages": [], "tools": [1]})");
  EXPECT_EQ(run({"render", kLlama3, talk}).out, "<|begin_of_text|>Hi <b>");
  EXPECT_EQ(run({"render", kLlama3, tools}).out, "tools: [1]");
  EXPECT_EQ(run({"render", kLlama3, talk, "--name", "tool_use"}).out, "tools: None");
  EXPECT_THAT(run({"render", kLlama3, talk, "--name", "rag"}).err, HasSubstr("default, tool_use"));
}

// As in Transformers.
TEST_F(TextCommands, RenderLeavesOutNullsAndAddsTheNamesOfAThought) {
  const std::string source = file("t.jinja", "{% for m in messages %}{{ m | tojson }}{% endfor %}");
  const auto rendered = [&](const std::string& message) {
    return run({"render", source, file("talk.json", "{\"messages\": [" + message + "]}")}).out;
  };
  EXPECT_EQ(rendered(R"({"content": null, "name": null, "tool_calls": [{"id": null}]})"),
            R"({"tool_calls": [{"id": null}]})");
  EXPECT_EQ(rendered(R"({"reasoning": "r", "thinking": null})"),
            R"({"reasoning": "r", "thinking": "r", "reasoning_content": "r"})");
  EXPECT_EQ(rendered(R"({"thinking": "t", "reasoning_content": "c"})"),
            R"({"thinking": "t", "reasoning_content": "c"})");
}

TEST_F(TextCommands, RenderGivesTheModelsNamedTokens) {
  write_text(folder / "model/tokenizer_config.json", R"({"cls_token": "[C]", "sep_token": {"content": "[S]"},
      "mask_token": "[M]", "image_token": "<i>", "pad_token": null})");
  write_text(folder / "model/chat_template.jinja",
             "{{ cls_token ~ sep_token ~ mask_token ~ image_token ~ (pad_token is defined) }}");
  const Outcome text = run({"render", (folder / "model").string(), file("talk.json", R"({"messages": []})")});
  EXPECT_EQ(text.out, "[C][S][M]<i>False") << text.err;
}

// In training, templates get the same tokens.
TEST_F(TextCommands, RenderGivesTheTokensThatTheClassAndTheModelsConfigName) {
  const std::filesystem::path model = folder / "model";
  write_text(model / "chat_template.jinja", "{{ bos_token }}|{{ eos_token }}");
  std::filesystem::copy(source_folder() / "tests/reference/tokenizer/gpt2/tokenizer.json", model / "tokenizer.json");
  const std::string talk = file("talk.json", R"({"messages": []})");
  write_text(model / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(run({"render", model.string(), talk}).out, "<|endoftext|>|<|endoftext|>");
  write_text(model / "tokenizer_config.json", R"({"bos_token": "a"})");
  write_text(model / "config.json", R"({"model_type": "llama", "eos_token_id": 700})");
  EXPECT_EQ(run({"render", model.string(), talk}).out, "a|<|endoftext|>");
}

TEST_F(TextCommands, RenderTakesAGgufModel) {
  const Environment cache("FETTLE_CACHE", (folder / "cache").string());
  write_text(folder / "model/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  std::filesystem::copy(source_folder() / "tests/reference/gguf/models/llama.gguf", folder / "model/x.gguf");
  const std::string talk = file("talk.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  for (const std::string& name : {(folder / "model").string(), (folder / "model/x.gguf").string()}) {
    const Outcome text = run({"render", name, talk});
    EXPECT_EQ(text.out, "<user>Hi") << text.err;
  }
}

TEST_F(TextCommands, RenderOfAFileNamesLineAndReason) {
  const std::string text = file("t.jinja", "{{ bos_token }}\n{% for m in messages %}\n{{ m.content + 1 }}{% endfor %}");
  const std::string talks = file("talks.jsonl", R"({"messages": [{"content": 1}], "bos_token": "<s>"})"
                                                "\n"
                                                R"({"messages": [{"content": "a"}]})"
                                                "\n[]\n");
  const Outcome outcome = run({"render", text, talks, "--jsonl"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, testing::StartsWith("\"<s>\\n2\"\n"));
  EXPECT_THAT(outcome.out, HasSubstr("t.jinja:3: unsupported operand"));
  EXPECT_THAT(outcome.out, HasSubstr("talks.jsonl:3: wanted an object with"));
  EXPECT_THAT(run({"render", file("x.jinja", "a\xff"), talks, "--jsonl"}).err, HasSubstr("x.jinja: not valid UTF-8"));
  EXPECT_THAT(run({"render", text, file("bad.json", "{\"messages\": [")}).err,
              HasSubstr("bad.json: is not valid JSON: the text ends too early"));
  EXPECT_THAT(run({"render", text, talks}).err,
              HasSubstr("syntax error at line 2, column 1, at `{\"messages\": [{\"cont`; for a "
                        "file with one object per line, add --jsonl"));
}

TEST_F(TextCommands, UnknownWordsPointToTheRightHelp) {
  struct Case {
    std::vector<std::string> words;
    std::string said;
  };
  for (const auto& [words, said] : std::vector<Case>{
           {{"trian", "x.yaml"}, "'trian' is not a command (did you mean 'train'?); commands are train, launch, plan,"},
           {{"foo"}, "'foo' is not a command; commands are train, launch, plan,"},
           {{"data", "x.yaml", "--rows", "-1"}, "--rows: -1 is not a number of rows; see `fettle data --help`"},
           {{"data", "x.yaml", "--rowz", "1"},
            "--rowz: neither a flag of this command nor a recipe key; did you mean '--rows'?"},
           {{"data", "x.yaml", "--rows", "abc"}, "--rows: 'abc' is not a whole number; see `fettle data --help`"},
           {{"render", "x"}, "messages is missing; an example is `fettle render models/base talk.json`"},
           {{"help", "trian"}, "'trian' is not a command (did you mean 'train'?)"},
           {{}, "no command is given; see `fettle --help`"},
           {{"devices", "qqqqqqqqqqq=1"}, "unknown key 'qqqqqqqqqqq'; the command's --help-keys lists all keys"},
           {{"serve", "model_name_or_path=m", "port=1"}, "unknown key 'port'; did you mean the flag '--port VALUE'?"},
           {{"serve", "lora_modules=a=b"}, "unknown key 'lora_modules'; did you mean the flag '--lora-modules VALUE'?"},
           {{"plan", "x.yaml", "shards=true"}, "unknown key 'shards'; did you mean the flag '--shards'?"},
           {{"plan", "x.yaml", "--shards", "--fit", "batch"}, "see `fettle plan --help`"},
           {{"plan", "target=mi300x:8", "--target", "h100:8"},
            "--target h100:8 and target=mi300x:8 are given together"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace fettle
