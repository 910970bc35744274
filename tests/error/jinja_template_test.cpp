#include <gtest/gtest.h>

#include <initializer_list>

#include "base/error.h"
#include "jinja/template.h"

namespace fettle {
namespace {

std::string failure(const std::string& source, jinja::Limits limits = {}) {
  try {
    (void)jinja::Template(source, "chat_template.jinja")
        .render(nlohmann::ordered_json::object(), LocalTime::now(), limits);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

struct Case {
  std::string source, where, reason;
};

TEST(Jinja, NamesLineAndReason) {
  const Case cases[] = {
      {"a\n{{ 1 + }}", "chat_template.jinja:2:", "expected an expression, got }}"},
      {"\n\n{% if x %}\nb", "chat_template.jinja:3:", "the block that begins here has no {% endif %}"},
      {"{% frobnicate %}", ":1:", "the tag 'frobnicate' is unknown"},
      {"x\n{{ 'abc }}", ":2:", "a string has no closing quote"},
      {"{{ (1, 2 }}", ":1:", "expected ')'"},
      {"a\nb\n{{ missing.part }}", ":3:", "'missing' is undefined"},
      {"{% set x = {'a': 1} %}\n{{ x.b.c }}", ":2:", "'dict object' has no attribute 'b'"},
      {"\n{{ 'a' + 1 }}", ":2:", "unsupported operand type(s) for +: 'str' and 'int'"},
      {"\n{{ raise_exception('roles must alternate') }}", ":2:", "roles must alternate"},
      {"{{ 1 | frob }}", ":1:", "No filter named 'frob'"},
      {"{{ 1 is frob }}", ":1:", "No test named 'frob'"},
      {"{{ 1 is divisibleby }}",
       ":1:", "the test 'divisibleby' needs exactly one positional argument; arguments found: 0"},
      {"{% set x = [] %}\n{{ x.append(1) }}", ":2:", "append' would change a value of type 'list'"},
      {"{% set ns = namespace() %}{% set ns.__class__ = 1 %}", ":1:", "underscore"},
      {"{# open", ":1:", "this comment {# has no #} at its end"},
      {"{% raw %}open", ":1:", "endraw"},
      {"{% include 'other' %}", ":1:", "the tag 'include' is unknown"},
      {"{% break %}", ":1:", "outside a loop"},
      {"{{ 99999999999999999999 }}", ":1:", "not an integer of 64 bits"},
      {"{{ 9223372036854775807 + 1 }}", ":1:", "more than 64 bits"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.source);
    const std::string message = failure(one.source);
    EXPECT_NE(message.find(one.where), std::string::npos) << message;
    EXPECT_NE(message.find(one.reason), std::string::npos) << message;
  }
}

// Less than a rendering may use, which takes less time to reach.
constexpr jinja::Limits kLow{.steps = 500'000, .bytes = size_t{1} << 27};

struct Limit {
  std::string_view message;

  // Expects that this limit stops each template.
  void stops(std::initializer_list<std::string> sources) const {
    for (const std::string& source : sources) {
      SCOPED_TRACE(source.substr(0, 1000));
      const std::string got = failure(source, kLow);
      EXPECT_NE(got.find(message), std::string::npos) << "expected: " << message << "\ngot: " << got;
    }
  }
};
constexpr Limit kSteps{"takes more than 500000 steps"}, kBytes{"exceed the limit of 128 MiB"},
    kText{"a text longer than the limit of 32 MiB"}, kCalls{"too many nested calls"}, kRange{"a range of more than"};

// Returns a template that replaces `name` by the list of two copies of itself, `times` times. The value then has
// 2^times parts, which share memory.
std::string doubled(const std::string& name, const std::string& start, int times) {
  std::string loop = "{% set ns." + name + " = " + start + " %}{% for i in range(" + std::to_string(times) + ") %}";
  return loop + "{% set ns." + name + " = [ns." + name + ", ns." + name + "] %}{% endfor %}";
}

TEST(Jinja, StepsAndBytesAreLimited) {
  const std::string steps = failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  EXPECT_NE(steps.find("more than 10000000 steps"), std::string::npos) << steps;
  const std::string bytes = failure(
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [range(9999)[1:]] %}{% endfor %}");
  EXPECT_NE(bytes.find("the limit of 1024 MiB"), std::string::npos) << bytes;
}

// Without limits, each would take hours or use the whole stack. The texts of the three searches are short: kLow has the
// steps to read them, but not those of the search, the product of both lengths.
TEST(Jinja, NoTemplateRunsForever) {
  kSteps.stops({
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set big = range(99999) | list %}{% for a in big %}{% if a in big[::-1] %}{% endif %}{% endfor %}",
      "{% set big = range(99999) %}{% for a in big %}{{ 'x' if big == big | list }}{% endfor %}",
      "{% set big = range(99999) %}{% for a in big %}{% set x = big | sort %}{% endfor %}",
      "{% set s = 'a' * 16000000 %}{{ s.find('a' * 8000000 ~ 'b') }}",
      "{% set s = 'a' * 16000000 %}{{ ('a' * 8000000 ~ 'b') in s }}",
      "{% set s = 'a' * 4000000 %}{{ s.strip('b' * 2000000 ~ 'a') }}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s[i] %}{% endfor %}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s is lower %}{% endfor %}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s | length %}{% endfor %}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s == s %}{% endfor %}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s < s %}{% endfor %}",
      "{% set s = 'ab' * 10000000 %}{% for i in range(99999) %}{% set x = s | wordcount %}{% endfor %}",
  });
  kCalls.stops({
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% macro m() %}{{ caller }}{% call m() %}x{% endcall %}{% endmacro %}{{ m() }}",
  });
}

TEST(Jinja, SharedPartsCountTowardsTheLimits) {
  const std::string begin = "{% set ns = namespace() %}", two = begin + doubled("v", "[]", 60) + doubled("w", "[]", 60);
  kSteps.stops({two + "{{ ns.v == ns.w }}", two + "{{ ns.v in [ns.w] }}", two + "{{ ns.v < ns.w }}",
                two + "{{ [ns.w, ns.v] | sort }}", two + "{{ ns.v }}", two + "{{ ns.v | tojson }}",
                two + "{{ '%s' % (ns.v,) }}", two + "{{ ns.v | string | length }}"});
}

TEST(Jinja, NoTemplateExhaustsMemory) {
  // A step reads 64 bytes of the key, so the steps run out before the bytes. The long name below is not read.
  kSteps.stops({
      "{% set ns = namespace(l=[]) %}{% set s = 'x' * 9000000 %}{% for i in range(9999) %}"
      "{% set ns.l = ns.l + [{}[s]] %}{% endfor %}",
  });
  kText.stops({
      "{{ 'x' * 10000000000 }}",
      "{{ 'x' * 1000000000 }}",
      "{{ [1] * 10000000000 }}",
      "{{ 'x'.center(10000000000) }}",
      "{{ 'x'.ljust(1000000000) }}",
      "{{ 'x'.rjust(1000000000, '🎉') }}",
      "{{ '7'.zfill(1000000000) }}",
      "{{ 'x' | center(1000000000) }}",
      "{{ '\t'.expandtabs(1000000000) }}",
      "{{ '%1000000000s' % 'x' }}",
      "{{ '%-1000000000d' % 1 }}",
      "{{ '{:>1000000000}'.format('x') }}",
      "{{ ('x\n' * 100000) | indent('y' * 1000) }}",
      "{{ ('x\n' * 100000) | indent(10000) }}",
      "{{ (range(90000) | list) | tojson(indent='y' * 10000) }}",
      "{{ (range(90000) | list) | tojson(separators=(',' * 10000, ':')) }}",
      "{{ range(90000) | join('y' * 10000) }}",
      "{{ ('y' * 10000).join(['x'] * 90000) }}",
      "{{ ('%s' * 90000) | format(*['y' * 10000] * 90000) }}",
      "{% set a = 'x' * 30000000 %}{{ '{0}{0}{0}{0}'.format(a) }}",
      "{% set a = 'x' * 30000000 %}{{ a ~ a ~ a ~ a ~ a ~ a }}",
      "{% set a = 'x' * 30000000 %}{{ a }}{{ a }}{{ a }}",
      "{% set a %}{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}{% endset %}",
      "{% macro m() %}{{ 'x' * 9000000 }}{% endmacro %}{{ m() ~ m() ~ m() ~ m() ~ m() }}",
      "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
      "{{ ('x' * 1000000).replace('', 'y' * 1000) }}",
      "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(100) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
      "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(100) %}{% set ns.t = ns.t * 2 %}{% endfor %}",
  });
  // In each, the bytes of kLow run out before its steps.
  const std::string name(1000000, 'x');
  kBytes.stops({
      "{% set ns = namespace(l=[]) %}{% for i in range(999) %}"
      "{% set ns.l = ns.l + [{}." +
          name + "] %}{% endfor %}",
      "{% set big = range(99999) %}{% for a in big %}{{ big | first }}{% endfor %}",
      "{{ ('a,' * 5000000).split(',') }}",
      "{{ ('a ' * 2000000).split() }}",
      "{{ ('a\n' * 2000000).splitlines() }}",
      "{{ ('a' * 2000000) | list }}",
      "{% for c in 'a' * 2000000 %}{% endfor %}",
      "{% set ns = namespace(l=[1] * 7) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + [range(9999)] %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
      "{% set ns.l = ns.l + [range(9999)[1:]] %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
      "{% set ns.l = ns.l + [[1] | batch(99999, 0) | list] %}{% endfor %}",
      "{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, **{i | string: i}) %}"
      "{% endfor %}",
      "{% for i in range(99999) %}{% for j in range(99) %}{% macro m() %}{% endmacro %}"
      "{% macro n() %}{% endmacro %}{% macro o() %}{% endmacro %}{% macro p() %}{% endmacro %}{% endfor %}{% endfor %}",
  });
  kRange.stops({
      "{{ range(10000000) }}",
      "{{ range(-9000000000000000000, 9000000000000000000) }}",
  });
  EXPECT_NE(failure("{{ strftime_now('%B' * 1000000) }}").find("too long"), std::string::npos);
  EXPECT_NE(failure("{{ '%.1000000000f' % 1.5 }}").find("precision too big"), std::string::npos);
}

TEST(Jinja, TheLargestNumbersDoNotOverflow) {
  for (const char* source :
       {"{{ range(0, 9223372036854775807, 9223372036854775806) | list }}", "{{ 'abc'[1::9223372036854775807] }}",
        "{{ [1, 2, 3][2::-9223372036854775807 - 1] }}", "{{ '-7'.zfill(-9223372036854775807 - 1) }}",
        "{{ 'a b'.split(none, -9223372036854775807 - 1) }}", "{{ 1.5 | round(9223372036854775807) }}",
        "{{ 'abc' | truncate(9223372036854775807, leeway=9223372036854775807) }}"}) {
    SCOPED_TRACE(source);
    EXPECT_EQ(failure(source), "");
  }
  EXPECT_NE(failure("{{ (-9223372036854775807 - 1) | abs }}").find("64 bits"), std::string::npos);
  EXPECT_NE(failure("{{ '%d' % 1e300 }}").find("64 bits"), std::string::npos);
}

TEST(Jinja, DeepNestingIsAnErrorNotACrash) {
  const std::string open(100000, '('), close(100000, ')');
  EXPECT_NE(failure("{{ " + open + "1" + close + " }}").find("nested too deeply"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if true %}";
  EXPECT_NE(failure(blocks).find("nested too deeply"), std::string::npos);
  std::string nots = "{{ ";
  for (int i = 0; i < 100000; ++i) nots += "not ";
  EXPECT_NE(failure(nots + "1 }}").find("nested too deeply"), std::string::npos);
  for (const char* step :
       {"[ns.v]", "(ns.v,)", "{'k': ns.v}", "cycler(ns.v)", "[ns.v] | map('list')", "[ns.v].index"}) {
    const std::string source =
        "{% set ns = namespace(v=[1]) %}{% for i in range(99999) %}{% set ns.v = " + std::string(step) +
        " %}{% endfor %}";
    EXPECT_NE(failure(source).find("nested"), std::string::npos) << step << failure(source);
  }
  EXPECT_NE(
      failure("{% set ns = namespace(v=[1]) %}{% for i in range(99999) %}{% for x in [ns.v] %}{% set ns.v = loop %}"
              "{% endfor %}{% endfor %}")
          .find("nested"),
      std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 200000; ++i) sum += " + 1";
  EXPECT_NE(failure(sum + " }}").find("nested"), std::string::npos);
  std::string chain = "{{ x";
  for (int i = 0; i < 200000; ++i) chain += ".a";
  EXPECT_NE(failure(chain + " }}").find("nested"), std::string::npos);
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = {{"k", std::move(deep)}};
  try {
    (void)jinja::Template("{{ messages }}").render({{"messages", deep}});
    ADD_FAILURE() << "no UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("nested"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fettle
