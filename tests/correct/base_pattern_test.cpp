// Tests that patterns match whole texts of any length, find all matches and replace them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/pattern.h"

namespace fettle {
namespace {

using Groups = Pattern::Groups;

TEST(Pattern, MatchesAllOfATextOrNothing) {
  const Pattern target("([^:]+)(:([0-9]+))?");
  EXPECT_EQ(target.match("h200:8"), (Groups{"h200:8", "h200", ":8", "8"}));
  EXPECT_EQ(target.match("h200"), (Groups{"h200", "h200", "", ""})) << "a group that took no part is empty";
  EXPECT_EQ(target.match("h200:"), std::nullopt);
  EXPECT_EQ(target.match(""), std::nullopt);
}

TEST(Pattern, TakesTextsOfAnyLength) {
  const std::string name(5'000'000, 'a');
  EXPECT_EQ(Pattern("([^:]+)(:([0-9]+))?").match(name + ":8"), (Groups{name + ":8", name, ":8", "8"}));
}

TEST(Pattern, FindsAllMatches) {
  EXPECT_EQ(Pattern("([a-z])[0-9]").find_all("a1, b2, 3, c4"),
            (std::vector<Groups>{{"a1", "a"}, {"b2", "b"}, {"c4", "c"}}));
  EXPECT_EQ(Pattern("x*").find_all("xx").size(), 2u) << "the empty match at the end counts, and ends the search";
}

TEST(Pattern, ReplacesAllMatches) {
  EXPECT_EQ(Pattern("id([0-9]+)").replace_all("id1 and id22", "<$1>"), "<1> and <22>");
  EXPECT_EQ(Pattern("b").replace_all(std::string(1000, 'b'), "long"), [] {
    std::string wanted;
    for (int i = 0; i < 1000; ++i) wanted += "long";
    return wanted;
  }());
  EXPECT_EQ(Pattern("x").replace_all("", "y"), "");
}

TEST(Pattern, RefusesWhatIsNoExpression) {
  EXPECT_THROW(Pattern("(a"), InternalError);
  EXPECT_EQ(pcre2_message(-1), "no match");
}

}  // namespace
}  // namespace fettle
