// Tests the scheduler: replies that are written at the same time equal the replies that each prompt gets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "correct/generate_models.h"
#include "generate/batch_decoder.h"
#include "serve/requests.h"
#include "serve/scheduler.h"
#include "spoil_token.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct Got {
  std::string text, finish_reason, error;
  std::vector<TokenChance> chances;
  int64_t tokens = 0;
};

Got read_all(PendingReply& reply) {
  Got got;
  for (;;) {
    PendingReply::News news = reply.wait(milliseconds(60000));
    got.text += news.text;
    got.chances.insert(got.chances.end(), news.chances.begin(), news.chances.end());
    if (!news.ended) continue;
    got.finish_reason = news.finish_reason;
    got.error = news.error;
    got.tokens = news.reply_tokens;
    return got;
  }
}

class Serving : public testing::Test {
 protected:
  Serving() : session(Request(reference_recipe("llama"), Command::kGenerate), Session::Template::kIfThere) {}

  ReplyJob job(int number, int64_t tokens = 24) const {
    ReplyJob out{.prompt = reference["greedy"][number]["prompt"], .options = session.options(0)};
    out.options.max_new_tokens = tokens;
    return out;
  }
  std::string greedy_text(int number) const { return reference["greedy"][number]["base"]["text"]; }
  // Returns a job whose reply is sampled and does not end before the model's last position.
  ReplyJob drawn(uint64_t seed) const {
    ReplyJob out = job(0, 1000);
    out.options.sampling = {.temperature = 1.5, .seed = seed};
    out.options.stop_ids.clear();
    return out;
  }

  Session session;
  const nlohmann::json reference = reference_of("llama");
};

TEST_F(Serving, RepliesWrittenAtOnceAreThoseOfTransformers) {
  for (const int64_t rows : {1, 3}) {
    Scheduler scheduler(session, {.rows = rows});
    std::vector<std::shared_ptr<PendingReply>> replies;
    for (int i = 0; i < 7; ++i) replies.push_back(scheduler.submit(job(i % 2)));
    for (int i = 0; i < 7; ++i) {
      const Got got = read_all(*replies[static_cast<size_t>(i)]);
      EXPECT_EQ(got.text, greedy_text(i % 2)) << rows << " rows, reply " << i;
      EXPECT_EQ(got.finish_reason, "length");
      EXPECT_EQ(got.tokens, 24);
    }
  }
}

TEST_F(Serving, ANewRequestDoesNotWaitForOthersToEnd) {
  Scheduler scheduler(session, {.rows = 2});
  const auto first = scheduler.submit(drawn(1));
  first->wait(milliseconds(60000));
  const Got second = read_all(*scheduler.submit(job(1, 2)));
  EXPECT_EQ(second.tokens, 2);
  EXPECT_FALSE(first->wait(milliseconds(0)).ended);  // the first reply has more than 100 tokens
  first->cancel();
}

TEST_F(Serving, AStopTextAcrossTokensEndsTheReplyAndIsNotSent) {
  const std::string whole = greedy_text(0);
  const std::vector<int32_t> ids = reference["greedy"][0]["base"]["ids"];
  const std::string start = session.tokenizer().decode(std::span(ids).first(4), true);
  const std::string stop = whole.substr(start.size() - 1, 2);  // the last letter of one token and the first of the next
  ReplyJob wanted = job(0);
  wanted.stop = {"no such text", stop};
  Scheduler scheduler(session, {.rows = 2});
  const Got got = read_all(*scheduler.submit(wanted));
  EXPECT_EQ(got.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(got.finish_reason, "stop");
  EXPECT_LT(got.tokens, 24);
}

TEST_F(Serving, AStopTokenEndsTheReply) {
  ReplyJob wanted = job(0);
  const std::vector<int32_t> ids = reference["greedy"][0]["base"]["ids"];
  wanted.options.stop_ids = {ids[5]};
  Scheduler scheduler(session, {.rows = 2});
  const Got got = read_all(*scheduler.submit(wanted));
  EXPECT_EQ(got.finish_reason, "stop");
  EXPECT_EQ(got.tokens, 5);
  EXPECT_EQ(got.text, session.tokenizer().decode(std::span(ids).first(5), true));
}

TEST_F(Serving, ASeedGivesTheSameReplyWhateverElseIsWritten) {
  Scheduler scheduler(session, {.rows = 3});
  const std::string alone = read_all(*scheduler.submit(drawn(7))).text;
  const auto other = scheduler.submit(drawn(8));
  const auto between = scheduler.submit(job(1));
  EXPECT_EQ(read_all(*scheduler.submit(drawn(7))).text, alone);
  EXPECT_NE(read_all(*other).text, alone);
  EXPECT_EQ(read_all(*between).text, greedy_text(1));
}

TEST_F(Serving, ALongPromptIsCutAtTheLastPosition) {
  ReplyJob wanted = job(0, 1000);
  wanted.options.stop_ids.clear();
  Scheduler scheduler(session, {.rows = 2});
  const Got got = read_all(*scheduler.submit(wanted));
  EXPECT_EQ(got.finish_reason, "length");
  EXPECT_EQ(std::ssize(wanted.prompt) + got.tokens, session.max_length() + 1);
}

TEST_F(Serving, ChancesAreTheModelsOwn) {
  ReplyJob wanted = job(0, 3);
  wanted.top_logprobs = 256;
  Scheduler scheduler(session, {.rows = 2});
  const Got got = read_all(*scheduler.submit(wanted));
  ASSERT_EQ(got.chances.size(), 3u);
  std::string text;
  for (const TokenChance& chance : got.chances) {
    double sum = 0;
    for (const auto& [token, logprob] : chance.top) sum += std::exp(logprob);
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_EQ(chance.token.text, chance.top[0].first.text) << "greedy: the likeliest token";
    EXPECT_EQ(chance.logprob, chance.top[0].second);
    text += chance.token.text;
  }
  EXPECT_EQ(text, got.text);
}

TEST_F(Serving, TooManyWaitingRequestsAreRefused) {
  Scheduler scheduler(session, {.rows = 2, .max_waiting = 1});
  std::vector<std::shared_ptr<PendingReply>> replies;
  int refused = 0;
  for (uint64_t i = 0; i < 8; ++i) try {
      replies.push_back(scheduler.submit(drawn(i)));
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status, 429);
      EXPECT_THAT(error.what(), HasSubstr("ask again later"));
      ++refused;
    }
  EXPECT_GE(replies.size(), 3u);
  EXPECT_GE(refused, 1);
  for (const auto& reply : replies) reply->cancel();
}

TEST_F(Serving, ADroppedReplyFreesItsRow) {
  Scheduler scheduler(session, {.rows = 2});
  std::vector<std::shared_ptr<PendingReply>> gone;
  for (uint64_t i = 0; i < 6; ++i) gone.push_back(scheduler.submit(drawn(i)));
  for (const auto& reply : gone) reply->cancel();
  EXPECT_EQ(read_all(*scheduler.submit(job(1))).text, greedy_text(1));
  for (const auto& reply : gone) EXPECT_FALSE(reply->wait(milliseconds(0)).ended);
}

TEST_F(Serving, TheEndWaitsForRepliesAndRefusesNewOnes) {
  std::shared_ptr<PendingReply> reply;
  {
    Scheduler scheduler(session, {.rows = 2});
    reply = scheduler.submit(job(0));
    scheduler.refuse_new();
    EXPECT_TRUE(scheduler.figures().ending);
    try {
      scheduler.submit(job(1));
      ADD_FAILURE() << "accepted at the end";
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status, 503);
    }
  }
  EXPECT_EQ(read_all(*reply).text, greedy_text(0));
}

TEST_F(Serving, AFailureEndsTheReplyAndTheNextOneIsWritten) {
  Scheduler scheduler(session, {.rows = 2});
  ReplyJob bad = job(0);
  bad.prompt[2] = 100000;  // not in the vocabulary
  EXPECT_THAT(read_all(*scheduler.submit(bad)).error, HasSubstr("vocabulary"));
  EXPECT_EQ(read_all(*scheduler.submit(job(1))).text, greedy_text(1));
}

constexpr int32_t kBadToken = 7;

// Writes the reference model llama with longer positions and without values of kBadToken into `folder`.
Recipe model_with_a_bad_token(const std::filesystem::path& folder) {
  Recipe recipe = reference_recipe("llama");
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"})
    std::filesystem::copy_file(recipe.model_name_or_path + "/" + name, folder / name);
  auto config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  config["max_position_embeddings"] = 2048;
  std::ofstream(folder / "config.json") << config;
  spoil_token(folder, kBadToken);
  recipe.model_name_or_path = folder.string();
  recipe.kernels = {"off"};
  return recipe;
}

// Attention without kernels multiplies masked values by 0, and 0 times NaN is NaN. So NaN in the cache would spoil
// later replies.
TEST(ServingBadTokens, ARequestWithValuesThatAreNotFiniteDoesNotSpoilLaterOnes) {
  const TempFolder folder;
  const nlohmann::json greedy = reference_of("llama")["greedy"][0];
  const std::vector<int32_t> good = greedy["prompt"];
  Session session(Request(model_with_a_bad_token(folder.path()), Command::kGenerate), Session::Template::kIfThere);
  ReplyOptions options = session.options(0);
  options.max_new_tokens = 24;
  for (const int64_t rows : {1, 3}) {
    Scheduler scheduler(session, {.rows = rows});
    const auto reply_to = [&](std::vector<int32_t> prompt) {
      return read_all(*scheduler.submit({.prompt = std::move(prompt), .options = options}));
    };
    for (const size_t length : {size_t{40}, size_t{1200}}) {  // the second one is read in pieces
      std::vector<int32_t> bad = good;
      bad.resize(length, 3);
      bad[length / 3] = kBadToken;
      EXPECT_THAT(reply_to(bad).error, HasSubstr("not numbers")) << rows << " rows, " << length << " tokens";
      for (int again = 0; again < 4; ++again) {
        const Got got = reply_to(good);
        EXPECT_EQ(got.text, greedy["base"]["text"]) << got.error << ", " << rows << " rows, " << length << " tokens";
      }
    }
  }
}

// A row whose reply itself comes to NaN leaves no NaN to the row's next reply.
TEST(ServingBadTokens, ARowIsClearedAfterAStepThatIsNotFinite) {
  const TempFolder folder;
  Loaded loaded(model_with_a_bad_token(folder.path()));
  BatchDecoder decoder(loaded.devices, loaded.run, loaded.state, 2);
  const std::vector<int32_t> first(62, 3), second = {5, 6};
  decoder.join(0, second, 64);
  const std::vector<float> wanted = decoder.step({{0, 9}})[0];
  decoder.join(0, first, 64);
  // The row grows beyond the positions that the next prompt overwrites.
  for (int i = 0; i < 4; ++i) decoder.step({{0, 3}});
  EXPECT_TRUE(are_broken(decoder.step({{0, kBadToken}})[0]));
  decoder.join(0, second, 64);
  EXPECT_EQ(decoder.step({{0, 9}})[0], wanted);
}

}  // namespace
}  // namespace fettle
