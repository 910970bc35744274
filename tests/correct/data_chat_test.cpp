#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "data/chat/chat.h"
#include "data_fixtures.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

const std::vector<Message> kTalk = {{.role = "system", .content = "Be brief."},
                                    {.role = "user", .content = "Hi"},
                                    {.role = "assistant", .content = "Hello."},
                                    {.role = "user", .content = "2+2?"},
                                    {.role = "assistant", .content = "4"}};

struct Shown {
  std::string text;  // the row, with trained parts in [[ ]]
  std::vector<int32_t> ids;
};

Shown show(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<Message>& messages) {
  Shown out;
  for (const auto& piece : chat.render({messages})) {
    const std::string text = tokenizer.decode(piece.ids, false);
    out.text += piece.trained ? "[[" + text + "]]" : text;
    out.ids.insert(out.ids.end(), piece.ids.begin(), piece.ids.end());
  }
  return out;
}

// Checks for every assistant turn that the row's tokens begin with the tokens of the turn's prompt.
void expect_prompts_begin_rows(const ChatTemplate& chat, const std::vector<Message>& messages) {
  for (size_t turn = 0; turn < messages.size(); ++turn) {
    if (messages[turn].role != "assistant") continue;
    const std::vector<Message> upto(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(turn) + 1);
    const std::vector<Message> before(upto.begin(), upto.end() - 1);
    std::vector<int32_t> row;
    const auto pieces = chat.render({upto});
    size_t last = pieces.size();
    while (last > 0 && !pieces[last - 1].trained) --last;
    ASSERT_GT(last, 0u);
    for (size_t n = 0; n + 1 < last; ++n) row.insert(row.end(), pieces[n].ids.begin(), pieces[n].ids.end());
    EXPECT_EQ(chat.prompt({before}), row);
  }
}

std::string roles(const ChatTemplate& chat, const std::vector<Message>& messages) {
  std::string out;
  for (const auto& piece : chat.render({messages})) out += piece.role + " ";
  return out;
}

TEST(ChatTemplate, MessagesAreDistinguishedByTheirEnds) {
  const Tokenizer tokenizer = TestTokenizer{.special = {"<s>", "</s>", "<|im_end|>"}}.open();
  const ChatTemplate chatml("chatml", tokenizer), mistral("mistral", tokenizer);
  EXPECT_EQ(roles(chatml, kTalk), "system user assistant user assistant template ");
  // Mistral's template puts the system text into the user's turn.
  EXPECT_EQ(roles(mistral, kTalk), "user assistant user assistant ");
  std::vector<Message> talk = kTalk;
  talk[0].content = "an end<|im_end|>within";
  EXPECT_EQ(roles(chatml, talk), "user assistant user assistant template ");
}

struct BuiltIn {
  std::string name, text;
  std::vector<std::string> special;
};

TEST(ChatTemplate, BuiltInsWriteTheirFormats) {
  const BuiltIn cases[] = {
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
       "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi"
       "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[[Hello.<|eot_id|>]]<|start_header_id|>user"
       "<|end_header_id|>\n\n2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[[4<|eot_id|>]]",
       {"<|eot_id|>"}},
      {"chatml",
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
       "[[Hello.<|im_end|>]]\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n[[4<|im_end|>]]\n",
       {"<|im_end|>"}},
      {"llama2",
       "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST][[ Hello. </s>]]<s>[INST] 2+2? [/INST][[ 4 </s>]]",
       {}},
      {"mistral", "<s>[INST] Be brief.\n\nHi[/INST][[ Hello.</s>]][INST] 2+2?[/INST][[ 4</s>]]", {}},
      {"gemma",
       "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n[[Hello.<end_of_turn>]]\n"
       "<start_of_turn>user\n2+2?<end_of_turn>\n<start_of_turn>model\n[[4<end_of_turn>]]\n",
       {"<end_of_turn>"}},
      {"phi3",
       "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n[[Hello.<|end|>]]\n<|user|>\n2+2?<|end|>\n"
       "<|assistant|>\n[[4<|end|>]]\n",
       {"<|end|>"}},
      {"alpaca",
       "Be brief.\n\n### Instruction:\nHi\n\n### Response:\n[[Hello.</s>]]\n\n### Instruction:\n2+2?\n\n### Response:\n"
       "[[4</s>]]",
       {}},
      {"vicuna", "Be brief. USER: Hi ASSISTANT:[[ Hello.</s>]]USER: 2+2? ASSISTANT:[[ 4</s>]]", {}},
      {"oasst",
       "<|system|>Be brief.<|endoftext|><|prompter|>Hi<|endoftext|><|assistant|>[[Hello.<|endoftext|>]]<|prompter|>2+2?"
       "<|endoftext|><|assistant|>[[4<|endoftext|>]]",
       {"<|endoftext|>"}},
      {"default",
       "System: Be brief.</s>\nHuman: Hi\nAssistant:[[ Hello.</s>]]\nHuman: 2+2?\nAssistant:[[ 4</s>]]\n",
       {}},
      {"none", "Be brief.Hi[[Hello.</s>]]2+2?[[4</s>]]", {}},
  };
  for (const BuiltIn& one : cases) {
    SCOPED_TRACE(one.name);
    TestTokenizer files;
    files.special.insert(files.special.end(), one.special.begin(), one.special.end());
    const Tokenizer tokenizer = files.open();
    const ChatTemplate chat(one.name, tokenizer);
    EXPECT_EQ(show(chat, tokenizer, kTalk).text, one.text);
    expect_prompts_begin_rows(chat, kTalk);
    ASSERT_FALSE(chat.stop_ids().empty());
    EXPECT_EQ(chat.reply_end(), *tokenizer.token_id(one.special.empty() ? "</s>" : one.special[0]));
    EXPECT_EQ(chat.counts().without_end, 0);
  }
}

// The recipe may have the text of a template. It is used like the text in the model's folder, also for tools.
TEST(ChatTemplate, ATextOfTheRecipeReplacesTheModelsOwn) {
  const std::string text =
      "{% for m in messages %}{{ m.role }}:{{ m.content }}<|end|>{% endfor %}{% if tools %}{{ tools | length }}"
      "{% endif %}{% if add_generation_prompt %}assistant:{% endif %}";
  const TestTokenizer with{.special = {"<s>", "</s>", "<|end|>"}},
      own{.special = with.special, .chat_template = "{{ 1 }}"};
  for (const TestTokenizer& files : {with, own}) {
    const Tokenizer tokenizer = files.open();
    const ChatTemplate chat(text, tokenizer);
    const std::vector<Message> talk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Yo"}};
    EXPECT_EQ(show(chat, tokenizer, talk).text, "user:Hi<|end|>assistant:[[Yo<|end|>]]");
    EXPECT_EQ(chat.prompt_text({{talk[0]}, R"([{"name": "f"}])"}), "user:Hi<|end|>1assistant:");
    EXPECT_EQ(chat.reply_end(), tokenizer.token_id("<|end|>"));
  }
}

TEST(ChatTemplate, BuiltInsHaveTheirSystemText) {
  TestTokenizer files;
  files.special.push_back("<|im_end|>");
  const Tokenizer tokenizer = files.open();
  const std::vector<Message> ask = {{.role = "user", .content = "Hi"}};
  EXPECT_EQ(ChatTemplate("qwen", tokenizer).prompt_text({ask}),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(ChatTemplate("alpaca", tokenizer).prompt_text({ask}).starts_with("Below is an instruction"));
  EXPECT_EQ(ChatTemplate("chatml", tokenizer).prompt_text({ask}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, BosIsWrittenOnce) {
  const TestTokenizer adds{
      .chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
      .adds_bos = true};
  const Tokenizer tokenizer = adds.open();
  const std::vector<Message> talk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Yo"}};
  for (const char* name : {"", "llama2", "mistral", "alpaca", "vicuna", "none"}) {
    SCOPED_TRACE(name);
    const auto ids = show(ChatTemplate(name, tokenizer), tokenizer, talk).ids;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.bos_id()), 1);
    EXPECT_EQ(ids[0], *tokenizer.bos_id());
  }
}

TEST(ChatTemplate, GetsAllTokensThatHaveAName) {
  const TempFolder folder;
  TestTokenizer{.chat_template = "{{ cls_token }}|{{ sep_token }}|{{ image_token }}|{{ mask_token is defined }}"}.save(
      folder.path());
  const auto file = folder.path() / "tokenizer_config.json";
  auto config = nlohmann::json::parse(std::ifstream(file));
  config.update({{"cls_token", "<s>"}, {"sep_token", "</s>"}, {"image_token", "a"}, {"mask_token", nullptr}});
  std::ofstream(file) << config;
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  EXPECT_EQ(ChatTemplate("", tokenizer).text({{{.role = "user", .content = "Hi"}}}), "<s>|</s>|a|False");
}

constexpr const char* kPlainChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

TestTokenizer chatml_tokenizer(const std::string& chat_template) {
  return {.special = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"},
          .bos = "",
          .eos = "<|endoftext|>",
          .chat_template = chat_template};
}

TEST(ChatTemplate, PrefixesFindTheSameTurnsAsMarks) {
  const Tokenizer tokenizer = chatml_tokenizer(kPlainChatml).open();
  const ChatTemplate own("", tokenizer), built_in("chatml", tokenizer);
  EXPECT_EQ(show(own, tokenizer, kTalk).text, show(built_in, tokenizer, kTalk).text);
  expect_prompts_begin_rows(own, kTalk);
  // The token that ends a turn is a stop token in addition to eos.
  EXPECT_EQ(own.stop_ids(),
            (std::vector<int32_t>{*tokenizer.token_id("<|endoftext|>"), *tokenizer.token_id("<|im_end|>")}));
}

TEST(ChatTemplate, MarksWithoutTheEndOfTurnAreExtendedOverIt) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
          "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}")
          .open();
  EXPECT_EQ(
      show(ChatTemplate("", tokenizer), tokenizer, kTalk).text,
      "<|im_start|>system:Be brief.<|im_end|><|im_start|>user:Hi<|im_end|><|im_start|>assistant:[[Hello.<|im_end|>]]"
      "<|im_start|>user:2+2?<|im_end|><|im_start|>assistant:[[4<|im_end|>]]");
}

TEST(ChatTemplate, UntrainedTurnsAreMasked) {
  const Tokenizer tokenizer = chatml_tokenizer(kPlainChatml).open();
  auto talk = kTalk;
  talk[2].train = false;
  const std::string text = show(ChatTemplate("", tokenizer), tokenizer, talk).text;
  EXPECT_EQ(text.find("[[Hello"), std::string::npos);
  EXPECT_NE(text.find("[[4<|im_end|>]]"), std::string::npos);
}

// Like Qwen 3's template, this template shows thinking only in the turns after the last question.
TEST(ChatTemplate, TemplatesThatDropEarlierThinking) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
          "{% set text = m.content.split('</think>')[-1].lstrip('\\n') %}"
          "{% set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') if '</think>' in "
          "m.content else '' %}"
          "{% if loop.last %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' + text }}{% else %}{{ text }}{% endif %}"
          "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  auto talk = kTalk;
  talk[2].content = "<think>\ngreet\n</think>\n\nHello.";
  talk[4].content = "<think>\nadd\n</think>\n\n4";
  EXPECT_EQ(show(chat, tokenizer, talk).text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            "[[Hello.<|im_end|>]]\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
            "[[<think>\nadd\n</think>\n\n4<|im_end|>]]\n");
  EXPECT_EQ(chat.counts().rewritten, 1);
}

TEST(ChatTemplate, TurnsOfToolCallsAreFoundAmongDroppedThinking) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
          "{% if m.role == 'assistant' and loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ m.content }}"
          "{% for c in m.tool_calls or [] %}{% if m.content %}{{ '\\n' }}{% endif %}{{ c.function.name }}{% endfor %}"
          "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  const std::vector<Message> talk = {
      {.role = "user", .content = "?"},
      {.role = "assistant", .extra_json = R"({"tool_calls":[{"function":{"name":"f"}}]})"},
      {.role = "tool", .content = "7"},
      {.role = "assistant", .content = "Seven."}};
  EXPECT_EQ(show(chat, tokenizer, talk).text,
            "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n[[f<|im_end|>]]\n<|im_start|>tool\n7<|im_end|>\n"
            "<|im_start|>assistant\n[[<think>\n\n</think>\n\nSeven.<|im_end|>]]\n");
}

TEST(ChatTemplate, WithTwoEndTokensTheFirstIsTrained) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant:' }}{% else %}{{ eos_token }}{% endif %}")
          .open();
  const std::vector<Message> talk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Yo"}};
  EXPECT_EQ(show(ChatTemplate("", tokenizer), tokenizer, talk).text,
            "<|im_start|>user:Hi<|im_end|>\n<|im_start|>assistant:[[Yo<|im_end|>]]\n<|endoftext|>");
}

// Like DeepSeek R1's template, this template opens a thinking block at the end of the prompt.
TEST(ChatTemplate, PromptsThatOpenThinkingAreCounted) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant:<think>\\n' }}{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  const std::vector<Message> talk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Yo"}};
  EXPECT_EQ(show(chat, tokenizer, talk).text, "<|im_start|>user:Hi<|im_end|><|im_start|>assistant:[[Yo<|im_end|>]]");
  EXPECT_EQ(chat.counts().prompt_thinks, 1);
}

// Like DeepSeek R1's template, this template leaves out every thought.
TEST(ChatTemplate, ThoughtsThatTheTemplateLeavesOutAreCounted) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content.split('</think>')[-1] + '<|im_end|>' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant:<think>\n' }}{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  const Message question{.role = "user", .content = "Hi"};
  const Message field{.role = "assistant", .content = "Yo", .extra_json = R"({"reasoning": "greet"})"};
  const Message tags{.role = "assistant", .content = "<think>\ngreet\n</think>Yo"};
  for (const Message& reply : {field, tags})
    EXPECT_EQ(show(chat, tokenizer, {question, reply}).text,
              "<|im_start|>user:Hi<|im_end|><|im_start|>assistant:[[Yo<|im_end|>]]");
  EXPECT_EQ(chat.counts().lost_thoughts, 2);
  EXPECT_EQ(chat.counts().prompt_thinks, 0) << "these rows have thoughts";
  const auto only = [](const std::string& content, const std::string& thought) {
    return Message{
        .role = "assistant", .content = content, .extra_json = nlohmann::json{{"reasoning_content", thought}}.dump()};
  };
  const auto refusal = [&](const Message& reply) { return user_error([&] { chat.render({{question, reply}}); }); };
  EXPECT_THAT(refusal(only("", "greet")), HasSubstr("or put the thought into the content"));
  const Message inside{.role = "assistant", .content = "<think>\ngreet\n</think>\n"};
  EXPECT_THAT(refusal(inside), HasSubstr("such as `template: deepseekr1` for DeepSeek R1's models, or leave the row"));
  EXPECT_THAT(show(ChatTemplate("deepseekr1", tokenizer), tokenizer, {question, inside}).text, HasSubstr("greet"));
  EXPECT_NO_THROW(chat.render({{question, only("Yo", " ")}}));
  chat.render({{question, field, question, {.role = "assistant", .content = "<think>\n\n</think>Yo"}}});
  EXPECT_EQ(chat.counts().lost_thoughts, 2) << "earlier thoughts and empty ones are no loss";
  const ChatTemplate off("", tokenizer, LocalTime::now(), {.enabled = false});
  off.render({{question, field}});
  EXPECT_EQ(off.counts().lost_thoughts, 0) << "the user wants no thoughts";
}

// This template does the same as GLM 4.7's. At the end of a prompt, it writes <think>. For a reply without a thought,
// it writes </think> alone. Both tags begin with the same character.
TEST(ChatTemplate, PromptsThatOpenThinkingBeforeATagThatClosesIt) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' }}{% if m.role == 'assistant' %}"
          "{{ '<think>' + m.reasoning_content if m.reasoning_content else '' }}{{ '</think>' }}{% endif %}"
          "{{ m.content + '<|im_end|>' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant:<think>' }}{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  const Message question{.role = "user", .content = "Hi"};
  EXPECT_EQ(show(chat, tokenizer, {question, {.role = "assistant", .content = "Yo"}}).text,
            "<|im_start|>user:Hi<|im_end|><|im_start|>assistant:[[</think>Yo<|im_end|>]]");
  EXPECT_EQ(chat.counts().prompt_thinks, 1);
  const Message thought{.role = "assistant", .content = "Yo", .extra_json = R"({"reasoning_content": "greet"})"};
  EXPECT_EQ(show(chat, tokenizer, {question, thought}).text,
            "<|im_start|>user:Hi<|im_end|><|im_start|>assistant:<think>[[greet</think>Yo<|im_end|>]]");
}

// A reply of GLM ends with the token that begins the next turn, so generation must stop at it. A call of Gemma 4 ends
// with the token that begins the tool's response.
TEST(ChatTemplate, TokensOfTheNextTurnThatEndAReply) {
  TestTokenizer glm{.special = {"<s>", "</s>", "[gMASK]", "<|user|>", "<|assistant|>", "<|observation|>"}};
  glm.chat_template =
      "{{ '[gMASK]' }}{% for m in messages %}{{ '<|' + ('observation' if m.role == 'tool' else m.role) + '|>' + "
      "m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
  const std::vector<Message> talk = {
      {.role = "user", .content = "?"},
      {.role = "assistant", .extra_json = R"({"tool_calls":[{"function":{"name":"f"}}]})"},
      {.role = "tool", .content = "7"},
      {.role = "assistant", .content = "Seven."},
      {.role = "user", .content = "Sure?"},
      {.role = "assistant", .content = "Yes."}};
  const Tokenizer tokenizer = glm.open();
  const ChatTemplate chat("", tokenizer);
  EXPECT_EQ(show(chat, tokenizer, talk).text,
            "[gMASK]<|user|>?<|assistant|>[[f<|observation|>]]7<|assistant|>[[Seven.<|user|>]]Sure?<|assistant|>"
            "[[Yes.]]");
  EXPECT_EQ(chat.counts().without_end, 1);
  EXPECT_EQ(chat.stop_ids().size(), 3u);

  TestTokenizer gemma{.special = {"<s>", "</s>", "<turn|>", "<|turn>", "<|tool_response>"}};
  gemma.chat_template =
      "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|tool_response>' + m.content }}{% else %}"
      "{% if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{ '<|turn>' + m.role + ':' }}{% endif %}"
      "{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% else %}{{ '<turn|>' }}{% endif %}"
      "{% endif %}{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<|turn>assistant:' }}"
      "{% endif %}";
  const Tokenizer other = gemma.open();
  EXPECT_EQ(show(ChatTemplate("", other), other, {talk.begin(), talk.begin() + 4}).text,
            "<|turn>user:?<turn|><|turn>assistant:[[f<|tool_response>]]7[[Seven.<turn|>]]");
}

// Like Mistral's template, this template moves the system text to the last question.
TEST(ChatTemplate, TemplatesThatMoveTheSystemText) {
  const TestTokenizer files{
      .chat_template =
          "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
          "{% else %}{% set rest = messages %}{% endif %}{{ bos_token }}"
          "{% for m in rest %}{% if m.role == 'user' %}{% if system is defined and (loop.last or loop.index0 == "
          "rest|length - 2) %}"
          "{{ '[INST] ' + system + '\\n\\n' + m.content + '[/INST]' }}{% else %}{{ '[INST] ' + m.content + '[/INST]' "
          "}}{% endif %}"
          "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"};
  const Tokenizer tokenizer = files.open();
  const ChatTemplate chat("", tokenizer);
  EXPECT_EQ(show(chat, tokenizer, kTalk).text,
            "<s>[INST] Hi[/INST][[ Hello.</s>]][INST] Be brief.\n\n2+2?[/INST][[ 4</s>]]");
  EXPECT_EQ(chat.counts().rewritten, 1);
}

TEST(ChatTemplate, TokensAcrossTheBorderFollowThePrompt) {
  // The tokenizer would join "\n" and "H" into one token. The prompt ends with "\n", so the row must keep them apart.
  TestTokenizer files;
  files.merges = {"Ċ H"};
  const Tokenizer tokenizer = files.open();
  const ChatTemplate chat("alpaca", tokenizer);
  const std::vector<Message> talk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Hello"}};
  ASSERT_EQ(tokenizer.encode("\nH", false).size(), 1u);
  expect_prompts_begin_rows(chat, talk);
}

TEST(ChatTemplate, ToolsAndCallsReachTheTemplate) {
  const Tokenizer tokenizer =
      chatml_tokenizer(
          "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + "
          "m.content }}"
          "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments | tojson }}{% endfor %}"
          "{{ m.reasoning_content or '' }}<|im_end|>{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}")
          .open();
  const ChatTemplate chat("", tokenizer);
  const std::vector<Message> talk = {
      {.role = "user", .content = "?"},
      {.role = "assistant",
       .extra_json = R"({"tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}],"thinking":"hm"})"}};
  std::string text;
  for (const auto& piece : chat.render({talk, R"([{"name":"f"}])"}))
    text += (piece.trained ? "[[" : "") + tokenizer.decode(piece.ids, false) + (piece.trained ? "]]" : "");
  EXPECT_EQ(text, R"([{"name": "f"}]<|im_start|>user:?<|im_end|><|im_start|>assistant:[[f{"x": 1}hm<|im_end|>]])");
}

}  // namespace
}  // namespace fettle
