"""Records what Jinja2 renders for the cases below, with the settings that Transformers uses for chat templates.

Run it with a Python that has transformers and jinja2. It writes jinja_cases.json to this folder. If a case fails, the
failure is recorded, and the case must fail in Fettle, too.
"""

import json
import pathlib
import re
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

USER = {"role": "user", "content": "Hi there"}
TALK = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "What is 2+2?\n"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "És é 日本 🎉?"},
    {"role": "assistant", "content": "  Ja, <b>\"quoted\"</b> & more  "},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a \"city\" <now> & 'then'",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}},
                "required": ["city"],
            },
        },
    }
]
CALLS = [
    {"role": "user", "content": "Weather in Paris?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", "n": 2}}}],
    },
    {"role": "tool", "name": "get_weather", "content": "22"},
    {"role": "assistant", "content": "22 degrees."},
]

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7.5 % 2, -7.5 // 2
2 ** 10, 2 ** -1, -2 ** 2
1 / 3, 10 / 5, 1e20, 1e-5, 100000000000000000.0, 1.0, 0.1 + 0.2
'a' + 'b' ~ 1 ~ none ~ true
'ab' * 3, [1] * 2, 3 * 'x'
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, '1' == 1
'a' in 'cat', 'x' not in 'cat', 1 in [1, 2], 'k' in {'k': 1}
not true or false and true
'yes' if 1 else 'no', 'x' if false
[1, 'a', none, true, 1.5, ('t',), (1, 2), {'k': [1]}]
{'a': 'it\'s', "b": "\"", 'c': 'both \' and "', 'd': 'tab\t nl\n back\\ nul\x00 é \u200b \xa0 🎉'}
'hello'[1], 'hello'[-1], 'hello'[1:3], 'hello'[::-1], 'hello'[::2], 'hello'[-3:], 'hello'[10:], 'hello'[3:1]
[1,2,3,4][1:-1], [1,2,3,4][::-1], [1,2,3,4][-1], (1,2,3)[1:]
'日本語🎉'[1], '日本語🎉'[::-1], '日本語🎉'|length, '日本語🎉'[1:3]
'abc'.upper(), 'ÀÉß'.lower(), 'àéß'.upper(), 'hello world'.title(), 'hELLO'.capitalize(), 'aBc'.swapcase()
' x '.strip(), 'xxaxx'.strip('x'), 'abcabc'.lstrip('ab'), 'x\n\t '.rstrip(), '\u3000x\xa0'.strip()
'a,b,,c'.split(','), ' a  b c '.split(), 'a b c'.split(none, 1), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), ' a b  c '.rsplit(none, 1), ''.split(), ''.split(',')
'a\nb\r\nc\n'.splitlines(), 'a\nb\n'.splitlines(true), 'x'.splitlines()
'abc'.startswith('ab'), 'abc'.endswith(('x', 'bc')), 'abc'.startswith('b', 1), 'abc'.find('c'), 'abc'.find('z'), 'abcabc'.rfind('b'), 'aXbX'.count('X')
'a-b-c'.replace('-', '+'), 'a-b-c'.replace('-', '+', 1), 'abc'.replace('', '.'), 'prefix'.removeprefix('pre'), 'prefix'.removesuffix('fix')
'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('-')
'-'.join(['a', 'b']), '7'.zfill(3), '-7'.zfill(4), 'x'.center(5, '*'), 'xy'.center(5, '*'), 'x'.ljust(3) ~ '|', 'x'.rjust(3)
'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), 'AB'.isupper(), 'ab'.islower(), ''.isdigit(), 'Ab Cd'.istitle()
'%s is %d, %5.2f%% %r %x' % ('a', 3, 1.234, 'q', 255)
'%s' % 'x', '%05d' % 42, '%-5s|' % 'ab', '%(k)s' % {'k': 1}
'{1} {name!r} {0:>5}'.format('a', 'b', name='n')
'{:.2f} {:05d} {:,} {:>6} {:<6}| {:^6}| {:x} {:%}'.format(1.005, 42, 1234567, 'r', 'l', 'c', 255, 0.25)
'{0[k]} {1.a}'.format({'k': 1}, namespace(a=2))
{'a': 1}.get('a'), {'a': 1}.get('b'), {'a': 1}.get('b', 2), {'a': 1, 'b': 2}.keys()|list, {'a': 1}.values()|list, {'a': 1}.items()|list
[3, 1, 2].index(1), [1, 1, 2].count(1)
dict(a=1, b='x'), dict({'k': 1}, z=2)
range(3)|list, range(1, 10, 3)|list, range(5, 0, -2)|list
x|default('d'), x|default('d', true), ''|default('e'), ''|default('e', true), none|d('n'), (x is defined), (x is undefined), x|length, x|list
[1, 2]|length, {'a': 1}|count, 'é'|length
'  x '|trim, 'xx.x'|trim('x'), 'a'|upper, 'HeLLo wOrld-foo (bar'|title, 'hELLO'|capitalize
[3, 1, 2]|sort, [3, 1, 2]|sort(reverse=true), ['b', 'A', 'c']|sort, ['b', 'A']|sort(case_sensitive=true), [{'k': 2}, {'k': 1}]|sort(attribute='k')
[1, 2, 3]|first, [1, 2, 3]|last, []|first, 'abc'|first, 'abc'|last
[1, 2, 3]|sum, [{'v': 1}, {'v': 2}]|sum(attribute='v'), [1.5, 2]|sum(start=10)
[1, 2]|join(', '), [{'n': 'a'}, {'n': 'b'}]|join('-', attribute='n'), 'abc'|join('.')
[1, 2, 3]|map('string')|list, [{'n': {'m': 1}}]|map(attribute='n.m')|list, [{'a': 1}, {}]|map(attribute='a', default=0)|list, ['a', 'b']|map('upper')|join, [[1, 2]]|map(attribute=1)|list
[0, 1, 2]|select|list, [1, 2, 3]|select('odd')|list, [1, 2, 3]|reject('gt', 1)|list, [{'r': 'a'}, {'r': 'b'}]|selectattr('r', 'equalto', 'a')|list, [{'r': 1}, {}]|rejectattr('r')|list, [{'r': 1}, {}]|selectattr('r', 'defined')|list, [1]|select('in', [1, 2])|list
[1, 2, 1, 'a', 'A']|unique|list, [3, 1]|min, [3, 1]|max, ['b', 'A']|min, []|max
'abc'|reverse, [1, 2]|reverse|list
'a-b'|replace('-', '+'), 'aaa'|replace('a', 'b', 2), 1.5|string|replace('.', ',')
-3|abs, (-3)|abs, -1.5|abs, 3.7|int, '42'|int, 'x'|int, 'x'|int(7), '0x1f'|int(base=16), '3.9'|int, '1.5'|float, 'q'|float(2.5), 7|float
2.5|round, 3.5|round, 2.675|round(2), 2.1|round(method='ceil'), 2.9|round(0, 'floor'), 42|round
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> ')
'one two three four'|truncate(9), 'one two three four'|truncate(9, true), 'abc'|truncate(3), 'one two three'|truncate(9, leeway=0), 'one two three'|wordcount
{'b': 1, 'A': 2}|dictsort, {'b': 1, 'a': 2}|dictsort(by='value'), {'b': 1, 'a': 2}|dictsort(reverse=true), {'a': 1}|items|list
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 'x')|list, [1, 2, 3, 4, 5]|slice(2)|list, [1, 2, 3]|slice(2, 0)|list
[{'k': 'a', 'v': 1}, {'k': 'b', 'v': 2}, {'k': 'a', 'v': 3}]|groupby('k')
'<a href="x">b</a> & \'c\''|e|string ~ '', '<p>Hello <b>x</b>\n y</p>'|striptags, 'a b/c?d=é'|urlencode, '%s-%s'|format(1, 'b')
1 is odd, 2 is even, 9 is divisibleby 3, 9 is divisibleby(2)
none is none, 1 is none, true is true, 1 is true, false is false, true is boolean, 1 is boolean
1 is integer, true is integer, 1.0 is float, 1 is number, true is number, 'a' is string, {} is mapping, [] is mapping
[] is sequence, 'a' is sequence, {} is sequence, 1 is sequence, [] is iterable, 1 is iterable, range is callable, 'a' is callable
1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is ge 2, 'a' is in ['a'], 'a' is equalto 'a', 'ab' is lower, 'AB' is upper, 1 is not string, x is not defined
'upper' is filter, 'nope' is filter, 'odd' is test
[1,2]|map('string')|list|tojson, {'a': [1, 2.0, none, true, 'é<>&\'"\n\u2028']}|tojson, {'b': 1, 'a': {}}|tojson(indent=2), []|tojson(indent=4), {'b': 1, 'a': [1]}|tojson(sort_keys=true), 'é🎉'|tojson(ensure_ascii=true), [1, {'a': 2}]|tojson(separators=(',', ':')), {1: 2, 'x': 1e100}|tojson, (1, 2)|tojson
'a' 'b' "c"
"\u00e9\x41\n\t\\q\'"
[1, 2, 3,]
(1,)
()
[[1, 2], [3]]|sum(start=[])
1_000 + 0x10 + 0b11 + 0o7
{'a': {'b': [10, 20]}}.a.b[1], {'a': {'b': [10, 20]}}.a.b.0
'x'.missing is defined, {}.missing is defined, [1][5] is defined, none.foo is defined
(none or 'x'), (0 and 1), ('' or [] or 'last')
joiner('; ') is callable
[1, 2]|list == [1, 2], (1, 2) == [1, 2], {'a': 1} == {'a': 1.0}
'b' > 'a', 'Z' < 'a', 'é' > 'z', [1, 2] < [1, 3]
1 if none is none else 2 if true else 3
'%.3s|%5s|%-5s|%+d' % ('abcdef', 'ab', 'ab', 5)
'abc'|list, {'x': 1}|list, 'ab'|map('upper')|list
[true, false]|select|list|length
'A'.casefold(), 'a\tb'.expandtabs(4), 'a' .isidentifier(), '1a'.isidentifier()
-5 // 2, 5 // -2, -5 % 2, 5 % -2, 0 // 5
3 * -2, +5, - 5, 2 - -2
1.5e3, 12.0, 1e16, 1e15, 123456789.123, 5e-324, 1.7976931348623157e308
[1, [2, [3]]]|string, {'a': (1,)}|string, none|string, true|string
'a' ~ [1, 'b'] ~ {'k': none}
'Hello'|center(11) ~ '|'
range(3)|map('string')|join('+')
['a', 'b']|last|upper, ('a' ~ 'b')|upper, 'a' ~ 'b'|upper
'x' is string and 'y' is string, not 'x' is string
1 in [1] and 2 not in [1]
{'a': 1}['a'], {'a': 1}['b'] is defined, {'items': 5}['items'], {'items': 5}.items()|list
'abc'|attr('upper') is callable, {'a': 1}|attr('a') is defined
none|selectattr('x')|list, none|map('upper')|list, 0|reject('odd')|list, {'a': 1}[nothing] is defined, [1][nothing] is defined
'<'|safe + '<', '<' + ('<'|e), ('<'|e)|e, (' <'|safe|trim) + '&', '<'|forceescape|forceescape, '<'|safe ~ '<'
[{'g': 'x', 'v': 2}, {'g': 'y', 'v': 1}, {'g': 'x', 'v': 1}]|groupby('g')|map(attribute='list')|list, ([{'g': 1}]|groupby('g')|first).grouper
[{'g': 'x', 'v': 2}, {'g': 'Y', 'v': 1}, {'g': 'X', 'v': 1}]|sort(attribute='g,v')|map(attribute='v')|list, [[2, 'a'], [1, 'b']]|sort(attribute=0)
{'a': 1, 'b c/': 'd&+'}|urlencode, 'it\'s <b> a_b é½x -'|wordcount
'ßǆ'.title(), 'ßa'.capitalize(), 'Straße İ'.casefold(), '²'.isdigit(), '½'.isdigit(), '½'.isnumeric(), '²'.isdecimal()
nothing is callable, 1 is callable, ('<'|e) is escaped, '<' is escaped
['1_000', '1__0', '_1', '1_', '0x1', '1e3', '1_0.5', '1_0e1_0', 'inf', 'nan', '-2_0'] | map('int') | list
['1_000', '1__0', '_1', '1_', '0x1', '0x1p3', '1e3', '1_0.5', '1._5', '1e_3', '1_0e1_0', 'inf', '-Infinity', 'nan(1)'] | map('float') | list
'0x1_f'|int(base=16), '0x_1f'|int(base=16), 'f_f'|int(base=16), 'f__f'|int(base=16), '1_1'|int(base=2)
dict.fromkeys(['a', 'b']), dict.fromkeys('ab', 1), dict.fromkeys({'k': 1}, value) is mapping, dict.fromkeys([]), dict.nothing is defined, dict is callable
""".strip().split("\n")

TEMPLATES = {
    "trim": "a\n{% if true %}\n  b\n  {% endif %}\nc\n   {# comment #}\n d {{ 1 }}\n\ne  {% if true -%}  \n f {%- endif %}  g\n",
    "signs": "  {%+ if true %}x{% endif +%}\n  y {{- ' z ' -}} \n w\n{#- c -#}\n v {%- set a = 1 -%} u\n{{+ 1 }}\n",
    "raw": "{% raw %}{{ x }} {% y %}\n{% endraw %}\nz\n  {%- raw -%}  a  {%- endraw -%}  b",
    "newlines": "a\r\nb\rc\n\n",
    "comments": "{# a #}\n{#- b -#}\nx{# multi\nline #}y {#c#} z",
    "loop": "{% for x in [1, 2, 3] %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.cycle('a', 'b') }};{% endfor %}",
    "loop_if": "{% for x in range(10) if x % 3 == 0 %}{{ x }}:{{ loop.index }}:{{ loop.length }}:{{ loop.last }},{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
    "loop_lazy": "{% set ns = namespace(stop=false) %}{% for x in range(10) if not ns.stop %}{{ x }}{% if x == 3 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "loop_unpack": "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for c in 'hé' %}[{{ c }}]{% endfor %}{% for x in undefined_thing %}x{% endfor %}",
    "loop_control": "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "loop_else": "{% for x in [1] %}{% break %}{% else %}{{ x }}E{% endfor %} {% for x in [1, 2] %}{{ x }}{% continue %}{% else %}E{{ loop is defined }}{% endfor %} {% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %} {% for x in [1, 2] %}{{ x }}{% if x == 1 %}{% continue %}{% endif %}{% break %}{% else %}E{% endfor %} {% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %} {% for x in [1, 2] %}{% for y in [1] %}{% break %}{% else %}F{% endfor %}{% else %}E{% endfor %}",
    "unicode_space": "a\u00a0\u2003{{- 1 -}}\u00a0\u3000b\x1c\u2028{%- if 1 -%}\u2003c\x85{%- endif %}\n\u00a0{% if 1 %}d{% endif %}\n\u2003{# x #}e\u200b{{- 1 -}}\u200bf\n\u3000g{% if 1 %}{% endif %}\u2028{#- x -#}\u00a0{{\u00a01\u2003}}{%\u00a0if\u30001\u00a0%}h{% endif %}{%\u00a0raw\u00a0-%}\u00a0{{i}}\u2003{%-\u00a0endraw\u00a0%}",
    "loop_scope": "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "loop_changed": "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "loop_recursive": "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}({{ n.v }}@{{ loop.depth }}{{ loop(n.c) }}){% endfor %}",
    "namespace": "{% set ns = namespace(a=1, b=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.c is defined }} {{ ns['a'] }}",
    "set_block": "{% set x %}  a{{ 1 }}\n{% endset %}[{{ x }}]{% set y | upper | trim %} b {% endset %}[{{ y }}]{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "macro": "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}-{{ d }};{% endmacro %}{% set d = 5 %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=9, a=8) }}{{ m() }}{{ m.name }}",
    "macro_varargs": "{% macro m(a) %}{{ a }}|{{ varargs }}|{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k='v') }}{{ m(*[1, 2], **{'z': 1}) }}",
    "macro_recursive": "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro_return": "{% macro f(x) %}\n  {{- x | upper -}}\n{% endmacro %}{{ f('a') ~ f('b') }} {{ f('q') | lower }} {{ f('z') == 'Z' }}",
    "call": "{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}in {{ 1 + 1 }}{% endcall %}{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% call(v, i) each(['p', 'q']) %}{{ i }}{{ v }}{% endcall %}",
    "filter_block": "{% filter upper %}a {{ 'b' }}{% endfilter %}{% filter replace('x', 'y') | trim %}  x x {% endfilter %}",
    "with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c is defined }}",
    "if_chain": "{% for x in [1, 2, 3, 4] %}{% if x == 1 %}one{% elif x == 2 %}two{% elif x == 3 %}three{% else %}many{% endif %} {% endfor %}",
    "generator_truth": "{% if [1, 2] | selectattr('x', 'defined') %}true{% else %}false{% endif %}{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}",
    "inline_if": "{{ 'a' if x is defined else 'b' if y is defined else 'c' }}{{ 'q' if false }}{{ ('x' if true else 'y') ~ 'z' }}",
    "joiner": "{% set j = joiner(', ') %}{% for x in [1, 2, 3] %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content | trim }}<eos>{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}\n{% endfor %}",
    "print_tag": "{% print 1 + 1 %}",
    "undefined_print": "[{{ nothing }}][{{ messages[0].nothing }}][{{ messages[0]['nothing'] }}]",
    "deep_scope": "{% set x = 'o' %}{% macro m() %}{{ x }}{% endmacro %}{% for i in [1] %}{% set x = 'i' %}{{ m() }}{{ x }}{% endfor %}",
    "method_on_value": "{% set s = messages[1].content.split('\\n')[0].strip() %}{{ s }}{{ messages[1]['content'].upper().lower() | length }}",
    "tojson_tools": "{{ tools | tojson }}\n{{ tools | tojson(indent=4) }}\n{{ tools[0] | tojson(indent=2) }}{% for t in tools %}{{ t.function.parameters.properties | dictsort }}{% endfor %}",
    "escapes": "{{ 'a\\nb' }}{{ \"\\u00e9\" }}{{ '\\'' }}{{ \"\\\\\" }}",
    "chatml_like": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "inst_like": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
""",
    "tools_like": """{%- macro show(properties) %}
    {%- for key, value in properties | dictsort %}
        {%- if not loop.first %}, {% endif -%}
        {{ key }}: {{ value.type | default('any') }}
    {%- endfor %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
        {{- show(tool.function.parameters.properties) }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "gemma_like": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] | trim + '\\n\\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first_user_prefix = "" %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = "model" %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}{% if message['content'] is string %}{{ message['content'] | trim }}{% elif message['content'] is iterable %}{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<image>' }}{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}{{ '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    # Templates that fail.
    "bad_undefined_attribute": "{{ nothing.more }}",
    "bad_undefined_sum": "{{ nothing + 1 }}",
    "bad_undefined_call": "{{ nothing() }}",
    "bad_add": "{{ 'a' + 1 }}",
    "bad_raise": "x\n{{ raise_exception('no ' ~ 1) }}",
    "bad_append": "{% set x = [] %}{% set _ = x.append(1) %}",
    "bad_update": "{% set x = {} %}{% set _ = x.update({'a': 1}) %}",
    "bad_iterate": "{% for x in 5 %}{% endfor %}",
    "bad_none_iterate": "{% for x in none %}{% endfor %}",
    "bad_filter": "{{ 1 | nosuch }}",
    "bad_test": "{{ 1 is nosuch }}",
    "bad_syntax": "{{ 1 + }}",
    "bad_tag": "{% nosuch %}",
    "bad_unclosed": "{% if true %}x",
    "bad_unclosed_output": "{{ 1 ",
    "bad_string": "{{ 'abc }}",
    "bad_bracket": "{{ (1 }}",
    "bad_end": "{% endfor %}",
    "bad_macro_args": "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "bad_macro_kwargs": "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "bad_unpack": "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "bad_zero": "{{ 1 / 0 }}",
    "bad_json": "{{ nothing | tojson }}",
    "bad_namespace": "{% set ns = {} %}{% set ns.x = 1 %}",
    "bad_range": "{{ range(1000000) | list }}",
    "bad_index": "{{ [1].index(5) }}",
    "bad_compare": "{{ 1 < 'a' }}",
    "bad_in": "{{ 1 in 'abc' }}",
    "bad_len": "{{ 5 | length }}",
    "bad_generator_len": "{{ [1] | map('string') | length }}",
}

CONTEXTS = {
    "talk": {"messages": TALK, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>", "tools": None},
    "prompt": {"messages": [USER], "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "tools": None},
    "tools": {"messages": CALLS, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "tools": TOOLS},
}


THINKING = [
    {"role": "user", "content": "Add 2 and 2."},
    {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n4"},
    {"role": "user", "content": "And 3?"},
    {"role": "assistant", "content": "7", "reasoning_content": "4 + 3", "thinking": "4 + 3"},
]
MORE_CONTEXTS = {
    "short": {"messages": [USER, {"role": "assistant", "content": "Hello!"}], "add_generation_prompt": False,
              "bos_token": "<s>", "eos_token": "</s>", "tools": None},
    "no_system": {**CONTEXTS["talk"], "messages": TALK[1:]},
    "offered": {**CONTEXTS["tools"], "messages": [{"role": "system", "content": "Use tools."}, USER]},
    "calls": {**CONTEXTS["tools"], "tools": None, "add_generation_prompt": False},
    "thinking": {**CONTEXTS["talk"], "messages": THINKING},
    "think_off": {**CONTEXTS["prompt"], "enable_thinking": False},
    "think_on": {**CONTEXTS["prompt"], "messages": THINKING[:3], "enable_thinking": True},
    "parts": {**CONTEXTS["prompt"], "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    "wrong": {**CONTEXTS["talk"], "messages": [{"role": "assistant", "content": "I begin"}, USER, USER]},
}

def render(source, context):
    try:
        template = _compile_jinja_template(source)
        if re.search(r"\{%-?\s*generation\s*-?%\}", source):
            text, spans = _render_with_assistant_indices(compiled_template=template, **{"documents": None, **context})
            return {"text": text, "spans": [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]}
        return {"text": template.render(**context)}
    except Exception as error:  # all kinds of failures count
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    cases = []
    for name, source in [(f"expression_{i}", "{{ " + e + " }}") for i, e in enumerate(EXPRESSIONS)] + list(TEMPLATES.items()):
        uses_context = any(word in source for word in ("messages", "tools", "add_generation_prompt"))
        for context_name, context in CONTEXTS.items():
            if not uses_context and context_name != "talk":
                continue
            cases.append({"name": name, "context": context_name, "template": source, **render(source, context)})
    out = pathlib.Path(__file__).with_name("jinja_cases.json")
    out.write_text(json.dumps({"contexts": CONTEXTS, "cases": cases}, ensure_ascii=False, indent=1) + "\n")
    failed = [c["name"] for c in cases if "error" in c and not c["name"].startswith("bad_")]
    print(len(cases), "cases; failing:", failed, file=sys.stderr)


if __name__ == "__main__":
    main()
