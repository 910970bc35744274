#include <gtest/gtest.h>

#include "base/error.h"
#include "data/jinja/template.h"

namespace fettle {
namespace {

std::string failure(const std::string& source) {
  try {
    render_jinja(source, nlohmann::ordered_json::object(), "chat_template.jinja");
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
      {"\n\n{% if x %}\nb", "chat_template.jinja:3:", "never closed"},
      {"{% frobnicate %}", ":1:", "the tag 'frobnicate' is not known"},
      {"x\n{{ 'abc }}", ":2:", "a string is never closed"},
      {"{{ (1, 2 }}", ":1:", "expected ')'"},
      {"a\nb\n{{ missing.part }}", ":3:", "'missing' is undefined"},
      {"{% set x = {'a': 1} %}\n{{ x.b.c }}", ":2:", "'dict object' has no attribute 'b'"},
      {"\n{{ 'a' + 1 }}", ":2:", "unsupported operand type(s) for +: 'str' and 'int'"},
      {"\n{{ raise_exception('roles must alternate') }}", ":2:", "roles must alternate"},
      {"{{ 1 | frob }}", ":1:", "No filter named 'frob'"},
      {"{{ 1 is frob }}", ":1:", "No test named 'frob'"},
      {"{% set x = [] %}\n{{ x.append(1) }}", ":2:", "unsafe"},
      {"{% set ns = namespace() %}{% set ns.__class__ = 1 %}", ":1:", "underscore"},
      {"{# open", ":1:", "never closed"},
      {"{% raw %}open", ":1:", "endraw"},
      {"{% include 'other' %}", ":1:", "the tag 'include' is not known"},
      {"{% break %}", ":1:", "outside a loop"},
      {"{{ 99999999999999999999 }}", ":1:", "no integer of 64 bits"},
      {"{{ 9223372036854775807 + 1 }}", ":1:", "more than 64 bits"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.source);
    const std::string message = failure(one.source);
    EXPECT_NE(message.find(one.where), std::string::npos) << message;
    EXPECT_NE(message.find(one.reason), std::string::npos) << message;
  }
}

TEST(Jinja, NoTemplateRunsForever) {
  EXPECT_NE(failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}").find("steps"),
            std::string::npos);
  EXPECT_NE(failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested"), std::string::npos);
  EXPECT_NE(failure("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").find("nested"), std::string::npos);
}

TEST(Jinja, NoTemplateExhaustsMemory) {
  for (const char* source :
       {"{{ 'x' * 10000000000 }}", "{{ [1] * 10000000000 }}", "{{ 'x'.center(10000000000) }}",
        "{{ '%1000000000s' % 'x' }}", "{{ '{:>1000000000}'.format('x') }}",
        "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(100) %}{% set ns.t = ns.t ~ ns.t %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{% set a = 'x' * 100000000 %}{{ a }}{{ a }}{{ a }}", "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}"}) {
    SCOPED_TRACE(source);
    EXPECT_NE(failure(source).find("limit"), std::string::npos) << failure(source);
  }
  EXPECT_NE(failure("{{ range(10000000) }}").find("range"), std::string::npos);
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
  EXPECT_NE(
      failure("{% set ns = namespace(v=1) %}{% for i in range(5000) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}")
          .find("nested"),
      std::string::npos);
}

}  // namespace
}  // namespace fettle
