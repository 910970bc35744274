// Tests the texts of ReplyWriter on given tokens.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "generate/reply_writer.h"
#include "paths.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

const std::filesystem::path kTokenizers = source_folder() / "tests/reference/tokenizer";

// Returns the text of a reply that consists of `reply`.
std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt, const std::vector<int32_t>& reply,
                    bool continues_text) {
  const ReplyOptions options{.sampling = {.do_sample = false}, .continues_text = continues_text};
  ReplyWriter writer(tokenizer, prompt, options, 1000, [](const std::string&) { return true; });
  for (const int32_t id : reply) {
    std::vector<float> logits(static_cast<size_t>(tokenizer.vocab_size()), 0);
    logits[static_cast<size_t>(id)] = 1;
    writer.take(logits);
  }
  return writer.finish().text;
}

TEST(ReplyWriter, APromptAndItsContinuationAreTheTextOfAllTokens) {
  for (const char* name : {"llama2", "sp_bpe", "sp_unigram", "gpt2"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = Tokenizer::open(kTokenizers / name);
    const std::vector<int32_t> ids = tokenizer.encode("The cat  sat on\n the mat, and we see the sea.", true);
    for (size_t cut = 1; cut <= ids.size(); ++cut) {
      const auto at = ids.begin() + static_cast<std::ptrdiff_t>(cut);
      const std::vector<int32_t> prompt(ids.begin(), at);
      EXPECT_EQ(tokenizer.decode(prompt, true) + text_of(tokenizer, prompt, {at, ids.end()}, true),
                tokenizer.decode(ids, true))
          << "a prompt of " << cut << " tokens";
    }
  }
}

TEST(ReplyWriter, AnAnswerDoesNotBeginWithTheSpaceOfItsFirstToken) {
  const Tokenizer tokenizer = Tokenizer::open(kTokenizers / "llama2");
  const std::vector<int32_t> prompt = tokenizer.encode("the", true), reply = tokenizer.encode("the sea", false);
  EXPECT_EQ(text_of(tokenizer, prompt, reply, false), "the sea");
  EXPECT_EQ(text_of(tokenizer, prompt, reply, true), " the sea");
}

// Bytes of a character at the end of the prompt do not hide the reply's text.
TEST(ReplyWriter, AReplyMayFollowHalfACharacter) {
  const Tokenizer tokenizer = Tokenizer::open(kTokenizers / "llama2");
  std::vector<int32_t> prompt = tokenizer.encode("the", true);
  prompt.push_back(tokenizer.token_id("<0xF0>").value());
  EXPECT_EQ(text_of(tokenizer, prompt, tokenizer.encode("sea", false), true), "sea");
}

}  // namespace
}  // namespace fettle
