#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "jinja/template.h"
#include "paths.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// make_jinja.py recorded the texts, spans and errors from Jinja2.
TEST(Jinja, RendersAsJinja2) {
  std::ifstream file(source_folder() / "tests/reference/data/jinja_cases.json");
  const ordered_json recorded = ordered_json::parse(file);
  for (const auto& one : recorded["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>() + " with " + one["context"].get<std::string>() + "\n" +
                 one["template"].get<std::string>().substr(0, 200));
    try {
      const jinja::Template parsed(one["template"].get<std::string>());
      const auto rendered = parsed.render(recorded["contexts"][one["context"].get<std::string>()]);
      EXPECT_FALSE(one.contains("error")) << "wanted " << one["error"] << ", got " << rendered.text;
      EXPECT_EQ(rendered.text, one.value("text", rendered.text));
      if (one.contains("spans") && !rendered.generated_elsewhere) {
        ordered_json spans = ordered_json::array();
        for (auto [begin, end] : rendered.generated) spans.push_back({begin, end});
        EXPECT_EQ(spans, one["spans"]);
      }
    } catch (const UserError& error) {
      EXPECT_TRUE(one.contains("error")) << error.what();
    }
  }
  EXPECT_GT(recorded["cases"].size(), 100u);
}

// A break or continue within these blocks is one of the loop around them. The text of a set or filter block is dropped.
TEST(Jinja, LoopsEndFromBlocksWithin) {
  const auto render = [](const std::string& body) {
    return jinja::Template("{% for x in [1, 2, 3] %}{{ x }}" + body + "x{% endfor %}")
        .render(ordered_json::object())
        .text;
  };
  const std::string odd = "a{% if x != 2 %}{% continue %}{% endif %}";
  EXPECT_EQ(render("{% for y in [] %}{% else %}{% break %}{% endfor %}"), "1");
  EXPECT_EQ(render("{% for y in [] %}{% else %}" + odd + "{% endfor %}"), "1a2ax3a");
  EXPECT_EQ(render("{% set s %}" + odd + "{% endset %}{{ s }}"), "12ax3");
  EXPECT_EQ(render("{% filter upper %}" + odd + "{% endfilter %}"), "12Ax3");
  EXPECT_EQ(render("{% generation %}" + odd + "{% endgeneration %}"), "1a2ax3a");
}

// Half of a surrogate pair is no character, so it becomes U+FFFD.
TEST(Jinja, PairsOfEscapesBecomeOneCharacter) {
  const auto render = [](const char* text) { return jinja::Template(text).render(ordered_json::object()).text; };
  EXPECT_EQ(render(R"({{ '\ud83d\ude00' }})"), "\U0001F600");
  EXPECT_EQ(render(R"({{ '\ud83d\u0041' }})"), "\uFFFDA");
  EXPECT_EQ(render(R"({{ '\ud83dA' }})"), "\uFFFDA");
}

TEST(Jinja, FormatsTheTimeItIsGiven) {
  const LocalTime noon{1721649600};  // 2024-07-22 12:00 UTC
  EXPECT_EQ(jinja::Template("{{ strftime_now('%d %b %Y') }}").render(ordered_json::object(), noon).text, "22 Jul 2024");
  const LocalTime abroad{1721649600, 14 * 3600, "LINT"};
  EXPECT_EQ(jinja::Template("{{ strftime_now('%d %b %H %Z %z') }}").render(ordered_json::object(), abroad).text,
            "23 Jul 02 LINT +1400")
      << "the zone is that of the moment, not of this machine";
}

// Rows may have integers from 2^63 to 2^64 - 1. They are printed and compared as in Python.
TEST(Jinja, LargeIntegersOfRowsKeepTheirDigits) {
  const ordered_json context = ordered_json::parse(
      R"({"n": 18446744073709551615, "m": 18446744073709551614, "d": {"a": [9223372036854775808]}})");
  const auto render = [&](const std::string& source) { return jinja::Template(source).render(context).text; };
  EXPECT_EQ(render("{{ n }} {{ n ~ '' }} {{ d }} {{ d | tojson }}"),
            "18446744073709551615 18446744073709551615 {'a': [9223372036854775808]} {\"a\": [9223372036854775808]}");
  EXPECT_EQ(render("{{ n == n }} {{ n == m }} {{ n > m }} {{ m > 9223372036854775807 }} {{ -1 < m }} {{ 1 == m }}"),
            "True False True True True False");
  EXPECT_EQ(
      render("{{ n is integer }} {{ n is number }} {{ n is float }} {{ 'yes' if n }} {{ {n: 1}[n] }} {{ n in [m] }}"),
      "True True False yes 1 False");
  EXPECT_THROW(render("{{ n + 1 }}"), UserError);
}

TEST(Jinja, ListsWhatATemplateReads) {
  const jinja::Template parsed(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools is defined %}{% endif %}");
  EXPECT_TRUE(parsed.reads("tools"));
  EXPECT_FALSE(parsed.reads("documents"));
  EXPECT_FALSE(parsed.has_generation());
}

TEST(Jinja, SaysWhenGenerationHasNoPlace) {
  const auto rendered = jinja::Template("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}")
                            .render(ordered_json::object());
  EXPECT_EQ(rendered.text, "a");
  EXPECT_TRUE(rendered.generated_elsewhere);
}

}  // namespace
}  // namespace fettle
