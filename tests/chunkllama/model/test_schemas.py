"""Random answers of the schemas of tests/chunkllama/schema, through PyPI `llguidance`: an independent validator agrees that they satisfy
the schema as its client wrote it."""

import json
import pathlib
import random
import subprocess

import pytest
from llguidance import LLMatcher, LLTokenizer

jsonschema = pytest.importorskip("jsonschema")
pytestmark = pytest.mark.long

CASES = json.loads((pathlib.Path(__file__).parent.parent / "schema" / "schemas.json").read_text())
WALKS, BYTES = 12, 400
PLAIN = [*b'{}[]",:0123456789.-aetruflsn \\x']  # bytes that are drawn more often, so that answers end
CLOSING = [*b'}]"']


def rewritten(bin_dir, case):
    """The schema as text of the pass, and what is weaker; None if it is refused."""
    run = subprocess.run([bin_dir / "schema_dump", *case.get("options", "").split()], input=json.dumps(case["schema"]), capture_output=True, text=True)
    return run.stdout.splitlines()[:2] if run.returncode == 0 else None


def validator(schema):
    draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    old = isinstance(schema.get("exclusiveMinimum"), bool), "dependencies" in schema or isinstance(schema.get("items"), list)
    return (jsonschema.Draft4Validator if old[0] else jsonschema.Draft7Validator if old[1] else draft)(schema)


def is_standard(schema):
    """Not so in tools that are not strict, whose types may be in capitals, and whose members may be null."""
    return validator(validator(schema).META_SCHEMA).is_valid(schema)


def walk(grammar, tokenizer, rng):
    """A random answer; None if it does not end in time."""
    matcher, text = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(grammar)), bytearray()
    while len(text) < BYTES:
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(tokenizer.vocab_size) if mask[i // 8] >> (i % 8) & 1]
        letters = [i for i in allowed if i != tokenizer.eos_token]
        if len(letters) < len(allowed) and (not letters or rng.random() < 0.3):
            return text.decode()
        plain = [i for i in letters if i in PLAIN]
        closing = [i for i in letters if i in CLOSING]
        token = rng.choice(closing if closing and rng.random() < 0.4 else plain if plain and rng.random() < 0.9 else letters)
        assert matcher.consume_token(token)
        text.append(token)
    return None


def test_answers_satisfy_their_schema(bin_dir):
    rng, tokenizer, n = random.Random(40), LLTokenizer("byte"), 0
    for case in (case for case in CASES if "schema" in case and "error" not in case):
        text, weaker = rewritten(bin_dir, case)
        if weaker or "(?u)" in text or not is_standard(case["schema"]):
            continue
        for answer in filter(None, (walk(text, tokenizer, rng) for _ in range(WALKS))):
            errors = [error.message for error in validator(case["schema"]).iter_errors(json.loads(answer))]
            assert not errors, f"{case['name']}: {answer}: {errors}"
            n += 1
    assert n > 400
