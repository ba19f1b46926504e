"""The options and help of chunkllama, and its commands other than batch, serve and bench serve."""
import hashlib
import json
import math
import os
import re
import struct
import subprocess

import numpy as np
import pytest
from conftest import ROOT
from waiting import LIMIT_S

COMMANDS = ["run", "chat", "batch", "serve", "explain", "info", "tokenize", "logits", "perplexity", "bench",
            "bench serve", "bench grammar", "doctor", "tier"]
TEXT = "The harbour lies quiet in the morning. Boats come in with herring, and the gulls know it before anyone else does. "


# ---- Options ----


def test_help_lists_every_command(chunkllama):
    text = chunkllama("--help").stdout
    assert re.findall(r"^  (\w+(?: \w+)?) ", text, re.M) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(chunkllama, command):
    text = chunkllama(*command.split(), "--help").stdout
    assert chunkllama("help", *command.split()).stdout == text
    assert text.startswith(f"usage: chunkllama {command} [options]")
    options = re.findall(r"^  (?:-\w, |    )--([a-z-]+)", text, re.M)
    first = {"bench serve": "url", "explain": "url", "tier": "json"}.get(command, "model")
    assert options[0] == first and options.pop() == "help" and len(options) == len(set(options))
    for name in options:
        assert "CHUNKLLAMA_" + name.upper().replace("-", "_") in text
    assert max(map(len, text.splitlines())) <= 120
    assert text == chunkllama(*command.split(), "-h").stdout


@pytest.mark.parametrize("option", ["sharing", "retention", "speculate", "kv-type"])
def test_help_lists_choices(chunkllama, option):
    choices = re.search(r" one of (.*)", chunkllama("run", f"--{option}", "xyzzy", status=2).stderr)[1].split(", ")
    text = re.search(rf"--{option} NAME ([^[]*)", chunkllama("run", "--help").stdout)[1]
    assert len(choices) > 1 and set(choices) <= set(re.findall(r"\w+", text))


def test_streams_are_kept_up_by_default(chunkllama):
    """The server's time between tokens has a target; offline work, in which nobody waits for a token, has none."""
    said = " ".join(chunkllama("serve", "--help").stdout.split())
    assert re.search(r"--target-itl \w+ [^[]*\[default -1,", said)
    assert "--target-itl" not in chunkllama("batch", "--help").stdout


@pytest.mark.parametrize("args", [["tokenize", "x"], ["info"], ["bench", "--pp", "16", "--tg", "1", "--batch", "1"],
                                  ["perplexity", "-f", ROOT / "README.md", "--ctx", "64", "--passages", "1"], ["run", "-n", "2", "x"],
                                  ["batch", "-i", "-", "--max-tokens", "1"]], ids=lambda args: args[0])
def test_full_disk(chunkllama_bin, model_path, args):
    """A write error is reported, once."""
    line = json.dumps({"prompt": "x"}) + "\n" if args[0] == "batch" else ""
    with open("/dev/full", "w") as full:
        done = subprocess.run([chunkllama_bin, *args, "--model", model_path], input=line, stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=LIMIT_S)
    assert done.returncode == 1 and done.stderr.count("cannot write") == 1, done
    assert f"chunkllama {args[0]}: cannot write all to standard output: " in done.stderr


def test_version(chunkllama):
    assert re.fullmatch(r"chunkllama \d+\.\d+\.\d+\n", chunkllama("--version").stdout)


@pytest.mark.parametrize("args, message", [
    ([], None),
    (["btch"], "unknown command 'btch'; did you mean batch?"),
    (["help", "xyzzy"], "unknown command 'xyzzy'; chunkllama --help lists all commands"),
    (["xyzzy"], "unknown command 'xyzzy'; chunkllama --help lists all commands"),
    (["batch", "--max-seq", "3"], "unknown option --max-seq; did you mean --max-seqs?"),
    (["bench", "--jsno"], "unknown option --jsno; did you mean --json?"),
    (["info", "-z"], "unknown option -z; chunkllama info --help lists all options"),
    (["logits", "--temperature", "0"], "unknown option --temperature; chunkllama logits --help lists all options"),
    (["batch", "--max-seqs"], "--max-seqs needs a value: N"),
    (["batch", "--max-seqs", "three"], "--max-seqs is 'three', which is not a whole number"),
    (["batch", "--max-seqs", "0"], "--max-seqs is 0; it must be from 1 to 4096"),
    (["batch", "--max-seqs=99999999999999999999"], "which is not a whole number"),
    (["batch", "--temperature", "nan"], "--temperature is 'nan', which is not a number"),
    (["batch", "--temperature", "-0.5"], "--temperature is -0.5; it must be from 0 to 10000"),
    (["batch", "--top-p", "1.5"], "--top-p is 1.5; it must be from 0 to 1"),
    (["batch", "--kv-budget", "2X"], "--kv-budget is '2X', which is not a whole number with K, M, G or nothing after it"),
    (["batch", "--sharing", "prvate"], "none of shared, shared_storage, private; did you mean private?"),
    (["batch", "--kv-type", "q8"], "--kv-type is 'q8'; it must be one of f32, f16, bf16, int8, e4m3"),
    (["batch", "--ignore-eos=maybe"], "--ignore-eos is 'maybe'; a flag is 1, 0, true or false"),
    (["batch", "requests.jsonl"], "unexpected argument 'requests.jsonl': chunkllama batch takes only options"),
])
def test_wrong_usage(chunkllama, args, message):
    done = chunkllama(*args, status=2)
    assert message is None or message in done.stderr


@pytest.mark.parametrize("command, option", [("serve", "--model-name"), ("batch", "--model-name"), ("bench serve", "--model-name"),
                                             ("bench serve", "--url")])
def test_text_for_json_is_utf8(chunkllama, command, option):
    message = f"chunkllama {command}: {option} is not UTF-8 at byte 1, 0xe9; write it in UTF-8\n"
    assert chunkllama(*command.split(), option, os.fsdecode(b"x\xe9"), "--none", status=2).stderr == message


def test_environment(chunkllama):
    assert "CHUNKLLAMA_MAX_SEQS is 0; it must be from 1 to 4096" in chunkllama("serve", status=2,
                                                                              env={"CHUNKLLAMA_MAX_SEQS": "0"}).stderr
    plain = json.loads(chunkllama("tokenize", "<|im_end|>").stdout)
    special = json.loads(chunkllama("tokenize", "<|im_end|>", env={"CHUNKLLAMA_SPECIAL": "1"}).stdout)
    assert len(plain) > 1 and len(special) == 1
    # The command line overrides the environment, also a wrong value in it.
    served = chunkllama("serve", "--port=0", "--host", "none.invalid", env={"CHUNKLLAMA_PORT": "tcp://10.0.0.1:8080"}, status=1)
    assert "none.invalid" in served.stderr and "CHUNKLLAMA_PORT" not in served.stderr
    assert json.loads(chunkllama("tokenize", "--special=0", "<|im_end|>", env={"CHUNKLLAMA_SPECIAL": "1"}).stdout) == plain


@pytest.mark.parametrize("command", [["run", "x"], ["chat"], ["batch", "-i", "/dev/null"], ["serve"], ["info"],
                                     ["tokenize", "x"], ["logits", "-t", "x", "-o", "/dev/null"], ["bench"],
                                     ["perplexity", "-f", "/dev/null"]])
def test_no_model(chunkllama, command):
    done = chunkllama(*command, env={"CHUNKLLAMA_MODEL": None}, status=1)
    assert done.stderr.startswith(f"chunkllama {command[0]}: no model; ") and "CHUNKLLAMA_MODEL" in done.stderr


def test_not_a_model(chunkllama, tmp_path):
    assert "chunkllama info: " in chunkllama("info", ROOT / "README.md", status=1).stderr
    assert "/etc/passwd: no GGUF file: it does not begin with \"GGUF\"" in chunkllama("run", "-m", "/etc/passwd", "x", status=1).stderr
    assert f"{tmp_path}: the folder is no model" in chunkllama("run", "-m", tmp_path, "x", status=1).stderr
    assert "/none.gguf" in chunkllama("run", "-m", tmp_path / "none.gguf", "x", status=1).stderr


def test_unknown_level(chunkllama):
    assert "--level is 'mmx'; this CPU has ref" in chunkllama("bench", "--level", "mmx", status=1).stderr
    message = chunkllama("run", "hi", env={"CATTN_LEVEL": "foo"}, status=1).stderr
    assert re.search(r"CATTN_LEVEL is 'foo', which is no kernel level; this CPU has ref\b", message)
    too_many = chunkllama("bench", "--threads", "1000", "--pin-threads", status=1).stderr
    assert "--pin-threads with 1000 threads, but this process may use " in too_many and "lower --threads" in too_many


# ---- info and tokenize ----


@pytest.mark.whole_model
def test_info(chunkllama, model_path):
    text = chunkllama("info", "--tensors").stdout
    assert re.search(r"^architecture +llama$", text, re.M)
    assert re.search(r"^chat template +tokenizer\.chat_template; tools are described in the system message$", text, re.M)
    assert re.search(r"^loads +yes$", text, re.M) and not re.search(r"^missing", text, re.M)
    assert re.search(r"^memory +96\.6 MB of weights, 22\.5 KiB of K/V for each token with --kv-type f16$", text, re.M)
    assert re.search(r"^  llama\.block_count +u32 +30$", text, re.M)
    assert re.search(r"^  Q4_1 ", text, re.M)
    assert re.search(r"^  token_embd\.weight +\w+ +576 x 49152 ", text, re.M)
    assert chunkllama("info", model_path, env={"CHUNKLLAMA_MODEL": None}).stdout in text


def test_info_of_a_hostile_file(chunkllama, tmp_path):
    """Escape sequences do not reach the terminal, and sums of impossible sizes do not overflow."""

    def text(s):
        return struct.pack("<Q", len(s)) + s

    def key(name, value):
        return text(name) + struct.pack("<I", 8) + text(value)

    red, int8 = b"\x1b[31m", 24
    keys = [(b"general.architecture", red + b"arch"), (b"general.name", red + b"name"), (red + b"key", red + b"value")]
    tensors = [text(red + b"%d" % i) + struct.pack("<IQIQ", 1, 2**63 - 1, int8, 0) for i in range(3)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(key(*pair) for pair in keys) + b"".join(tensors)
    (tmp_path / "x.gguf").write_bytes(head + bytes(-len(head) % 32))
    out = chunkllama("info", "--tensors", tmp_path / "x.gguf").stdout
    assert re.search(r"^tokenizer  +\S", out, re.M) and "chat template" not in out
    assert "\x1b" not in out and re.search(r"^architecture +\?\[31march$", out, re.M) and re.search(r"^name +\?\[31mname$", out, re.M)
    assert re.search(r"^  \?\[31mkey +string +\?\[31mvalue$", out, re.M) and re.search(r"^  \?\[31m2 +I8 ", out, re.M)
    assert re.search(r"^parameters +9223372036854775807, ", out, re.M) and re.search(r"^  I8 +3 +9223372036854775807 +0 ", out, re.M)


def vocabulary(tokens, *keys):
    """A GGUF file of a byte-level vocabulary."""

    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    fields = [("tokenizer.ggml.model", "gpt2"), ("general.architecture", "llama"), *keys]
    body = b"".join(text(name) + struct.pack("<I", 8) + text(value) for name, value in fields)
    for name, values in (("tokens", tokens), ("merges", [])):
        body += text(f"tokenizer.ggml.{name}") + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields) + 2) + body


def gguf_with_types(path, arch, *types):
    """A GGUF file of a vocabulary, whose tensors have these types and 256 elements."""
    head = vocabulary(["a"]).replace(b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
                                     b"general.architecture\x08\0\0\0" + struct.pack("<Q", len(arch)) + arch.encode())  # fmt: skip
    tensors = b"".join(struct.pack("<Q", 2) + b"t%d" % i + struct.pack("<IQIQ", 1, 256, t, 1024 * i) for i, t in enumerate(types))
    head = head[:8] + struct.pack("<Q", len(types)) + head[16:] + tensors
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(1024 * len(types)))
    return path


def test_info_says_what_is_missing(chunkllama, tmp_path):
    """Each reason has a line, whether it is the architecture, the tokenizer or weights of a type."""
    f32, nvfp4, unknown = 0, 40, 99
    out = chunkllama("info", gguf_with_types(tmp_path / "x.gguf", "qwen3next", f32, nvfp4, nvfp4, unknown)).stdout
    assert re.search(r"^loads +no$", out, re.M)
    assert re.search(r"^missing +weights of type NVFP4, which 2 tensors have$", out, re.M)
    assert re.search(r"^missing +weights of another type, which 1 tensor has$", out, re.M)
    assert re.search(r'^missing +general\.architecture is "qwen3next", which needs recurrent layers', out, re.M)
    assert re.search(r"^memory +0\.0 MB of weights that can be read$", out, re.M)
    out = chunkllama("info", gguf_with_types(tmp_path / "y.gguf", "llama", f32)).stdout
    assert re.search(r"^missing +the file has no integer llama\.block_count", out, re.M)


def test_info_of_a_folder_that_does_not_load(chunkllama, tmp_path):
    """A folder of a class that is not supported is described, too."""
    config = {"architectures": ["NewForCausalLM"], "text_config": {"num_hidden_layers": 3, "a": 1}, "text_config.a": 2,
              "quantization_config": {"quant_method": "fp8"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"x.weight": {"dtype": "F8_E4M3", "shape": [3, 5], "data_offsets": [0, 15]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(15))
    out = chunkllama("info", "--tensors", tmp_path).stdout
    assert re.search(r"^architecture +NewForCausalLM$", out, re.M) and re.search(r"^loads +no$", out, re.M)
    assert re.search(r'^missing +\S+config\.json: architectures is "NewForCausalLM"; supported, each with ForCausalLM behind it: ', out, re.M)
    assert re.search(r"^memory +0\.0 MB of weights in F32, F16 and BF16$", out, re.M)
    assert re.search(r"^  text_config\.num_hidden_layers +f64 +3$", out, re.M)
    assert re.search(r"^  quantization_config\.quant_method +string +fp8$", out, re.M)
    assert re.search(r"^  x\.weight +F8_E4M3 +5 x 3 +15$", out, re.M)
    (tmp_path / "model.safetensors").unlink()
    assert 'architectures is "NewForCausalLM"' in chunkllama("info", tmp_path, status=1).stderr


def test_white_space_in_info(chunkllama, tmp_path):
    (tmp_path / "x.gguf").write_bytes(vocabulary(["a"], ("tokenizer.chat_template", "{% if a %}\n\t{{ b }}\r\n{% endif %}")))
    out = chunkllama("info", tmp_path / "x.gguf").stdout
    assert r" {% if a %}\n\t{{ b }}\r\n{% endif %}" in out


def test_missing_pre_tokenizer(chunkllama, tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(vocabulary(["a"]))
    warning = "the file has no tokenizer.ggml.pre, and its vocabulary is not recognised"
    assert re.search(rf"^pre-tokenizer   default\nwarning         {warning}", chunkllama("info", path).stdout, re.M)
    path.write_bytes(vocabulary(["a", "<|begin_of_text|>"]))
    assert "warning" not in chunkllama("info", path).stdout
    path.write_bytes(vocabulary(["a"], ("tokenizer.ggml.pre", "gpt-2")))
    assert "pre-tokenizer   gpt-2\n" in chunkllama("info", path).stdout


def test_error_about_a_hostile_file(chunkllama, tmp_path):
    """Text of a file in a message reaches the terminal without control characters."""
    key, value = b"tokenizer.ggml.model", b"\x1b]0;owned\x07\x1b[31mX"
    body = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + body)
    error = chunkllama("tokenize", "-m", tmp_path / "x.gguf", "x", status=1).stderr
    assert error == ("chunkllama tokenize: tokenizer.ggml.model: '?]0;owned??[31mX' is not supported; "
                     "known are gpt2, llama and gemma4\n")


def test_tokenize(chunkllama, tmp_path):
    ids = json.loads(chunkllama("tokenize", "Hello world").stdout)
    assert ids == [19556, 905]
    assert json.loads(chunkllama("tokenize", stdin="Hello world").stdout) == ids
    (tmp_path / "text").write_text("Hello world")
    assert json.loads(chunkllama("tokenize", "--file", tmp_path / "text").stdout) == ids
    assert json.loads(chunkllama("tokenize", "").stdout) == []


def test_tokenize_lines(chunkllama):
    lines = ["Hello world", "", "two\nlines", "caf\u00e9 \u65e5\u672c \U0001f408", "nul \0 byte"]
    done = chunkllama("tokenize", "--jsonl", stdin="".join(json.dumps(line) + "\n" for line in lines))
    ids = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ids) == len(lines) and ids[0] == [19556, 905] and ids[1] == []
    assert ids[2:4] == [json.loads(chunkllama("tokenize", line).stdout) for line in lines[2:4]]
    assert "line 2 is not a JSON string" in chunkllama("tokenize", "--jsonl", stdin='"a"\n{}\n', status=1).stderr


# ---- logits and perplexity ----


@pytest.fixture(scope="module")
def token_file(chunkllama, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "ids.json"
    path.write_text(chunkllama("tokenize", TEXT * 6).stdout)
    return path


def logits(chunkllama, token_file, out, *args):
    chunkllama("logits", "--tokens", token_file, "-o", out, *args)
    return np.load(out)


@pytest.mark.whole_model
def test_logits(chunkllama, token_file, tmp_path):
    ids = json.loads(token_file.read_text())
    assert len(ids) > 140  # more than one step
    every = logits(chunkllama, token_file, tmp_path / "every.npy")
    assert every.dtype == np.float32 and every.shape == (len(ids), 49152)
    # The text repeats itself, so at its end the model predicts it well.
    assert np.mean(every[-30:-1].argmax(1) == ids[-29:]) > 0.8
    last = logits(chunkllama, token_file, tmp_path / "last.npy", "--last")
    assert last.shape == (1, 49152) and np.array_equal(last[0], every[-1])


@pytest.mark.parametrize("args", [["--prefill-segment", "7"], ["--max-step-rows", "64"], ["--threads", "1"],
                                  ["--sharing", "private"]])
def test_logits_do_not_depend_on_settings(chunkllama, token_file, tmp_path, args):
    one, other = (logits(chunkllama, token_file, tmp_path / f"{i}.npy", *a) for i, a in enumerate([[], args]))
    assert one.tobytes() == other.tobytes()


# Of the default model's logits, at avx2 on any machine.
SAME_BITS = {"bf16": "a18d11bb9358fbcf80962f6eff489c5291c2a79749296724f3e7609ac022ad99",
             "int8": "7b87eacdcbc985cb092ab0ab532982d25c7f1c51b9589818a557a0354b5ef2c0"}


@pytest.mark.whole_model
@pytest.mark.parametrize("kv", SAME_BITS)
def test_logits_have_the_same_bits_on_every_machine(chunkllama, token_file, tmp_path, kv):
    """avx2 computes what it does everywhere, and the levels that docs/design.md names compute the same."""
    refusal = chunkllama("logits", "--tokens", token_file, "-o", os.devnull, "--level", "mmx", status=1).stderr
    levels = refusal.strip().split("this CPU has ")[1].split(", ")
    same = ["avx2", "avx_vnni", "avx512", "avx512_vnni", *(["avx512_bf16", "amx"] if kv == "int8" else [])]
    for level in [name for name in same if name in levels]:
        out = logits(chunkllama, token_file, tmp_path / f"{level}.npy", "--kv-type", kv, "--level", level)
        assert hashlib.sha256(out.tobytes()).hexdigest() == SAME_BITS[kv], level


@pytest.mark.parametrize("content, message", [
    ("[1, 2", "line 1: "), ("{}", "must hold a JSON array of at least one token id"), ("[]", "must hold a JSON array of at least one token id"),
    ("[1, 49152]", "element 1 is not a token id; ids are whole numbers from 0 to 49151"), ("[1.5]", "element 0"), ("[-1]", "element 0"),
])
def test_bad_token_files(chunkllama, tmp_path, content, message):
    (tmp_path / "ids.json").write_text(content)
    assert message in chunkllama("logits", "-t", tmp_path / "ids.json", "-o", tmp_path / "x.npy", status=1).stderr


def test_perplexity(chunkllama, token_file, tmp_path):
    n_ctx = 64
    (tmp_path / "text").write_text(TEXT * 6)
    ids = json.loads(token_file.read_text())
    done = json.loads(chunkllama("perplexity", "-f", tmp_path / "text", "--ctx", n_ctx, "--passages", 2, "--json").stdout)
    losses = []
    for start in (0, n_ctx):
        chunk = ids[start:start + n_ctx]
        (tmp_path / "chunk.json").write_text(json.dumps(chunk))
        x = logits(chunkllama, tmp_path / "chunk.json", tmp_path / "chunk.npy").astype(np.float64)
        logsum = x.max(1) + np.log(np.exp(x - x.max(1, keepdims=True)).sum(1))
        losses += [logsum[p] - x[p, chunk[p + 1]] for p in range(n_ctx // 2, n_ctx - 1)]
    assert done["tokens_scored"] == len(losses) and done["passages"] == 2 and done["n_ctx"] == n_ctx
    assert done["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-9)
    assert done["uncertainty"] == pytest.approx(np.std(losses) / math.sqrt(len(losses) - 1) * done["perplexity"], rel=1e-6)
    text = chunkllama("perplexity", "-f", tmp_path / "text", "--ctx", n_ctx, "--chunks", 2).stdout
    assert f"Final estimate: PPL = {done['perplexity']:.4f} +/- {done['uncertainty']:.5f}\n" in text
    short = chunkllama("perplexity", "-f", "-", stdin="too short", status=1)
    assert "fewer than --ctx 512" in short.stderr


# ---- bench ----


def test_bench(chunkllama):
    done = chunkllama("bench", "--pp", "32,64", "--tg", "4", "--batch", "1,3", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(x["PP"], x["TG"], x["B"], x["N_KV"]) for x in lines] == [(32, 4, 1, 36), (32, 4, 3, 108), (64, 4, 1, 68),
                                                                      (64, 4, 3, 204)]
    for x in lines:
        assert list(x) == ["PP", "TG", "B", "N_KV", "T_PP", "S_PP", "T_TG", "S_TG", "T", "S"]
        assert x["S_PP"] == pytest.approx(x["B"] * x["PP"] / x["T_PP"], rel=1e-4)
        assert x["S_TG"] == pytest.approx(x["B"] * x["TG"] / x["T_TG"], rel=1e-4)
        assert x["T"] == pytest.approx(x["T_PP"] + x["T_TG"], rel=1e-4)
        assert x["S"] == pytest.approx(x["N_KV"] / x["T"], rel=1e-4)
    shared = json.loads(chunkllama("bench", "--pp", "64", "--tg", "4", "--batch", "3", "--shared", "--json").stdout)
    assert shared["N_KV"] == 64 + 3 * 4


@pytest.mark.parametrize("mode, n_kv", [("shared", 16 + 2 * 2), ("shared_storage", 16 + 2 * 2), ("private", 2 * (16 + 2))])
def test_bench_counts_what_is_computed(chunkllama, mode, n_kv):
    done = chunkllama("bench", "--shared", "--sharing", mode, "--pp", "16", "--tg", "2", "--batch", "2", "--json")
    got = json.loads(done.stdout)
    assert got["N_KV"] == n_kv and got["S_PP"] == pytest.approx((n_kv - 2 * 2) / got["T_PP"], rel=1e-4)


def test_bench_table(chunkllama):
    head, line, row = chunkllama("bench", "--pp", "16", "--tg", "2", "--batch", "2").stdout.splitlines()
    assert re.findall(r"[A-Z_]+", head.replace("t/s", "").replace(" s ", "")) == ["PP", "TG", "B", "N_KV", "T_PP", "S_PP", "T_TG",
                                                                               "S_TG", "T", "S"]
    assert len(head) == len(line) == len(row)
    assert "--batch is '1,x'" in chunkllama("bench", "--batch", "1,x", status=1).stderr


# ---- run and chat ----

GREEDY = ["--temperature", "0", "--max-tokens", "24"]


def batch_texts(chunkllama, *requests):
    """What `chunkllama batch` answers to these requests."""
    done = chunkllama("batch", "-i", "-", "-o", "-", *GREEDY, stdin="".join(json.dumps(request) + "\n" for request in requests))
    return [json.loads(line)["text"] for line in done.stdout.splitlines()]


def messages(*texts, system=None):
    """A chat of these texts, of which the user writes the first one."""
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}] * bool(system) + turns}


def test_run(chunkllama):
    question, system = "Why is the sky blue?", "You are a pirate."
    text = chunkllama("run", *GREEDY, question).stdout
    of_pirate = chunkllama("run", *GREEDY, "--system", system, question).stdout
    assert [text, of_pirate] == [t + "\n" for t in batch_texts(chunkllama, messages(question), messages(question, system=system))]
    assert chunkllama("run", *GREEDY, stdin=question + "\n").stdout == text
    assert chunkllama("run", *GREEDY, "--prompt", question, "--threads", 1).stdout == text
    stop = text[len(text) // 2:-1]
    assert stop and chunkllama("run", *GREEDY, "--stop", stop, question).stdout == text[:text.index(stop)] + "\n"


def test_run_raw_and_seed(chunkllama):
    prompt = "The capital of France is"
    assert [chunkllama("run", "--raw", *GREEDY, prompt).stdout] == [t + "\n" for t in batch_texts(chunkllama, {"prompt": prompt})]
    raw = ["run", "--raw", "--max-tokens", "12", "Once upon a time"]
    drawn = [chunkllama(*raw, "--temperature", "1.5", "--seed", seed).stdout for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_run_too_long(chunkllama):
    done = chunkllama("run", "--ctx", "64", stdin=TEXT * 6, status=1)
    assert re.search(r"\b64\b", done.stderr)


def test_chat(chunkllama):
    """The earlier turns count, until they are cleared."""
    first, second = "Why is the sky blue?", "Say that in other words."
    answers = chunkllama("chat", *GREEDY, stdin=f"{first}\n/clear\n{first}\n{second}\n/quit\nignored\n").stdout
    [once] = batch_texts(chunkllama, messages(first))
    [other] = batch_texts(chunkllama, messages(first, once, second))
    assert answers == f"{once}\n{once}\n{other}\n"
    assert chunkllama("chat", *GREEDY, stdin="").stdout == ""
