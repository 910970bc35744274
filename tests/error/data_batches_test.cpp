#include <gtest/gtest.h>

#include "base/error.h"
#include "data/batches/batches.h"

namespace fettle {
namespace {

std::string message_of(const std::vector<Example>& examples, BatchSpec options) {
  try {
    Batches(examples, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Batches, RefusesNoRows) {
  EXPECT_NE(message_of({}, {}).find("no rows"), std::string::npos);
}

TEST(Batches, RefusesDataWithNothingTrained) {
  // No position predicts the first token, so a label there trains nothing.
  std::vector<Example> examples = {{{1, 2, 3}, {1, kIgnore, kIgnore}, "a:1"}};
  EXPECT_NE(message_of(examples, {}).find("none of the 1 rows has a trained token"), std::string::npos);
}

TEST(Batches, NamesTheRowThatDoesNotFit) {
  std::vector<Example> examples = {{std::vector<int32_t>(17, 5), std::vector<int32_t>(17, 5), "a.jsonl:7"}};
  const std::string message = message_of(examples, {.max_length = 16});
  EXPECT_NE(message.find("a.jsonl:7"), std::string::npos);
  EXPECT_NE(message.find("17 tokens"), std::string::npos);
}

}  // namespace
}  // namespace fettle
