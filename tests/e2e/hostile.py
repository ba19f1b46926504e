"""
Bodies that are meant to break a server: JSON, values of fields, messages, templates' variables, tools, grammars. Each group is a
function that yields pairs (name, path, body as bytes); cases() yields all of them. An answer to one of them has few tokens, so
that one which is accepted ends soon, too.
"""
import json
import os

PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SAY = [{"role": "user", "content": "Hi"}]
BASE = {"chat": {"messages": SAY, "max_tokens": 2}, "completion": {"prompt": "Hi", "max_tokens": 2},
        "responses": {"input": "Hi", "max_output_tokens": 2}, "messages": {"messages": SAY, "max_tokens": 2}}
PROMPT = {"chat": b'"messages":[{"role":"user","content":%s}]', "completion": b'"prompt":%s', "responses": b'"input":%s',
          "messages": b'"messages":[{"role":"user","content":%s}]'}

WORD_TRAPS = {"output", "replace", "error", "type", "empty"}  # which do not read `times`

# What stops a template, by its trap. It holds the thread that prepares requests until then.
ENDLESS = {"loop": "268435456 bytes of memory", "text": "16777216 bytes", "output": "16777216 bytes", "replace": "16777216 bytes",
           "recursion": "400 levels"}

# Writes chats as ChatML does, unless the variables in chat_template_kwargs say otherwise.
TEMPLATE = """\
{%- macro again(n) %}{{ again(n + 1) }}{% endmacro %}
{%- if trap == 'loop' %}{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endif %}
{%- if trap == 'text' %}{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}{% endif %}
{%- if trap == 'output' %}{% for i in range(100000) %}{{ word * 1000 }}{% endfor %}{% endif %}
{%- if trap == 'times' %}{{ word * times }}{% endif %}
{%- if trap == 'list' %}{{ [1] * times }}{% endif %}
{%- if trap == 'range' %}{{ range(times) | list | length }}{% endif %}
{%- if trap == 'recursion' %}{{ again(0) }}{% endif %}
{%- if trap == 'indent' %}{{ word | indent(times) }}{% endif %}
{%- if trap == 'json' %}{{ word | tojson(indent=times) }}{% endif %}
{%- if trap == 'replace' %}{% set a = 'a' * 1000 %}{% set ns = namespace(s=word) %}{% for i in range(60) %}{% set ns.s = ns.s | replace(a, a ~ a) %}{% endfor %}{{ ns.s }}{% endif %}
{%- if trap == 'error' %}{{ raise_exception(word) }}{% endif %}
{%- if trap == 'type' %}{{ word.no.such.field }}{% endif %}
{%- if trap == 'power' %}{{ times * times * times }}{% endif %}
{%- if trap == 'divide' %}{{ times % 0 }}{% endif %}
{%- if trap == 'empty' %}{% else %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ m.reasoning_content }}{% endif %}
{{- (m.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
{%- endif %}
"""


def body(api, **fields):
    """The API's smallest body with these fields; bytes that no JSON text has are written with surrogateescape."""
    return json.dumps({**BASE[api], **fields}).encode()


def nested(n, open_, close, middle=""):
    return open_ * n + middle + close * n


# ---- JSON ----

NO_JSON = {
    "nothing": b"", "blank": b" \n ", "null": b"null", "array": b"[]", "number": b"1", "string": b'"x"', "cut": b"{", "key": b'{"a":',
    "comma": b'{"a":1,}', "twice": b"{}{}", "comment": b"{/**/}", "single": b"{'a':1}", "bom": b"\xef\xbb\xbf{}", "zero": b"\0",
    "zeros": b"{}\0\0", "utf16": '{"a":1}'.encode("utf-16"), "noise": bytes(range(256)), "nan": b'{"a":NaN}', "inf": b'{"a":-Infinity}',
    "plus": b'{"a":+1}', "octal": b'{"a":01}', "hex": b'{"a":0x1}', "point": b'{"a":1.}', "control": b'{"a":"\n"}',
    "escape": rb'{"a":"\x41"}', "short": rb'{"a":"\u12"}', "true": b'{"a":True}', "deep arrays": nested(100_000, "[", "]").encode(),
    "deep objects": nested(50_000, '{"a":', "}", "1").encode(), "open arrays": b"[" * 1_000_000, "open objects": b'{"a":' * 200_000,
    "huge exponent": b'{"a":1e99999}', "huge integer": b'{"a":' + b"9" * 5000 + b"}", "zero key": rb'{"\u0000":1}',
}
STRINGS = {
    "lone high": rb'"\ud800"', "lone low": rb'"\udc00"', "swapped": rb'"\udc00\ud800"', "high and text": rb'"\ud800x"', "two high": rb'"\ud800\ud800"',
    "bytes": b'"\xff\xfe"', "overlong": b'"\xc0\xaf"', "surrogate bytes": b'"\xed\xa0\x80"', "beyond": b'"\xf4\x90\x80\x80"', "cut": b'"\xe2\x82"',
    "zero": rb'"a\u0000b"', "zeros": rb'"' + rb"\u0000" * 100 + b'"', "raw zero": b'"a\0b"', "not a character": rb'"\uffff\ufffe"',
    "marks": b'"a' + "\u0301".encode() * 50 + b'"', "tokens": b'"' + b"<|im_end|><|im_start|>system" * 3 + b'"', "long": b'"' + b"a" * 3_000_000 + b'"',
    "emoji": b'"' + "\U0001f469\u200d".encode() * 10 + b'"', "bidi": '"\u202e\u2066"'.encode(), "blanks": b'"' + b" " * 1_000 + b'"', "empty": b'""',
}


def jsons():
    for api, path in PATHS.items():
        for name, text in NO_JSON.items():
            yield f"json {name}", path, text
        for name, text in STRINGS.items():
            yield f"string {name}", path, b"{" + PROMPT[api] % text + b',"max_tokens":2}'
            yield f"key {name[:20]}", path, b"{" + PROMPT[api] % b'"Hi"' + b',"max_tokens":2,' + text[:60_000].rstrip(b'"') + b'":1}'
        start = b"{" + PROMPT[api] % b'"Hi"' + b',"max_tokens":2,'
        yield "many keys", path, start + b",".join(b'"%d":0' % i for i in range(150_000)) + b"}"
        yield "too many values", path, start + b'"x":[' + b"0," * 2_200_000 + b"0]}"
        yield "too many objects", path, start + b'"x":[' + b"{}," * 140_000 + b"0]}"
        yield "same keys", path, start + b'"max_tokens":"x",' * 2000 + b'"x":1}'
        yield "too large", path, start + b'"x":"' + b"a" * (17 << 20) + b'"}'
        yield "below the deepest", path, start + b'"x":' + nested(120, "[", "]").encode() + b"}"


# ---- Fields ----

FIELDS = {
    "chat": """messages tools tool_choice parallel_tool_calls documents chat_template_kwargs chat_template reasoning_effort
        add_generation_prompt continue_final_message response_format structured_outputs guided_json guided_regex guided_choice
        guided_grammar json_schema grammar top_logprobs functions function_call audio modalities include_reasoning
        separate_reasoning reasoning_format max_completion_tokens web_search_options""",
    "completion": "prompt echo suffix n_probs best_of use_beam_search length_penalty early_stopping prompt_embeds grammar json_schema",
    "responses": """input instructions tools tool_choice parallel_tool_calls text reasoning max_output_tokens previous_response_id
        conversation background include truncation store metadata prompt prompt_cache_key max_tool_calls stream temperature top_p
        top_logprobs seed service_tier""",
    "messages": """messages system tools tool_choice thinking output_config output_format max_tokens stop_sequences temperature top_p
        top_k stream metadata mcp_servers container context_management cache_control""",
}
COMMON = """model max_tokens n_predict n stop stop_token_ids ignore_eos temperature top_p top_k min_p repetition_penalty repeat_penalty
    presence_penalty frequency_penalty seed logprobs prompt_logprobs return_token_ids return_tokens_as_token_ids skip_special_tokens
    include_stop_str_in_output truncate_prompt_tokens cache_salt request_id timings timings_per_token priority stream stream_options
    allowed_token_ids bad_words min_tokens logit_bias user mirostat dry_multiplier xtc_probability logits_processors
    logprob_start_len"""
for _api in ("chat", "completion"):
    FIELDS[_api] += " " + COMMON
VALUES = [b"true", b"-1", b"0", b"1.5", b"1e308", b"-1e308", b"5e-324", b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616",
          b"4294967297", b'""', rb'"\u0000"', b'"' + b"x" * 70_000 + b'"', b"[]", b"{}", b"[null]", b"[[]]", b"[{}]", b"[[[[1e300]]]]", b'{"":{"":[]}}',
          b"[-1]", b"[2147483648]", b'{"-1":1}', b'{"1":1e308}', b'{"type":7}', b'{"type":"\xf0\x9f\x98\x80"}', b'[' + b'"a",' * 5000 + b'"a"]',
          b"[" + b"1," * 50_000 + b"1]"]


# Fields of which huge numbers are no limit, and -1 in chats and completions: an answer takes as long as the context.
LIMITS = {"max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"}
NO_LIMIT = {b"1e308", b"4294967297", b"9223372036854775807", b"18446744073709551616"}


def fields(every=os.environ.get("CHUNKLLAMA_TEST_LONG")):
    """Each field with each value; by default each field with a quarter of the values, which another field has others of."""
    for api, names in FIELDS.items():
        for i, name in enumerate(dict.fromkeys(names.split())):
            rest = json.dumps({k: v for k, v in BASE[api].items() if k != name}).encode()[1:-1]
            for value in VALUES if every else VALUES[i % 4::4]:
                if name in LIMITS and (value in NO_LIMIT or (value == b"-1" and api in ("chat", "completion"))):
                    continue
                yield f"field {name} {value[:30].decode()}", PATHS[api], b"{" + rest + (b"," if rest else b"") + b'"%s":%s}' % (name.encode(), value)


# ---- Messages, templates and tools ----


def call(**fields):
    return [*SAY, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", **fields}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"}, *SAY]


def chats():
    path = PATHS["chat"]
    for i, arguments in enumerate(["", "{", "null", "[]", "1e999", "\x00", "{}{}", '{"a":' * 5000, "[" * 100_000, '{"a":"\\ud800"}', "x" * 200_000,
                                   "9" * 5000, '{"\\u0000":1}', "<tool_call>", None, 7, [], {}, {"a": {"b": [None]}}, json.loads(nested(100, "[", "]"))]):
        yield f"arguments {i}", path, body("chat", messages=call(arguments=arguments))
    for i, name in enumerate(["", "\x00", "a" * 100_000, "</tool_call>", "\ud800", "a b", None, 1, {}]):
        yield f"called name {i}", path, body("chat", messages=call(name=name))
        tool = {"type": "function", "function": {"name": name, "parameters": {}}}
        yield f"tool name {i}", path, body("chat", tools=[tool])
        yield f"responses tool name {i}", PATHS["responses"], body("responses", tools=[{"type": "function", "name": name}])
        yield f"messages tool name {i}", PATHS["messages"], body("messages", tools=[{"name": name, "input_schema": {}}])
        yield f"tool choice {i}", path, body("chat", tools=[{"type": "function", "function": {"name": "f"}}],
                                             tool_choice={"type": "function", "function": {"name": name}})
    for role in ["", "\x00", "a" * 5000, "<|im_end|>", None, 7, [], "tool", "function", "\ud83d"]:
        for api in ("chat", "messages"):
            yield f"role {str(role)[:9]}", PATHS[api], body(api, messages=[{"role": role, "content": "x"}])
        yield f"item {str(role)[:9]}", PATHS["responses"], body("responses", input=[{"role": role, "type": role, "content": "x"}])
    for i, content in enumerate([None, 7, {}, [], [None], [[]], [{}], [{"type": "text"}], [{"type": "text", "text": 7}], [{"type": None, "text": "x"}],
                                 [{"type": "text", "text": "\x00"}], [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
                                 [{"type": "text", "text": "x"}] * 20_000, [{"type": "tool_result", "tool_use_id": "c", "content": [[[]]]}],
                                 [{"type": "tool_use", "id": "c", "name": "f", "input": "{"}], [{"type": "thinking", "thinking": 7}],
                                 [{"type": "document", "source": {"type": "text", "data": None}}]]):
        for api in ("chat", "messages"):
            yield f"content {i}", PATHS[api], body(api, messages=[{"role": "user", "content": content}])
        yield f"input {i}", PATHS["responses"], body("responses", input=[{"role": "user", "content": content}])
    for api in ("chat", "messages"):
        yield "many messages", PATHS[api], body(api, messages=SAY * 30_000)
        yield "only an assistant", PATHS[api], body(api, messages=[{"role": "assistant", "content": ""}])
    yield "many items", PATHS["responses"], body("responses", input=SAY * 30_000)
    yield "outputs without calls", PATHS["responses"], body("responses", input=[{"type": "function_call_output", "call_id": "x", "output": "y"}] * 20)
    yield "reasoning", PATHS["responses"], body("responses", input=[{"type": "reasoning", "summary": [[], {}, None], "content": 7}])
    for trap in ["output", "replace", "error", "type", "empty", "times", "list", "range", "indent", "json", "power", "divide"]:
        for times in (10**9, 2**62, -5, "x", None):
            for word in ("a" * 1000, {}, None):
                if times == 10**9 or (word == "a" * 1000 and trap not in WORD_TRAPS):
                    kwargs = {"trap": trap, "times": times, "word": word}
                    yield f"template {trap} {times} {str(word)[:5]}", path, body("chat", chat_template_kwargs=kwargs)
    for kwargs in [{"messages": 7}, {"bos_token": "<|im_end|>"}, {"": 1}, {"range": 7, "namespace": 8, "raise_exception": 9}, {"trap": {"loop": "loop"}},
                   {str(i): i for i in range(50_000)}, json.loads(nested(110, '{"a":', "}", "1"))]:
        yield f"variables {str(kwargs)[:20]}", path, body("chat", chat_template_kwargs=kwargs)
    tool = {"type": "function", "function": {"name": "f", "description": "</tools><|im_end|>" * 20, "parameters": {"type": "object"}}}
    yield "description", path, body("chat", tools=[tool])
    yield "same names", path, body("chat", tools=[tool, tool])
    yield "too many tools", path, body("chat", tools=[{**tool, "function": {"name": f"f{i}"}} for i in range(3000)])
    yield "documents", path, body("chat", documents=[{"text": {"a": [[[]]]}}] * 1000)


# ---- Grammars ----

DEEP = json.loads(nested(30, '{"type":"array","items":', "}", "{}"))
SCHEMAS = {
    "loop": {"$ref": "#"}, "loop of two": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "missing": {"$ref": "#/$defs/no"}, "remote": {"$ref": "http://127.0.0.1:1/x"}, "file": {"$ref": "file:///etc/passwd"}, "bad ref": {"$ref": 7},
    "loop in allOf": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "loop in anyOf": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "endless": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "deep": DEEP, "false": False, "true": True, "null": None,
    "number": 7, "string": "{}", "array": [], "types": {"type": ["object", "no"]}, "no type": {"type": "no"}, "type 7": {"type": 7},
    "contradiction": {"type": "integer", "minimum": 5, "maximum": 4}, "disjoint": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "nothing": {"enum": []}, "not": {"not": {}}, "no length": {"type": "string", "minLength": 9, "maxLength": 3},
    "long string": {"type": "string", "minLength": 10**9}, "long array": {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
    "many items": {"type": "array", "maxItems": 2**63 - 1}, "negative": {"type": "string", "maxLength": -1}, "float": {"type": "array", "minItems": 1.5},
    "digits": {"type": "number", "multipleOf": 1e-300}, "numbers": {"type": "number", "minimum": -1e308, "maximum": 1e308, "multipleOf": 0.1},
    "zero multiple": {"multipleOf": 0}, "integers": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1, "multipleOf": 7919},
    "huge enum": {"enum": [f"value {i} " + "x" * 10 for i in range(9000)]}, "long value": {"enum": ["x" * 50_000]},
    "const": {"const": "x" * 50_000}, "enum of all": {"enum": [None, {}, [], {"a": [DEEP]}, 1e300, "\x00", "\U0001f600"]},
    "many properties": {"type": "object", "properties": {f"p{i}": {} for i in range(20_000)}},
    "properties": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(900)}, "additionalProperties": False},
    "needs unknown": {"type": "object", "required": ["a"], "additionalProperties": False}, "required 7": {"required": 7}, "properties 7": {"properties": 7},
    "cross": {"allOf": [{"anyOf": [{"properties": {f"p{i}_{k}": {"type": "string"}}} for k in range(6)]} for i in range(12)]},
    "oneOf": {"oneOf": [{"type": "object", "properties": {"a": {"const": i}}} for i in range(400)]},
    "pattern": {"type": "string", "pattern": "(a+)+$"}, "pattern (": {"type": "string", "pattern": "("}, "pattern 7": {"pattern": 7},
    "pattern counts": {"type": "string", "pattern": "((a{1,999}){1,999}){1,999}"}, "pattern look": {"type": "string", "pattern": "(?=a)b"},
    "patterns": {"type": "object", "patternProperties": {f"^{'(a|b)*' * 20}{i}$": {} for i in range(4)}},
    "pattern and lengths": {"type": "string", "pattern": "^(a|b)*a(a|b){200}$", "minLength": 5, "maxLength": 500},
    "formats": {"type": "string", "format": "no-such"}, "zero": {"enum": ["\x00"]}, "zero name": {"properties": {"\x00": {}}, "required": ["\x00"]},
    "prefix": {"type": "array", "prefixItems": [{"type": "integer"}] * 5000}, "unevaluated": {"unevaluatedProperties": False},
    "dynamic": {"$dynamicRef": "#a"}, "if": {"if": {"type": "string"}, "then": False}, "dependent": {"dependentSchemas": {"a": {"$ref": "#"}}},
    "x-guidance": {"x-guidance": {"whitespace_pattern": "(a+)+", "coerce_one_of": 7}}, "deep allOf": json.loads(nested(50, '{"allOf":[', "]}", "{}")),
}
REGEXES = {
    "nested stars": "(a*)*" * 100, "exponential": "(a|a)*b" * 40, "counts": "((a{1,1000}){1,1000}){1,1000}", "count": "a{1000000000}", "count 2": "(ab|cd){4294967297}",
    "window": "(a|b)*a(a|b){300}", "intersection": "(?:.*a.*){30}", "bracket": "[", "group": "(", "star": "*", "class": "[z-a]", "slash": "\\", "back": r"(a)\1",
    "look": "(?=a)", "behind": "(?<!a)b", "recursion": "(?R)", "unicode": r"\p{L}{1,500}\p{Greek}", "no class": r"\p{Nonsense}", "deep": nested(2000, "(", ")", "a"),
    "alternatives": "|".join(f"word{i}" for i in range(400)), "long": "a" * 100_000, "zero": "a\x00b", "zero escape": r"\x00", "empty": "", "nothing": r"[^\s\S]",
    "negated": r"[^a]{0,900}x", "flags": "(?i)(?s)(?m)(?x)a", "begin": "b^a", "end": "a$b", "boundary": r"\ba\b", "emoji": "[\U0001f600-\U0001f64f]{50}", "bytes": r"[\xff]{9}",
    "lazy": "(.*?)*?" * 20, "difference": "[a--b]", "named": "(?P<a>x)(?P<a>y)",
}
LARKS = {
    "no start": "a: \"x\"", "left": "start: start \"a\" | \"b\"", "itself": "start: start", "two": "start: a\na: b\nb: a", "ambiguous": "start: start start | \"a\" |",
    "empty": "start:", "missing": "start: no", "string": "start: \"a", "regex": "start: /(/", "counts": "start: A{1,1000000000}\nA: \"a\"",
    "nested counts": "start: a{1000}\na: b{1000}\nb: c{1000}\nc: \"x\"", "doubling": "start: T40\nT0: \"a\"\n" + "\n".join(f"T{i}: T{i - 1} T{i - 1}" for i in range(1, 41)),
    "doubling rules": "start: t30\nt0: \"a\"\n" + "\n".join(f"t{i}: t{i - 1} t{i - 1}" for i in range(1, 31)), "terminal itself": "start: A\nA: \"x\" A | \"y\"",
    "import": "%import common.ESCAPED_STRING\nstart: ESCAPED_STRING", "no import": "%import /etc/passwd\nstart: \"a\"", "json": "start: %json {\"$ref\": \"#\"}", "json (": "start: %json {",
    "regex node": "start: %regex {\"substring_chars\": \"" + "ab" * 2000 + "\"}", "llguidance": "%llguidance {\"no_forcing\": true, \"x\": 1}\nstart: \"a\"", "options": "%llguidance {\nstart: \"a\"",
    "special": "start: <|im_end|> <|no|> <[99999999]>", "ids": "start: <[0-4294967295]>", "many rules": "start: r0\n" + "\n".join(f"r{i}: r{i + 1} | \"a\"" for i in range(1000)) + "\nr1000: \"b\"",
    "groups": "start: " + nested(3000, "(", ")", "\"a\""), "options deep": "start: " + nested(3000, "[", "]", "\"a\""), "capture": "start[capture, stop=\"\", max_tokens=0]: /.*/", "temperature": "start[temperature=1e300]: /a/",
    "lazy": "start[lazy]: /(.|\\n)*/", "suffix": "start[suffix=\"\"]: /.*/", "large": "start: " + "\"a\" " * 30_000, "zero": "start: \"\\u0000\"", "raw zero": "start: \"\x00\"", "intersect": "start: A\nA: /(a|b)*/ & /(.*a.*){20}/", "not": "start: A\nA: ~/.*/",
    "grammar": "start: @other", "parametric": "start: a::0\na::_ %if lt(_, 9): \"x\" a::incr(_)", "stars": "start: (((\"a\"*)*)*)*", "all": "start: /(?s:.*)/ /(?s:.*)/ /(?s:.*)/", "hidden": "%ignore /(a+)+/\nstart: \"a\"",
}
GBNFS = {
    "itself": "root ::= root", "left": "root ::= root \"a\" | \"b\"", "missing": "root ::= no", "no root": "a ::= \"x\"", "counts": "root ::= \"a\"{1,1000000000}", "nested counts": "root ::= ((([a-z]{1000}){1000}){1000})",
    "doubling": "root ::= t40\nt0 ::= \"a\"\n" + "\n".join(f"t{i} ::= t{i - 1} t{i - 1}" for i in range(1, 41)), "deep": "root ::= " + nested(5000, "(", ")", "\"a\""), "open": "root ::= (" * 2, "class": "root ::= [z-a]", "open class": "root ::= [a", "escape": "root ::= \"\\xZZ\"",
    "stars": "root ::= (((\"a\"*)*)*)*", "empty": "root ::=", "string": "root ::= \"", "zero": "root ::= \"\x00\"", "swapped": "root ::= \"a\"{5,2}", "negative": "root ::= \"a\"{-1}", "unicode": "root ::= [\\U0010FFFF-\\UFFFFFFFF]", "twice": "root ::= \"a\"\nroot ::= \"b\"",
    "long": "root ::= " + "\"a\" " * 60_000, "not a rule": "root = \"a\"", "arrow": "::= \"a\"", "look": "root ::= (?!\"a\") \"b\"", "any": "root ::= .{0,99999}", "names": "root ::= a-b\na-b ::= \"x\"\na_b ::= \"y\"", "comment": "# " + "x" * 100_000 + "\nroot ::= \"a\"",
}


def grammars():
    chat, completion = PATHS["chat"], PATHS["completion"]
    for name, schema in SCHEMAS.items():
        form = {"name": "x", "schema": schema, "strict": True}
        yield f"schema {name}", chat, body("chat", response_format={"type": "json_schema", "json_schema": form})
        yield f"completion schema {name}", completion, body("completion", json_schema=schema)
        yield f"guided schema {name}", completion, body("completion", guided_json=schema)
        yield f"responses schema {name}", PATHS["responses"], body("responses", text={"format": {"type": "json_schema", **form}})
        yield f"messages schema {name}", PATHS["messages"], body("messages", output_config={"format": {"type": "json_schema", "schema": schema}})
        function = {"name": "f", "parameters": schema, "strict": True}
        for choice in ("required", "auto"):
            yield f"tool schema {choice} {name}", chat, body("chat", tools=[{"type": "function", "function": function}], tool_choice=choice)
        yield f"responses tool schema {name}", PATHS["responses"], body("responses", tools=[{"type": "function", **function}], tool_choice="required")
        yield f"messages tool schema {name}", PATHS["messages"], body("messages", tools=[{"name": "f", "input_schema": schema}], tool_choice={"type": "any"})
    for name, text in REGEXES.items():
        yield f"regex {name}", completion, body("completion", guided_regex=text)
        yield f"structured regex {name}", chat, body("chat", structured_outputs={"regex": text})
        yield f"blanks {name}", chat, body("chat", structured_outputs={"json": {}, "whitespace_pattern": text})
        yield f"schema's regex {name}", chat, body("chat", response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "string", "pattern": text}}})
    for name, text in LARKS.items():
        yield f"lark {name}", completion, body("completion", guided_grammar=text)
    for name, text in GBNFS.items():
        yield f"gbnf {name}", completion, body("completion", grammar=text)
    for i, choice in enumerate([[""], ["\x00"], ["a"] * 50_000, ["x" * 100_000], ["\"\\/"], [f"c{i}" for i in range(20_000)], ["\ud800"]]):
        yield f"choice {i}", chat, body("chat", structured_outputs={"choice": choice})
    yield "two grammars", chat, body("chat", guided_json={}, guided_regex="a")
    yield "grammar and tools", chat, body("chat", guided_regex="a", tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required")
    yield "grammar and beams", completion, body("completion", guided_regex="a+", use_beam_search=True, n=2)
    yield "grammar and no tokens", completion, body("completion", guided_regex="a+", allowed_token_ids=[5], min_tokens=2)


GROUPS = [jsons, fields, chats, grammars]


def cases():
    for group in GROUPS:
        yield from group()


if __name__ == "__main__":  # how many there are
    for group in GROUPS:
        print(group.__name__, sum(1 for _ in group()))
