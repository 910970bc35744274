#include <gtest/gtest.h>

#include "base/error.h"
#include "config/flags.h"

namespace fettle {
namespace {

std::string message(const std::vector<std::string>& arguments) {
  try {
    split_flags(arguments, {"--target"});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(BadFlags, SuggestTheNearestOne) {
  EXPECT_EQ(message({"--lerning_rate", "1e-4"}),
            "--lerning_rate: neither a flag of this command nor a recipe key; did you mean '--learning_rate'?");
  EXPECT_EQ(message({"--targte=h100"}),
            "--targte: neither a flag of this command nor a recipe key; did you mean '--target'?");
  EXPECT_EQ(message({"--use_pfet"}),
            "--use_pfet: neither a flag of this command nor a recipe key; did you mean '--use_peft'?");
  EXPECT_EQ(message({"--qqqqqqqqqqqqqqqqqq"}),
            "--qqqqqqqqqqqqqqqqqq: neither a flag of this command nor a recipe key; the command's --help-keys lists "
            "all keys");
}

TEST(BadFlags, NameTheMissingValue) {
  EXPECT_EQ(message({"--learning_rate", "--bf16"}),
            "--learning_rate: the value is missing; write --learning_rate VALUE or --learning_rate=VALUE");
  EXPECT_EQ(message({"--dataset"}), "--dataset: the value is missing; write --dataset VALUE or --dataset=VALUE");
}

}  // namespace
}  // namespace fettle
