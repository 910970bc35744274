#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace fettle {
namespace {

std::string reason(const std::string& text) {
  try {
    parse_json<nlohmann::json>(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonText, IntegersOfMoreThan64BitsAreFound) {
  using testing::ElementsAre;
  EXPECT_THAT(large_integers(R"({"a": 1000000000000000000000, "b": [-9223372036854775809, 7]})"),
              ElementsAre("1000000000000000000000", "-9223372036854775809"));
  EXPECT_THAT(large_integers("1000000000000000000000"), ElementsAre("1000000000000000000000"));
  for (const char* text : {"[18446744073709551615, -9223372036854775808]", "[1e300, 1000000000000000000000.5]",
                           R"({"1000000000000000000000": "\\\"1000000000000000000000"})", "", "\""})
    EXPECT_THAT(large_integers(text), ElementsAre()) << text;
}

TEST(JsonText, SaysWhereItBreaks) {
  EXPECT_EQ(reason("{\"a\": nope}"), "syntax error at column 8, at `ope}`");
  EXPECT_EQ(reason("[1,\n 2,,]"), "syntax error at line 2, column 4, at `,]`");
  EXPECT_EQ(reason("{\"a\": [1"), "the text ends too early");
  EXPECT_EQ(reason(""), "the text ends too early");
  EXPECT_EQ(reason("[NaN]"), "syntax error at column 2, at `NaN]`");
  // Messages show whole characters only.
  EXPECT_EQ(reason("[x12345678901234567\u00e9]"), "syntax error at column 2, at `x12345678901234567\u00e9`");
  EXPECT_EQ(reason("[x123456789012345678\u00e9]"), "syntax error at column 2, at `x123456789012345678`");
}

TEST(JsonText, ValuesThatCannotBeHeld) {
  EXPECT_THAT(reason("[1, 1e999]"), testing::HasSubstr("a number is too large"));
  EXPECT_EQ(reason(std::string(100, '[') + std::string(100, ']')), "");
  EXPECT_EQ(reason(std::string(101, '[') + std::string(101, ']')), "values are nested more than 100 deep");
  EXPECT_EQ(reason("[\"" + std::string(101, '[') + "\\\"" + std::string(101, '{') + "\"]"), "");
}

TEST(JsonText, WhatIsRefusedCanBeDiscarded) {
  for (const std::string& text : {std::string("[1"), std::string("1e999"), std::string(200'000, '[')})
    EXPECT_TRUE(parse_json_or_discard<nlohmann::ordered_json>(text).is_discarded()) << text.substr(0, 20);
  EXPECT_EQ(parse_json_or_discard<nlohmann::json>("[1]"), nlohmann::json::array({1}));
}

TEST(JsonText, ANullMemberCountsAsMissing) {
  const nlohmann::json object{{"no", nullptr}, {"yes", true}, {"text", "a"}};
  EXPECT_TRUE(json_value(object, "no", true));
  EXPECT_FALSE(json_value(object, "missing", false));
  EXPECT_TRUE(json_value(object, "yes", false));
  EXPECT_EQ(json_value(object, "text", std::string("b")), "a");
  EXPECT_THROW(json_value(object, "text", 1.0), UserError);
}

}  // namespace
}  // namespace fettle
