// Compares ROUGE and BLEU with values recorded from rouge_score and sacrebleu (tests/reference/text_scores.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "eval/text_scores.h"

namespace fettle {
namespace {

using Json = nlohmann::json;
using References = std::vector<std::string>;

Json recorded() {
  return Json::parse(std::ifstream(std::string(FETTLE_SOURCE_DIR) + "/tests/reference/text_scores.json"));
}

TEST(TextScores, EachRowAsRecorded) {
  for (const Json& row : recorded()["rows"]) {
    const std::string reply = row["reply"];
    SCOPED_TRACE(reply);
    const References references = row["references"];
    EXPECT_EQ(bleu_tokens(reply), row["tokens"].get<References>());
    const Rouge found = rouge(reply, references);
    EXPECT_NEAR(found.rouge1, row["rouge1"].get<double>(), 1e-12);
    EXPECT_NEAR(found.rouge2, row["rouge2"].get<double>(), 1e-12);
    EXPECT_NEAR(found.rougeL, row["rougeL"].get<double>(), 1e-12);
    EXPECT_NEAR(bleu({reply}, {references}), row["bleu"].get<double>(), 1e-9);
  }
}

TEST(TextScores, CorporaAsRecorded) {
  const Json all = recorded();
  for (const Json& corpus : all["corpora"]) {
    std::vector<std::string> replies;
    std::vector<References> references;
    for (size_t i = corpus["first"]; i < corpus["last"].get<size_t>(); ++i) {
      replies.push_back(all["rows"][i]["reply"]);
      references.push_back(all["rows"][i]["references"]);
    }
    EXPECT_NEAR(bleu(replies, references), corpus["bleu"].get<double>(), 1e-9) << corpus;
  }
}

TEST(TextScores, ExactMatchLeavesOutSpaceAtTheEnds) {
  EXPECT_TRUE(exact_match(" 42\n", {"41", "42"}));
  EXPECT_TRUE(exact_match("", {" "}));
  EXPECT_FALSE(exact_match("42.", {"42"}));
  EXPECT_FALSE(exact_match("a  b", {"a b"}));
}

}  // namespace
}  // namespace fettle
