// Tests the weights of messages: they are read from a row, kept in the store, and put into batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/batches/batches.h"
#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}";

Outcome tokenised(const std::string& row, DataSpec spec = {}) {
  static const Tokenizer tokenizer = TestTokenizer{.chat_template = kTemplate}.open();
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  Row parsed{.text = row};
  return tokenise(parsed, {}, "rows:1");
}

// Returns the conversation q, a, r, b (one token each). `first` and `second` are further JSON fields of the replies a
// and b.
std::string two_replies(const std::string& first, const std::string& second) {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")" + first +
         R"(}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b")" + second + "}]}";
}

// Returns the weight of each token, or 0 for a token that is not trained.
std::vector<float> weights_of(const std::string& row, const DataSpec& spec = {}) {
  const Outcome outcome = tokenised(row, spec);
  EXPECT_EQ(outcome.bad, "");
  if (outcome.examples.empty()) return {};
  const Example& example = outcome.examples[0];
  std::vector<float> out;
  for (size_t i = 0; i < example.labels.size(); ++i)
    out.push_back(example.labels[i] == kIgnore ? 0 : example.weights.empty() ? 1 : example.weights[i]);
  return out;
}

TEST(MessageWeights, AreFactorsOfTheirTurns) {
  EXPECT_THAT(weights_of(two_replies(R"(, "weight": 0.25)", "")), ElementsAre(0, 0.25, 0.25, 0, 1, 1));
  EXPECT_THAT(weights_of(two_replies(R"(, "loss_weight": 2)", R"(, "weight": 0)")), ElementsAre(0, 2, 2, 0, 0, 0));
  EXPECT_THAT(weights_of(two_replies(R"(, "loss": false)", R"(, "loss_scale": 0.5)")),
              ElementsAre(0, 0, 0, 0, 0.5, 0.5));
  EXPECT_THAT(weights_of(two_replies(R"(, "loss": true, "loss_scale": 0.5)", R"(, "loss": null)")),
              ElementsAre(0, 0.5, 0.5, 0, 1, 1))
      << "several fields are multiplied";
}

TEST(MessageWeights, OfOneChangeNothing) {
  const Outcome outcome = tokenised(two_replies(R"(, "weight": 1.0)", R"(, "loss_scale": 1)"));
  EXPECT_TRUE(outcome.examples.at(0).weights.empty());
}

TEST(MessageWeights, WithOtherKeysThatChooseTokens) {
  const std::string row = two_replies(R"(, "weight": 0.25)", R"(, "weight": 0.5)");
  EXPECT_THAT(weights_of(row, {.mask_history = true}), ElementsAre(0, 0, 0, 0, 0.5, 0.5));
  EXPECT_THAT(weights_of(row, {.train_on_prompt = true}), ElementsAre(1, 0.25, 0.25, 1, 0.5, 0.5));
  EXPECT_THAT(weights_of(row, {.cutoff_len = 3}), ElementsAre(0, 0.25, 0.25));
  const std::string spans = R"(, "weight": 3, "train_detail": [{"begin_offset": 0, "end_offset": 0, "train": false}])";
  EXPECT_THAT(weights_of(two_replies("", spans)), ElementsAre(0, 1, 1, 0, 0, 3));
}

TEST(MessageWeights, PartsOfAContentAreTrainedOrNot) {
  const auto row = [](const std::string& parts) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [)" + parts + "]}]}";
  };
  EXPECT_THAT(weights_of(row(R"({"type": "text", "text": "ab", "train": false}, {"type": "text", "text": "c"})")),
              ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(
      weights_of(row(R"({"type": "text", "text": "a", "weight": 1}, {"type": "text", "text": "b", "weight": 0})")),
      ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(weights_of(row(R"({"type": "text", "text": "a"}, {"type": "text", "text": "b"})")),
              ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(tokenised(row(R"({"type": "text", "text": "a", "weight": 0.5})")).bad, HasSubstr("must be 0 or 1"));
  EXPECT_THAT(tokenised(row(R"({"type": "text", "text": "a", "train": 1})")).bad, HasSubstr("must be true or false"));
}

TEST(MessageWeights, BadOnesAreNamed) {
  const auto bad = [](const std::string& field) { return tokenised(two_replies(field, "")).bad; };
  EXPECT_THAT(bad(R"(, "weight": -1)"), HasSubstr("'weight' of a message must be from 0 to 1000, but it is -1"));
  EXPECT_THAT(bad(R"(, "weight": 1e300)"), HasSubstr("must be from 0 to 1000"));
  EXPECT_THAT(bad(R"(, "loss_scale": [1, 2])"), HasSubstr("must be a number, true or false, but it is [1,2]"));
  EXPECT_THAT(bad(R"(, "train": 0.5)"), HasSubstr("'train' of a message must be true or false"));
}

TEST(MessageWeights, ArePartOfNoPreference) {
  const std::string row = R"({"prompt": "q", "chosen": [{"role": "assistant", "content": "a", "weight": 0.5}],
                              "rejected": [{"role": "assistant", "content": "b"}]})";
  EXPECT_THAT(tokenised(row, {.rows = RowKind::kPreferencePairs}).bad, HasSubstr("train with stage: sft"));
}

TEST(MessageWeights, AreKeptInTheStore) {
  const TempFolder folder;
  const Example plain{{5, 6, 7}, {kIgnore, 6, 7}};
  Example weighted{{5, 6, 7}, {kIgnore, 6, 7}};
  weighted.weights = {1, 0.5f, 0.25f};
  Example other = weighted;
  other.weights[2] = 2;
  TokenWriter writer(folder.path() / "draft");
  for (const Example& example : {plain, weighted, plain, other}) writer.add(example, 0, 1);
  writer.finish({}, folder.path() / "store");
  for (const Examples& rows :
       {Examples(TokenStore::open(folder.path() / "store"), {"a"}), Examples({plain, weighted, plain, other})}) {
    EXPECT_TRUE(rows.weighted());
    EXPECT_TRUE(rows[0].weights.empty());
    EXPECT_EQ(rows[1].weights, weighted.weights);
    EXPECT_TRUE(rows[2].weights.empty());
    EXPECT_EQ(rows[3].weights, other.weights);
    EXPECT_EQ(rows.digest(0), Examples({plain}).digest(0));
    EXPECT_NE(rows.digest(0), rows.digest(1));
    EXPECT_NE(rows.digest(1), rows.digest(3));
  }
}

TEST(MessageWeights, AStoreWithoutThemHasNoFileOfThem) {
  const TempFolder folder;
  TokenWriter writer(folder.path() / "draft");
  writer.add({{5, 6}, {kIgnore, 6}}, 0, 1);
  writer.finish({}, folder.path() / "store");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "store" / "weights"));
  EXPECT_FALSE(Examples(TokenStore::open(folder.path() / "store"), {"a"}).weighted());
}

TEST(MessageWeights, ADamagedFileOfThemIsFound) {
  const TempFolder folder;
  Example weighted{{5, 6, 7}, {kIgnore, 6, 7}};
  weighted.weights = {1, 0.5f, 0.25f};
  TokenWriter writer(folder.path() / "draft");
  writer.add(weighted, 0, 1);
  writer.finish({}, folder.path() / "store");
  std::ofstream(folder.path() / "store" / "weights", std::ios::binary) << "changed!....";
  std::string problem;
  EXPECT_EQ(TokenStore::open(folder.path() / "store", &problem), nullptr);
  EXPECT_EQ(problem, "weights is damaged");
}

// In each layout, the weight of a target is the weight of the predicted token.
TEST(MessageWeights, GoIntoBatchesWithTheirTargets) {
  Example first{{5, 6, 7}, {kIgnore, 6, 7}, "a:1"}, second{{8, 9}, {kIgnore, 9}, "a:2"};
  first.weights = {1, 0.5f, 0.25f};
  const BatchSpec apart{.sequences = 2, .max_length = 8, .multiple = 1, .shuffle = false, .lengths = {4}};
  BatchSpec packed = apart;
  packed.sequences = 1;
  packed.packing = true;
  packed.lengths = {8};
  const std::vector<Example> both{first, second};
  const Batch rows = Batches(both, apart).at(0), line = Batches(both, packed).at(0);
  EXPECT_TRUE(rows.shape.weighted);
  EXPECT_THAT(rows.weights.as<float>(), ElementsAre(0.5f, 0.25f, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(line.weights.as<float>(), ElementsAre(0.5f, 0.25f, 0, 1, 0, 0, 0, 0));
  EXPECT_EQ(rows.trained_tokens, 3);
  first.weights.clear();
  const std::vector<Example> plain{first, second};
  EXPECT_FALSE(Batches(plain, apart).at(0).shape.weighted);
  EXPECT_NE(Batches(both, apart).identity().digest, Batches(plain, apart).identity().digest);
}

// The replies in the prompt of a row are trained with train_on_prompt, unless their own fields say otherwise.
TEST(MessageWeights, TrainOnPromptTrainsTheRepliesOfThePrompt) {
  const auto row = [](const std::string& field) {
    return R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")" + field +
           R"(}, {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "b"}]})";
  };
  EXPECT_THAT(weights_of(row("")), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(weights_of(row(""), {.train_on_prompt = true}), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(weights_of(row(R"(, "weight": 0.5)"), {.train_on_prompt = true}), ElementsAre(1, 0.5, 0.5, 1, 1, 1));
  for (const char* masked : {R"(, "train": false)", R"(, "weight": 0)"})
    EXPECT_THAT(weights_of(row(masked), {.train_on_prompt = true}), ElementsAre(1, 0, 0, 1, 1, 1)) << masked;
  EXPECT_THAT(weights_of(row(""), {.train_on_prompt = true, .mask_history = true}), ElementsAre(1, 0, 0, 1, 1, 1));
}

}  // namespace
}  // namespace fettle
