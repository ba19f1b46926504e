"""Expressions and small templates give what Jinja gives: a list of each, and random ones."""
import random
import re

import jinja2.runtime
import python_jinja
import pytest
from today import DAY

VARIABLES = {
    "a": 7, "b": -3, "f": 2.5, "big": 9007199254740993, "s": "Hello World", "t": "  padded\n", "u": "ünï 漢字 🙂", "empty": "", "l": [3, 1, 2],
    "ls": ["b", "A", "c"], "nested": [{"n": 1, "x": {"y": [10, 20]}}, {"n": 2, "x": {"y": []}}, {"n": 2}],
    "d": {"b": 1, "a": 2, "items": 3}, "ed": {}, "el": [], "yes": True, "no": False, "nil": None,
    "mixed": [1, "a", None, 2.5, True, [1], {"k": "v"}], "h": "<b>&\"'</b>", "seven": 7.0, "huge": 18446744073709551615, "near": 9007199254740992.0, "odd": "\x00\x1f\x7f\x07\u200d\xa0\u2028\"\\/\b\f",
    "floats": [0.1, 1e16, 1e15, 1e-5, 0.0001, 1e22, 123456789.123456789, 2.5e-8, -0.0, 2.0, 1e100, 5e-324, 1.5e-310, 0.30000000000000004, 1e23, 9007199254740993.5, 120.0], "multi": "one\ntwo\n\nthree", "csv": "a,b,,c"}

STATEMENTS = r"""
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}|{% endfor %}
{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for x in el %}x{% else %}none{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }} {% else %}none{% endfor %}
{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }};{% endfor %}
{% for c in u %}{{ c }}.{% endfor %}
{% for x in missing %}x{% else %}undefined is empty{% endfor %}
{% for x in a %}x{% endfor %}
{% for x in nil %}x{% endfor %}
{% for a, b in l %}x{% endfor %}
{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }}{% endfor %}
{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% for y in ls %}{% if y == 'A' %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in l %}{% set outer = loop %}{% for y in ls %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in l recursive %}{{ x }}{% endfor %}
{% break %}
{% for x in l %}{% endfor %}{{ x }}
{% for x in l %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}
{% set x = 1 %}{% for y in l %}{% set x = y %}{% endfor %}{{ x }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}
{% if no %}{% set s = 2 %}{% endif %}{{ s }}
{% for y in l %}{% if loop.first %}{% set s = 'set' %}{% endif %}{{ s }} {% endfor %}{{ s }}
{% for y in l %}{{ z is defined }}{% set z = 1 %}{% endfor %}
{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}
{% if no %}{{ s|upper.title() }}{% endif %}fine
{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.b = ns.a + [2] %}{{ ns.b }}{{ ns.c }}
{% set d.x = 1 %}
{% set missing.x = 1 %}
{% set x, y = 1, 2 %}{{ x }}{{ y }}
{% set x, y = [1, 2, 3] %}
{% set (x, y) = (1, 2) %}{{ x + y }}
{% set x = 1, 2 %}{{ x }}
{% set x, = [5] %}{{ x }}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set true = 1 %}
{% set 5 = 1 %}
{% set x %}block {{ a }}{% endset %}[{{ x }}]
{% set x | upper | replace('B', 'c') %}block{% endset %}[{{ x }}]
{% set ns = namespace() %}{% set ns.x %}in{% endset %}{{ ns.x }}
{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}
{% set x = 1 %}{% set x %}{{ x }}{{ x + 1 }}{% endset %}{{ x }}
{% if a > 5 %}big{% elif a > 3 %}middle{% else %}small{% endif %}
{% if b > 5 %}big{% elif b > -5 %}middle{% else %}small{% endif %}
{% if b > 5 %}1{% elif b > 4 %}2{% elif b > 3 %}3{% else %}4{% endif %}
{% if missing %}x{% else %}y{% endif %}
{% if missing.x %}x{% endif %}
{% if no %}{{ 1 | nosuch }}{% endif %}fine
{% if yes %}{{ 1 | nosuch }}{% endif %}
{{ 1 if no else 1 is nosuch }}
{% macro m(x, y=2, z='q') %}<{{ x }}{{ y }}{{ z }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(x=4, z=5) }}{{ m() }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(y=2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}
{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(3) }}
{% macro m(x, y=a) %}{{ x }}{{ y }}{{ s }}{% endmacro %}{{ m(3) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 'a', k=2) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}inside {{ a }}{% endcall %}
{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(x, y=3) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m() %}[{{ caller is defined }}]{% endmacro %}{{ m() }}{% call m() %}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{% macro m() %}[{{ caller() }}]{% endmacro %}{{ m() }}
{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro a1() %}{{ b1() }}{% endmacro %}{% macro b1() %}b{% endmacro %}{{ a1() }}
{% macro m() %}{{ z }}{% endmacro %}{% set z = 5 %}{{ m() }}
{% macro m() %}{{ z }}{% endmacro %}{{ m() }}{% set z = 5 %}{{ m() }}
{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z is defined }}
{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') ~ m('b') }}{{ m('a')|length }}{{ m('x') is string }}
{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}
{% macro m(role, content) %}<{{ role }}>{{ content }}{{ caller() if caller }}{% endmacro %}{% call m('user', content='hi') %}!{% endcall %}
{% filter upper %}abc {{ s }}{% endfilter %}
{% filter replace('a', 'b')|upper %}abc{% endfilter %}
{% filter nosuch %}abc{% endfilter %}
{% generation %}text {{ a }}{% endgeneration %}
{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}
{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}
{# comment #}a{# {{ b }} {% if %} #}b
{#- c -#}  x  {#- c +#}  y
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}
{% set g = l|reject('equalto', 1) %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}used{% endfor %}
{% set v = d.items() %}{{ v|list }}{{ v|list|length }}{{ v|length }}
{% set x = l|map(attribute='zz')|list %}{{ x|length }}
{% block x %}{% endblock %}
{% extends 'x' %}
{% include 'x' %}
{% import 'x' as y %}
{% nosuch %}
{% if %}{% endif %}
{% if a %}
{% endif %}
{% for %}{% endfor %}
{% for x l %}{% endfor %}
{% endfor %}
{{ a
{% if a
{# a
{{ a }
{% if a %}x{% endfor %}
{% else %}
{%%}
{{}}
{ { a } } {a} } {
{{ '{{' }}{{ '%}' }}{{ "}}" }}
{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}} }}
{{- a -}}   x   {{- b -}}
x {%- if a -%} y {%- endif -%} z
{{ a }}{{ b }} {{- a }} {{ b -}} x
{% for x in l -%} {{ x }} {%- endfor %}
{{ (1,
2) }}
{{ a }}
""".strip("\n").split("\n")

WHITE_SPACE = [
    "a\n", "a\n\n", "a\r\n", "\r\n", "\n", "", " ", "a\rb\r\nc\n",
    "  {% if a %}\n  x\n  {% endif %}\n  y\n", "x  {% if a %}\n  x\n{% endif %}\n", "\t{% if a %}x{% endif %}\t\n", "  {{ a }}\n  {{ b }}\n",
    "{% if a %}\n\n\nx{% endif %}\n\n\ny", "  {%+ if a %}\n x{% endif %}", "{% if a +%}\n x{% endif %}", "  {# c #}\n  x", "x {# c #} y\n  {# d #}  \n z",
    "  {#- c -#}  \n x", "  {#+ c #}\n x", "{% if a -%}\n\n  x\n\n  {%- endif %}\n  y", "  {%- if a %} x {% endif -%}  \n y", "{{ a }}\n{{ b }}\n",
    "{{ a -}}\n\n{{ b }}", "{{ a }}\n\n  {{- b }}", "{% for x in l %}\n{{ x }}\n{% endfor %}\n", "{% for x in l %}\n  {{ x }}\n  {% endfor %}",
    "{%- for x in l %}\n    {%- if x > 1 %}\n        {{- x }}\n    {%- endif %}\n{%- endfor %}\n", "\u2003{% if a %}\u2003x{% endif %}", "\x0b{% if a %}\n\x0cx{% endif %}",
    "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}\n", "{% macro m() %}\n x\n{% endmacro %}\n[{{ m() }}]", "{% if a %}{% endif %}\n{% if a %}{% endif %} \n", "x{% if a %}\ny{% endif %}\n z",
    "{{ a }}  {% if a %}\n  x{% endif %}", "{# a #}{# b #}\n  {# c #}\n{{ a }}", "{{-a-}}", "{{+a}}", "{{ a +}}", "{%-if a-%}x{%-endif-%}", "{%if a%}x{%endif%}", "-{{ a }}-", "{{ a\n+\nb }}\n",
    "{% if a\n%}x{% endif %}", "{{ 'a\nb' }}", "{{ 'a\r\nb' }}", "x\n{#- c -#}\ny", "é{% if a %}\né{% endif %}é\n",
]


def expressions():
    lines = (python_jinja.FOLDER / "expressions.txt").read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line]


def known_difference(answer):
    """What this subset refuses on purpose."""
    return "error" in answer and re.search(r"beyond 64 bits|not support|supports no ", answer["error"])


def with_own(cases):
    return [(t, VARIABLES, {"bos_token": "<s>"}) for t in cases]


def test_expressions(bin_dir):
    cases = expressions()
    assert len(cases) > 550
    assert python_jinja.compare(bin_dir, with_own("{{ %s }}" % e for e in cases), known_difference) > 400


def test_statements(bin_dir):
    assert python_jinja.compare(bin_dir, with_own(STATEMENTS), known_difference) > 75


def test_white_space(bin_dir):
    assert python_jinja.compare(bin_dir, with_own(WHITE_SPACE)) > 45


def test_the_documentation_lists_what_is_supported(bin_dir):
    """All other names that Jinja and Python have are refused by name."""
    text = (python_jinja.FOLDER.parents[2] / "docs" / "templates.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", text, re.M))
    jinja = python_jinja.ENVIRONMENT
    kinds = {"filters": ("{{ s|%s }}", jinja.filters), "tests": ("{{ s is %s }}", jinja.tests), "functions": ("{{ %s() }}", jinja.globals),
             "attributes of `loop`": ("{%% for x in l %%}{{ loop.%s }}{%% endfor %%}", dir(jinja2.runtime.LoopContext)),
             "methods of strings": ("{{ s.%s() }}", dir(str)), "methods of dicts": ("{{ ed.%s() }}", dir(dict))}
    for kind, (template, names) in kinds.items():
        names = {name for name in names if name.isidentifier() and not name.startswith("_")}
        answers = dict(zip(names, python_jinja.render(bin_dir, with_own(template % name for name in names))))
        refused = {name for name in names if re.search(f"the [a-z ]+'{name}'.* not supported$", answers[name].get("error", ""))}
        assert names - refused == set(re.search("`(.*)`", rows[kind])[1].split()), kind


def test_integers_end_at_64_bits(bin_dir):
    for text in ("9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775808", "4611686018427387904 * 2", "'9223372036854775808'|int"):
        answer, = python_jinja.render(bin_dir, [("\n{{ %s }}" % text, {}, {})])
        assert answer == {"error": "line 2: a number is beyond 64 bits"}
    text = "{{ 9223372036854775806 + 1 }} {{ -9223372036854775807 - 1 }} {{ 3037000499 * 3037000499 }}"
    assert python_jinja.compare(bin_dir, [(text, {}, {})]) == 1


class Generator:
    """Random templates from a grammar; most of them give a text."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = ["a", "b", "f", "s", "u", "l", "ls", "d", "nested", "yes", "nil", "multi", "csv", "missing", "empty", "el"]
        self.in_loop = 0

    def pick(self, *choices):
        return self.rng.choice(choices)

    def number(self, depth):
        if depth <= 0:
            return self.pick("a", "b", "seven", "0", "1", "2", "-3", "l[0]", "yes")
        n = lambda: self.number(depth - 1)
        return self.pick(n(), f"({n()} + {n()})", f"({n()} - {n()})", f"({n()} * {n()})", f"({n()} % {n()})",
                         f"{self.text(depth - 1)}|length", f"{self.list(depth - 1)}|length", f"{n()}|int", f"{self.list(depth - 1)}|min", f"-{n()}",
                         f"{self.list(0)}|first")

    def index(self):
        return self.pick("0", "1", "2", "-1", "-3", "a", "b")

    def text(self, depth):
        if depth <= 0:
            return self.pick("s", "u", "multi", "csv", "t", "empty", "'o'", "'l'", "', '", "'<|x|>'", "'漢'", "' '", "'\\n'", "ls[0]", "bos_token")
        t, n = (lambda: self.text(depth - 1)), (lambda: self.number(0))
        return self.pick(f"({t()} + {t()})", f"({t()} ~ {self.any(depth - 1)})", f"{t()}|upper", f"{t()}|lower", f"{t()}|title", f"{t()}|capitalize", f"{t()}|trim", f"{t()}.strip({t()})",
                         f"{t()}|replace({t()}, {t()})", f"{t()}[{self.index()}:]", f"{t()}[:{self.index()}]", f"{t()}[{self.index()}]", f"{self.list(depth - 1)}|join({t()})", f"{self.any(depth - 1)}|string",
                         f"{self.any(depth - 1)}|tojson", f"({t()} * 2)", f"{t()}|indent(2)", f"{t()}.split({t()})[0]", f"{t()}.title()", f"{t()}.capitalize()", f"{t()}.lstrip()",
                         f"{t()}|default({t()}, true)", f"{t()}.replace({t()}, {t()})", f"({t()} if {self.truth(depth - 1)} else {t()})", f"{t()}|first", f"'{{}}'.format({self.any(0)})")

    def list(self, depth):
        if depth <= 0:
            return self.pick("l", "ls", "el", "[1, 'x']", "range(3)", "nested", "(1, 2)", "d")
        x = lambda: self.list(depth - 1)
        return self.pick(f"[{self.any(depth - 1)}, {self.any(depth - 1)}]", f"({x()}|list + {x()}|list)", f"{x()}|list", f"{x()}|map('string')|list", f"{x()}|sort",
                         f"{self.text(depth - 1)}.split({self.text(0)}, {self.index()})", f"{x()}|unique|list", f"{x()}[{self.index()}:]", f"d|dictsort", f"d.items()|list",
                         f"nested|selectattr('n', 'eq', {self.number(0)})|list", f"nested|map(attribute='n')|list", f"{x()}|reject('string')|list")

    def truth(self, depth):
        if depth <= 0:
            return self.pick("yes", "no", "nil", "a > 2", "missing is defined", "'o' in s", "loop.first" if self.in_loop else "true")
        b, x = (lambda: self.truth(depth - 1)), (lambda: self.any(depth - 1))
        return self.pick(f"({b()} and {b()})", f"({b()} or {b()})", f"not {b()}", f"{self.number(depth - 1)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.number(depth - 1)}", f"{x()} == {x()}", f"{x()} is {self.pick('string', 'number', 'mapping', 'iterable', 'none', 'sequence', 'defined', 'boolean', 'integer')}",
                         f"{x()} in {self.list(depth - 1)}", f"{self.text(0)} in {self.text(depth - 1)}", f"{self.text(depth - 1)}.startswith({self.text(0)})", f"{x()} {self.pick('<', '>')} {x()}", f"{self.text(depth - 1)}.endswith({self.text(0)})")

    def any(self, depth):
        return self.pick(self.number, self.text, self.list, self.truth, lambda _: self.pick(*self.names), lambda d: f"{{'k': {self.any(d - 1)}}}" if d > 0 else "d")(depth)

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3)))

    def space(self):
        return self.pick("", "", "", "\n", "  ", "\n  ", " \n\n")

    def tag(self, text):
        return self.space() + "{%" + self.pick("", "", "-", "+") + " " + text + " " + self.pick("", "", "-", "+") + "%}" + self.space()

    def statement(self, depth):
        kind = self.rng.randint(0, 9 if depth > 0 else 3)
        if kind <= 2:
            return self.space() + "{{" + self.pick("", "-") + " " + self.any(2) + " " + self.pick("", "-") + "}}" + self.space()
        if kind == 3:
            return self.pick("text", "<|x|>", " é ", "{# c #}", "{#- c -#}\n", "\n")
        if kind == 4:
            return self.tag("if " + self.truth(2)) + self.body(depth - 1) + self.pick("", self.tag("else") + self.body(depth - 1)) + self.tag("endif")
        if kind in (5, 6):
            self.in_loop += 1
            inner = self.body(depth - 1) + self.pick("", "", self.tag("if " + self.truth(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif"))
            self.in_loop -= 1
            return self.tag("for x in " + self.list(1) + self.pick("", " if x")) + "{{ x }}{{ loop.index }}" + inner + self.tag("endfor")
        if kind == 7:
            return self.tag(f"set {self.pick('x', 'y', 's', 'a')} = {self.any(2)}")
        if kind == 8:
            name = self.pick("m1", "m2")
            was, self.in_loop = self.in_loop, 0
            macro = self.tag(f"macro {name}(p, q={self.any(0)})") + "{{ p }}{{ q }}" + self.body(depth - 1) + self.tag("endmacro")
            self.in_loop = was
            return macro + "{{ " + name + "(" + self.any(1) + ") }}"
        return self.tag("set z") + self.body(depth - 1) + self.tag("endset") + "{{ z|upper }}"


def random_cases(seed, n):
    return [(Generator(seed + i).body(2), VARIABLES, {"bos_token": "<s>"}) for i in range(n)]


@pytest.mark.parametrize("seed, n", [(1 + 800 * DAY, 800), pytest.param(1, 4000, marks=pytest.mark.long)])
def test_random_templates(bin_dir, seed, n):
    """The numbers of a failure's parameters repeat it."""
    assert python_jinja.compare(bin_dir, random_cases(seed, n), known_difference) > n // 3


def in_greek(value):
    """The value with the letters of all strings in Greek; keys and white space stay."""
    if isinstance(value, str):
        return re.sub(r"[^\W\d_]", "λ", value)
    if isinstance(value, list):
        return [in_greek(v) for v in value]
    if isinstance(value, dict):
        return {k: in_greek(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize("seed, n", [(1000000 + 600 * DAY, 600), pytest.param(100000, 3000, marks=pytest.mark.long)])
def test_what_came_from_variables_is_never_own(bin_dir, seed, n):
    """Whatever the template does with it."""
    templates = ["{{ %s }}" % e for e in expressions()] + STATEMENTS + [t for t, _, _ in random_cases(seed, n)]
    assert not any("λ" in t.lower() for t in templates)
    answers = python_jinja.render(bin_dir, [(t, in_greek(VARIABLES), {"bos_token": "<s>"}) for t in templates])
    n_greek = 0
    for template, answer in zip(templates, answers):
        if "text" in answer:
            n_greek += "λ" in answer["text"].lower()
            assert not any("λ" in part.lower() for part in python_jinja.own_text(answer)), template
    assert n_greek > n // 6
