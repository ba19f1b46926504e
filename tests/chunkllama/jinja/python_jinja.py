"""Jinja as Transformers sets it up for chat templates, and the program that renders with ours."""
import datetime
import functools
import json
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).resolve().parent
NOW = 1764061200  # some time on 25 November 2025


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what an assistant wrote; it prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW).strftime(format)


ENVIRONMENT = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                           extensions=[Generation, jinja2.ext.loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = raise_exception
ENVIRONMENT.globals["strftime_now"] = strftime_now


compiled = functools.lru_cache(4)(ENVIRONMENT.from_string)


def expected(template, variables, own):
    """The text that Jinja renders, or the exception that it raises."""
    try:
        text = compiled(template).render(**{**variables, **own})
        text.encode()  # a lone surrogate is no text
        return text
    except Exception as e:
        return e


def render(bin_dir, cases):
    """What ours makes of (template, variables, own): objects with text and own, or error."""
    lines = [json.dumps({"template": t, "variables": v, "own": o, "now": NOW}) for t, v, o in cases]
    done = subprocess.run([bin_dir / "jinja_render"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(cases)
    return answers


def compare(bin_dir, cases, ignore=lambda answer: False):
    """Compare ours with Jinja's. Texts must be equal; errors must be errors in both. Returns the number that gave a text."""
    wrong, n_texts = [], 0
    for (template, variables, own), answer in zip(cases, render(bin_dir, cases)):
        if ignore(answer):
            continue
        theirs = expected(template, variables, own)
        ours = answer.get("text")
        if " object at 0x" in str(theirs).lower() and ours is not None:
            continue  # an address of Python's memory
        n_texts += ours is not None
        if ours != (None if isinstance(theirs, Exception) else theirs):
            wrong.append(f"{template[:2000]!r}\n  with {json.dumps(variables)[:600]}\n  jinja2: {theirs!r}\n  ours:   {ours if ours is not None else answer!r}")
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:10])
    return n_texts


def own_text(answer):
    """The parts of a rendered text that are the template's own."""
    data = answer["text"].encode()
    return [data[start:end].decode() for start, end in answer["own"]]
