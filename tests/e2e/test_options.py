"""Where options come from: the command line with the flags of other programs; and the names of the model."""
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import openai
import pytest
from test_server import serving
from waiting import LIMIT_S

CHAT = [{"role": "user", "content": "Hi."}]
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
         "/tokenize", "/detokenize", "/v1/chat/completions/render", "/v1/completions/render", "/cache/explain"]


# Flags of other servers for endpoints that are always there, with what a request for one of these may be; None: it is a GET.
ENDPOINTS = {
    "--embedding": ("/v1/embeddings", {"input": "x"}),
    "--reranking": ("/v1/rerank", {"query": "x", "documents": ["y"]}),
    "--metrics": ("/metrics", None),
    "--slots": ("/slots", None),
}


def body(path, **fields):
    content = {"input": "x", "max_output_tokens": 1} if path.endswith(("embeddings", "responses")) else {"tokens": [1]} if path == "/detokenize" else \
        {"messages": CHAT, "max_tokens": 1} if "chat" in path or "messages" in path else {"prompt": "x", "max_tokens": 1}
    return content | fields


def post(url, content):
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# ---- Names of the model, and what clients of other servers send ----


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path):
    """Started as a user of vLLM or llama-server would."""
    flags = ["--served-model-name", "first", "second,third", "--max-model-len", "256", "-np", "3", "-t", "1", "-fa", "--n-gpu-layers",
             "0", "--enable-prefix-caching", "--tensor-parallel-size=1", "--no-webui", *ENDPOINTS]
    with serving(chunkllama_bin, model_path, *flags) as running:
        yield running


def test_no_page(server):
    """--no-webui is --no-page: a browser gets the list of endpoints."""
    browsers = urllib.request.Request(server.url + "/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(browsers, timeout=LIMIT_S) as reply:
        assert reply.headers.get_content_type() == "text/plain"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(server.url + "/web/app.js", timeout=LIMIT_S)


@pytest.mark.parametrize("flag", ENDPOINTS)
def test_endpoints_that_flags_of_others_enable(server, flag):
    path, content = ENDPOINTS[flag]
    request = urllib.request.Request(server.url + path, content and json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        assert reply.status == 200


def test_what_answers_about_flags_say_of_the_endpoints(server, request):
    """Each endpoint that they name is one, and /props changes nothing."""
    with urllib.request.urlopen(server.url + "/openapi.json", timeout=LIMIT_S) as reply:
        paths = json.load(reply)["paths"]
    source = (request.config.rootpath / "cli/options_peers.c").read_text()
    named = re.findall(r"\b(GET|POST|DELETE) (/[a-z/]+)", source)
    assert len(named) > 1 and all(method.lower() in paths[path] for method, path in named)
    assert list(paths["/props"]) == ["get"] and "there is no" not in source.split("peer_options[]")[1].split("};")[0]


def test_names_of_the_model(server):
    listed = server.client.models.list().data
    assert [model.id for model in listed] == ["first", "second", "third"] and listed[0].max_model_len == 256
    assert server.client.models.retrieve("third").id == "third"
    with pytest.raises(openai.NotFoundError):
        server.client.models.retrieve("fourth")
    for path in PATHS:
        status, answer = post(server.url + path, body(path, model="fourth"))
        assert status == 404, (path, answer)
        error = answer["error"]
        assert error["type"] == "not_found_error" if "messages" in path and "v1/messages" in path else error["code"] == "model_not_found"
        assert "there is no model 'fourth'; the model here is called 'first' or 'second' or 'third'" == error["message"]
        for fields in {"model": "second"}, {}, {"model": None}:
            status, answer = post(server.url + path, body(path, **fields))
            assert status == 200, (path, fields, answer)
            assert path != "/v1/completions" or answer["model"] == "first"


def test_numbers_of_other_clients(server):
    """-1 is no limit, an integer may have a fraction of 0, and temperatures may be above 2."""
    whole = post(server.url + "/v1/completions", {"prompt": "x", "max_tokens": -1, "stop": " ", "temperature": 3.5})
    assert whole[0] == 200
    status, answer = post(server.url + "/v1/completions", {"prompt": "x", "max_tokens": 3.0, "ignore_eos": True})
    assert status == 200 and answer["usage"]["completion_tokens"] == 3
    status, answer = post(server.url + "/v1/completions", {"prompt": "x", "max_tokens": 3.5})
    assert status == 400 and "max_tokens" in answer["error"]["message"]


def test_model_names_of_batch(chunkllama, model_path):
    def errors(*args):
        lines = "".join(json.dumps({"prompt": "x", "max_tokens": 1, "model": name}) + "\n" for name in ("mine", "other"))
        records = chunkllama("batch", "-i", "-", *args, stdin=lines, status=0 if "*" in args else 1).stdout.splitlines()
        return ["error" in json.loads(record) for record in records]

    assert errors("--model-name", "mine") == [False, True]
    assert errors("--served-model-name", "*") == [False, False]


# ---- Flags of other programs ----


@pytest.mark.parametrize("args, message", [
    (["--max-num-batched-tokens", "4096"], "--max-num-batched-tokens: use --max-step-rows"),
    (["--gpu-memory-utilization=0.9"], "--gpu-memory-utilization: use --kv-budget"),
    (["--chunked-prefill-size", "2048"], "--chunked-prefill-size: use --prefill-segment"),
    (["-ngl", "99"], "-ngl: all of the model runs where --device says; leave it out"),
    (["-ngl", "0", "-tp", "2"], "-tp: one process computes the whole model"),
    (["-fa", "off"], "-fa: attention is always computed"),
    (["--no-enable-prefix-caching"], "--no-enable-prefix-caching: use --sharing private and --retention none"),
    (["--enable-prefix-caching=false"], "--enable-prefix-caching is 'false'; it cannot be switched off here, so leave it out"),
    (["--ctx-size", "-1"], "--ctx-size is -1; it must be from 0 to "),
    (["--lora", "a.gguf"], "--lora: adapters are not supported; merge the adapter"),
    (["--enable-lora"], "--enable-lora: adapters are not supported"),
    (["--mmproj", "m.gguf"], "--mmproj: only text is supported"),
    (["--no-slots"], "--no-slots: GET /slots is always there"),
    (["--props"], "--props: GET /props is always there"),
    (["--verbose"], "--verbose: use --log-level: debug"),
    (["--log-disable"], "--log-disable: use --log-level: debug"),
    (["-s", "7"], "-s: use --seed, or --system for a system message"),
    (["--kv-tier-size", "1G"], "--kv-tier-size has no effect without --kv-tier; name a DIR by that, or leave it out"),
    (["--max-file-bytes", "1G"], "--max-file-bytes has no effect without --files-dir; name a DIR by that, or leave it out"),
    (["-mg", "1"], "-mg: all of the model runs where --device says; leave it out"),
    (["-cram", "8192"], "-cram: use --kv-budget"),
    (["--mirostat", "2"], "--mirostat: tokens are drawn by --temperature"),
    (["--task", "classify"], "--task: a server generates, embeds and scores"),
    (["--reasoning-budget", "0"], "--reasoning-budget: requests have it: send the field reasoning_budget_tokens"),
    (["--max-model-len", "4k"], "--max-model-len is '4k', which is not a whole number"),
    (["--ignore-eos"], "unknown option --ignore-eos; chunkllama serve --help lists all options, and run has this one"),
    (["--disable-log-requests"], "--disable-log-requests: requests are logged at the level info; use --log-level warn"),
    (["--grammar-file", "a.gbnf"], "--grammar-file: grammars belong to requests"),
    (["--root-path", "/x"], "--root-path: let the proxy cut the path"),
    (["--chunked-prefill-size", "512"], "--chunked-prefill-size: use --prefill-segment"),
    (["--max-num-seqs"], "--max-num-seqs needs a value: N"),
    (["-t", "x"], "-t is 'x', which is not a whole number"),
    (["--served-model-name", "--port", "1"], "--served-model-name needs a value: NAMES"),
    (["-hf", "qwen"], "-hf needs a value: OWNER/NAME"),
    (["-hf"], "-hf needs a value: OWNER/NAME"),
    (["--hf-file"], "--hf-file needs a value: FILE"),
    (["--hf-file", "a.gguf"], "--hf-file: all of the model is in the file or folder of --model"),
    (["-dr", "gemma3"], "-dr: all of the model is in the file or folder of --model"),
    (["a.gguf", "b.gguf"], "'b.gguf' is one argument too many; name one MODEL, in quotes if it has blanks"),
    (["a.gguf", "-m", "b.gguf"], "the model is 'a.gguf' and --model 'b.gguf'; name it once"),
])
def test_answers_about_flags_of_others(chunkllama, args, message):
    assert message in chunkllama("serve", *args, status=2).stderr


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Runs the commands that an error names; hf, curl and chunkllama only say what they would do, with the files of a hub."""
    files = ["m-q4_k_m.gguf", "m-IQ4_K_M.gguf", "m-Q4_0.gguf", "m-q4_0_4_4.gguf", "m-F16.gguf", "m-bf16.gguf", "config.json"]
    (tmp_path / "hf").write_text("""#!/bin/sh
shift; name=${1#*/}; shift
case $1 in --include) pattern=$2; shift 2;; --local-dir) pattern='*';; *) pattern=$1; shift;; esac
mkdir "$2" && cd "$2" && for file in %s "a b.gguf"; do case $file in $pattern) : > "$file";; esac; done
""" % " ".join(files))
    (tmp_path / "curl").write_text('#!/bin/sh\n: > "$3"\n')
    (tmp_path / "chunkllama").write_text('#!/bin/sh\necho "$@"\n[ -e "$3" ]\n')
    for name in ("hf", "curl", "chunkllama"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)

    def follow(error):
        command = re.search(r": models are not downloaded here; run: (.*?)( \(hf: pipx install huggingface_hub\)|$)", error, re.M)[1]
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": f"{tmp_path}:/bin:/usr/bin"})
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout.strip()

    return follow


@pytest.mark.parametrize("args, started", [
    (["serve", "-hf", "a/b-GGUF"], "serve -m b-GGUF/m-q4_k_m.gguf"),
    (["serve", "--hf-repo=a/b-gguf:q4_K_m"], "serve -m b-gguf/m-q4_k_m.gguf"),
    (["serve", "-hfr", "a/b:Q4_0"], "serve -m b/m-Q4_0.gguf"),
    (["serve", "a/b:f16"], "serve -m b/m-F16.gguf"),
    (["serve", "-hf", "a/b:BF16"], "serve -m b/m-bf16.gguf"),
    (["serve", "-hf", "a/b"], "serve -m b"),
    (["serve", "-hf", "a/b-GGUF", "--hf-file", "m-F16.gguf"], "serve -m b-GGUF/m-F16.gguf"),
    (["serve", "-hff", "a b.gguf", "--hf-repo", "a/b:Q4_0"], "serve -m b/a b.gguf"),
    (["chat", "-m", "hf.co/a/b-GGUF:Q4_0"], "chat -m b-GGUF/m-Q4_0.gguf"),
    (["serve", "hf:a/b"], "serve -m b"),
    (["batch", "-m", "hf://a/b/m-F16.gguf"], "batch -m b/m-F16.gguf"),
    (["serve", "https://huggingface.co/a/b/blob/main/m-F16.gguf?x=1"], "serve -m b/m-F16.gguf"),
    (["serve", "-mu", "https://huggingface.co/a/b/resolve/main/m-F16.gguf"], "serve -m b/m-F16.gguf"),
    (["serve", "https://huggingface.co/a/b/tree/main"], "serve -m b"),
    (["serve", "https://example.com/a/c.gguf"], "serve -m c.gguf"),
    (["serve", "--model-url", "https://example.com/a/c.gguf?download=true"], "serve -m c.gguf"),
    (["info", "a/b-GGUF"], "info -m b-GGUF/m-q4_k_m.gguf"),
    (["info", "-hf", "a/b-GGUF"], "info -m b-GGUF/m-q4_k_m.gguf"),
    (["doctor", "a/b-GGUF"], "doctor -m b-GGUF/m-q4_k_m.gguf"),
    (["tokenize", "-m", "a/b-GGUF", "x"], "tokenize -m b-GGUF/m-q4_k_m.gguf"),
    (["serve", "-m", "x.gguf", "-hfd", "a/b:Q4_0"], "serve -m x.gguf --draft-model b/m-Q4_0.gguf"),
    (["run", "-m", "x.gguf", "--draft-model", "a/b", "x"], "run -m x.gguf --draft-model b"),
])
def test_models_to_download(chunkllama, hub, tmp_path, args, started):
    """The command of the error downloads one file, or the folder, and starts with it what was called."""
    (tmp_path / "x.gguf").touch()
    assert hub(chunkllama(*args, status=2).stderr) == started


@pytest.mark.parametrize("args, message", [
    (["run", "here.gguf"], "chunkllama run: 'here.gguf' is a model, so name it by -m: chunkllama run -m 'here.gguf'"),
    (["run", "here.gguf", "Hello"], "'here.gguf' is a model, so name it by -m"),
    (["run", "-m", "x.gguf", "folder"], "'folder' is a model, so name it by -m"),
    (["tokenize", "here.gguf"], "name it by -m: chunkllama tokenize -m 'here.gguf'"),
    (["chat", "here.GGUF"], "name it by -m: chunkllama chat -m 'here.GGUF'"),
    (["bench", "folder"], "name it by -m: chunkllama bench -m 'folder'"),
    (["chat", "none.gguf"], "unexpected argument 'none.gguf': chunkllama chat takes only options; a model is named by -m"),
    (["bench", "serve", "here.gguf"], "unexpected argument 'here.gguf': chunkllama bench serve takes only options\n"),
    (["run", "hf.co/a/b"], "models are not downloaded here; run: hf download a/b --local-dir b && chunkllama run -m b"),
    (["run", "no model"], "chunkllama run: no model; "),
    (["here.gguf"], "chunkllama: 'here.gguf' is a model, no command; name it by -m, as in chunkllama run -m 'here.gguf'"),
    (["folder", "--port", "0"], "chunkllama: 'folder' is a model, no command"),
    (["hf.co/a/b"], "chunkllama: 'hf.co/a/b' is a model, no command"),
    (["-m", "here.gguf"], "chunkllama: -m comes before a command; options follow it, as in chunkllama run -m FILE"),
    (["--port=0", "serve"], "chunkllama: --port=0 comes before a command"),
])
def test_model_in_the_wrong_place(chunkllama, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("here.gguf", "here.GGUF", "x.gguf", "folder/config.json"):
        (tmp_path / name).touch()
    assert message in chunkllama(*args, env={"CHUNKLLAMA_MODEL": None}, status=1 if "no model" in args else 2).stderr


def test_a_path_is_no_name_on_the_hub(chunkllama, tmp_path, monkeypatch):
    """A file that is missing is named as one, in a folder that exists or with the ending of a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for path in ("models/mine", "none/mine.gguf", "./Qwen/Qwen3-0.6B", "/none/mine"):
        error = chunkllama("info", "-m", path, status=1).stderr
        assert path in error and "cannot be opened" in error and "hf download" not in error, error
    error = chunkllama("run", "-m", "Qwen/Qwen3-0.6B", "Hello", status=2).stderr
    assert "&& chunkllama run -m Qwen3-0.6B " in error


# What users of the others often set, by the command here in whose place they call them.
COMMON = {
    "serve": """--reasoning-budget --reasoning --repeat-last-n --samplers --mirostat --dry-multiplier --json-schema --logit-bias
        --no-warmup --warmup --no-context-shift --cache-reuse --cache-ram -cram --ctx-checkpoints --swa-full -kvu --kv-unified -nkvo
        --cpu-moe -sm -mg -ts -dev -to -sps --threads-http --prio --keep --path --prefill-assistant --no-jinja --offline --models-dir
        --list-devices --check-tensors --spec-type --log-colors --task --runner --convert --tokenizer-mode --hf-token
        --enable-reasoning --no-enable-chunked-prefill --chat-template-content-format --response-role --enable-prompt-tokens-details
        --scheduling-policy --disable-uvicorn-access-log --api-server-count --return-tokens-as-token-ids --disable-sliding-window
        --schedule-policy --is-embedding --disable-cuda-graph --cuda-graph-max-bs --random-seed -ctxcp -ncmoe -ot -fit -lm --ui
        --no-ui -mm -hft -td -ctkd -ngld -jf --xtc-probability --typical -q -O --distributed-executor-backend --tools --reuse-port""",
    "run": "-cnv -no-cnv -st -i -r -e --color --no-display-prompt -sysf --keep -s -ngl -t -fa --repeat-last-n -l -jf",
    "chat": "-cnv -st -i -r -e --color -mli -if",
}


def test_common_flags_of_others(chunkllama_bin, tmp_path):
    """None is unknown: each is accepted, and the next error is the model's, or answered with what to do."""
    for command, flags in COMMON.items():
        for flag in flags.split():
            error = subprocess.run([chunkllama_bin, command, "-m", tmp_path / "none.gguf", flag], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True).stderr
            assert "unknown" not in error and "did you mean" not in error, error
            assert "none.gguf: cannot be opened" in error or f"{flag}: " in error or f"{flag} needs a value: " in error, error


@pytest.mark.parametrize("flags", ["--max-model-len auto", "-ngl auto", "-dev none", "-sm none", "--typical 1.0", "--mirostat 0",
                                   "--task embed", "--runner pooling", "--schedule-policy lpm", "--keep 0", "--color", "--log-colors off",
                                   "--reasoning auto", "--api-server-count 1", "-to 600", "--random-seed 7"])
def test_values_of_others_that_hold(chunkllama, tmp_path, flags):
    assert "none.gguf: cannot be opened" in chunkllama("serve", "-m", tmp_path / "none.gguf", *flags.split(), status=1).stderr


def test_every_flag_of_others(chunkllama, request):
    """Each is a flag that no option here has, and what is named in its place exists."""
    source = (request.config.rootpath / "cli/options_peers.c").read_text()
    rows = re.findall(r'^    (?:([A-Z]+)\(|\{)((?:"[^"]*"\s*)+)(.*?)[)}],$', source, re.M | re.S)
    flags = [flag for _, texts, _ in rows for flag in re.findall(r"-[^ \n\"]+", texts)]
    assert len(flags) > 100 and len(set(flags)) == len(flags)
    helps = [chunkllama(command, "--help").stdout for command in ("serve", "run", "perplexity", "bench", "logits")]
    options = set(re.findall(r"--[a-z-]+", "".join(helps)))
    aliases = [re.search('"(.*)"', rest)[1] for kind, texts, rest in rows if kind == "ALIAS" for _ in texts.split()]
    assert len(aliases) > 20 and {"--" + name for name in aliases} <= options
    answers = re.findall(r'^static const char \w+\[\] = "(.*)";$', source, re.M)
    answers += [rest for kind, _, rest in rows if kind in ("ANSWER", "HOLDS", "REFUSED") and '"' in rest]
    assert len(answers) > 10
    for answer in answers:
        assert set(re.findall(r"--[a-z][a-z-]+", answer)) <= options, answer
    assert not {flag for flag in flags if flag in options}
    # No letter here is another option there; but -t of logits is a file, and a number is none.
    assert set(re.findall(r"^  (-[a-z]),", "".join(helps), re.M)) & set(flags) == {"-t"}


def test_model_as_argument(chunkllama):
    missing = chunkllama("serve", "/none/model.gguf", "--port", "0", env={"CHUNKLLAMA_MODEL": "/other"}, status=1).stderr
    assert "/none/model.gguf" in missing


# ---- The file of --config ----


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "c.toml"
        path.write_text(text)
        return path

    return write


def test_command_line_then_environment_then_file(chunkllama, config):
    """bench shows what is in force: the number of sequences and of tokens."""
    path = config('threads = 1\ntg = 3\nkv-budget = "64M"\n[bench]\nbatch = [1, 2]\npp = 5\ntg = 2\n[serve]\ntop-p = 0.5\n')

    def shapes(*args, **env):
        rows = map(json.loads, chunkllama("bench", "--json", *args, env=env).stdout.splitlines())
        return [(row["PP"], row["TG"], row["B"]) for row in rows]

    named = {"CHUNKLLAMA_CONFIG": str(path)}
    assert shapes("--config", path) == shapes(**named) == [(5, 2, 1), (5, 2, 2)]
    assert shapes(**named, CHUNKLLAMA_BATCH="3", CHUNKLLAMA_TG="1") == [(5, 1, 3)]
    assert shapes("--batch", "1", "--pp=4", **named, CHUNKLLAMA_BATCH="3") == [(4, 2, 1)]
    assert shapes("--config", config("[bench]\npp = 6\nbatch = 1\ntg = 1"), CHUNKLLAMA_CONFIG="/none") == [(6, 1, 1)]


@pytest.mark.parametrize("text, message", [
    ("a = \n", "1: "),
    ("threads = 1\nthreads = 2\n", "2: "),
    ("\n\nkv-typ = 'f16'", "3: unknown key 'kv-typ'; did you mean 'kv-type'?"),
    ("kv_type = 'f16'", "1: unknown key 'kv_type'; did you mean 'kv-type'?"),
    ("ctx-size = 4", "1: unknown key 'ctx-size'; did you mean 'ctx'?"),
    ("gpu-memory-utilization = 0.9", "1: gpu-memory-utilization: use --kv-budget"),
    ("xyzzy = 4", "1: unknown key 'xyzzy'; keys are options without their dashes, which chunkllama COMMAND --help lists"),
    ("[serv]\nport = 1", "1: no command is called [serv]; did you mean [serve]?"),
    ("[serve]\ninput = 'x'", "2: unknown key 'input'; "),
    ("kv-type = 'f33'", "1: kv-type is 'f33', which is none of f32, f16, bf16, int8, e4m3; did you mean f32?"),
    ("[serve]\nport = 65536", "2: port is 65536; it must be from -1 to 65535"),
    ("[serve]\nport = '80'", "2: port is a string; it must be a whole number, without quotes"),
    ("threads = 1.5", "1: threads is a number with a fraction; it must be a whole number"),
    ("kv-budget = '2X'", "1: kv-budget is '2X', which is not a whole number with K, M, G or nothing after it"),
    ("kv-budget = true", '1: kv-budget is true or false; it must be a whole number of bytes, or a string such as "2G"'),
    ("pin-threads = 1", "1: pin-threads is a whole number; it must be true or false, without quotes"),
    ("temperature = 'hot'", "1: temperature is a string; it must be a number"),
    ("model = 5", "1: model is a whole number; it must be a string, in quotes"),
    ("model-name = [1.5]", "1: model-name is of another kind; it must be a string or a list"),
    ('model = "a\\u0000b"', "1: model is of another kind"),
    ("serve.port.number = 1", "1: port is a table; it must be a whole number"),
    ("[bench-serve]\nrate = 0", "2: rate is 0; it must be from 1e-06 to inf"),
    ("config = 'x'", "1: config names this file"),
])
def test_wrong_file(chunkllama, config, text, message):
    """All of it is checked, whatever command runs."""
    path = config(text)
    assert f"chunkllama serve: {path}:{message}" in chunkllama("serve", "--config", path, "--temperature", "1", status=2).stderr


def test_no_file(chunkllama, tmp_path):
    missing = chunkllama("info", env={"CHUNKLLAMA_CONFIG": str(tmp_path / "none")}, status=2).stderr
    assert f"chunkllama info: --config: cannot open {tmp_path}/none: No such file or directory" in missing


def test_names_as_a_list(chunkllama, config):
    lines = json.dumps({"prompt": "x", "max_tokens": 1, "model": "b"}) + "\n"
    chunkllama("batch", "-i", "-", "--config", config('model-name = ["a", "b"]\n[batch]\n"max-tokens" = 1\n'), stdin=lines)


# ---- Manual pages and completion, which the program writes from its tables ----


@pytest.fixture(scope="module")
def options(chunkllama):
    """The names of each command's options, and the last one is help."""
    commands = re.findall(r"^  (\w+(?: \w+)?) ", chunkllama("--help").stdout, re.M)
    return {command: re.findall(r"^  (?:-\w, |    )--([a-z-]+)", chunkllama(*command.split(), "--help").stdout, re.M)
            for command in commands}


def test_manual_pages(chunkllama, options, tmp_path):
    """Each names every option, and man and mandoc, where they are installed, have nothing to say about it."""
    main = chunkllama("man").stdout
    for command, names in options.items():
        page = chunkllama("man", *command.split()).stdout
        name = "chunkllama-" + command.replace(" ", "-")
        assert name.replace("-", "\\-") in page and name.replace("-", "\\-") in main
        assert re.findall(r"\\fB\\-\\-([a-z\\-]+)\\fR", page.split(".SH OPTIONS")[1].split(".TP", 1)[1]) == \
            [name.replace("-", "\\-") for name in names]
        (tmp_path / f"{command}.1").write_text(page)
    (tmp_path / "main.1").write_text(main)
    files = sorted(map(str, tmp_path.glob("*.1")))
    if shutil.which("mandoc"):
        found = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *files], capture_output=True, text=True).stdout
        assert [line for line in found.splitlines() if "missing date" not in line] == []
    if shutil.which("groff"):
        for file in files:
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", file], capture_output=True, text=True)
            assert done.stderr == "" and done.returncode == 0


def test_bash_completion(chunkllama, chunkllama_bin, tmp_path):
    script = tmp_path / "chunkllama"
    script.write_text(chunkllama("completion", "bash").stdout)
    (tmp_path / "model.gguf").touch()
    lines = {"ser": "serve", "serve --kv-ty": "--kv-type", "serve --kv-type ": "f32 f16 bf16 int8 e4m3", "bench s": "serve",
             "bench serve --ur": "--url", "bench --p": "--pp --prefill-segment --pin-threads", "completion z": "zsh",
             f"run -m {tmp_path}/mod": f"{tmp_path}/model.gguf", "serve --port ": ""}
    calls = "".join('COMP_WORDS=(%s %s); COMP_CWORD=%d; _chunkllama; echo "${COMPREPLY[*]}"\n' %
                    (chunkllama_bin, " ".join(f"'{word}'" for word in line.split(" ")), len(line.split(" "))) for line in lines)
    done = subprocess.run(["bash", "-c", f"compopt() {{ :; }}; source {script}\n{calls}"], capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (list(lines.values()), "")


def test_completion_offers_every_option(chunkllama, options):
    for command, names in options.items():
        offered = chunkllama("complete", *command.split(), "--").stdout.splitlines()
        assert [line.split("\t")[0] for line in offered] == [f"--{name}" for name in names]
        assert all(line.split("\t")[1] for line in offered)
    assert chunkllama("complete", "run", "x").stdout == chunkllama("complete", "run", "-m", "").stdout == "*\n"
    assert chunkllama("complete", "run", "--raw", "--te").stdout.startswith("--temperature\t")
    assert chunkllama("complete", "none", "").stdout == ""


@pytest.mark.parametrize("shell, check", [("zsh", "-n"), ("fish", "-n")])
def test_scripts_of_other_shells(chunkllama, chunkllama_bin, tmp_path, shell, check):
    (tmp_path / "script").write_text(chunkllama("completion", shell).stdout)
    if shutil.which(shell):
        subprocess.run([shell, check, tmp_path / "script"], check=True)
    if shell == "fish" and shutil.which(shell):
        asked = f"source {tmp_path}/script; complete -C '{chunkllama_bin} serve --kv-type '"
        answer = subprocess.run([shell, "-c", asked], capture_output=True, text=True, check=True).stdout
        assert answer.split() == ["bf16", "f16", "f32", "int8"]


def test_completion_of_another_shell(chunkllama):
    assert "the shell is 'tcsh'; it must be bash, zsh or fish" in chunkllama("completion", "tcsh", status=2).stderr


# ---- doctor ----


@pytest.mark.whole_model
def test_doctor(chunkllama_bin, chunkllama, model_path):
    def lines(*args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("CHUNKLLAMA_")}
        done = subprocess.run([chunkllama_bin, "doctor", *args], capture_output=True, text=True, env=env)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    status, found = lines("--json", model_path)
    report = {line["name"]: line for line in map(json.loads, found)}
    assert list(report) == ["cpu", "threads", "memory", "huge pages", "sandbox", "grammars", "model", "users", "tokenizer"]
    assert all((line["fix"] is None) == line["ok"] for line in report.values())
    assert status == (0 if all(line["ok"] for line in report.values()) else 1)
    report.update((line["name"], line) for line in map(json.loads, lines("--json", "--kv-budget", "2G", model_path)[1]))
    # SmolLM2-135M: 30 layers, 3 KV heads of 64, bf16: 1,474,560 bytes a chunk of 64 tokens; 2 GiB have 1,456 chunks.
    assert f"room for {(1456 - 32) // 9} users with a shared prompt of 2048 tokens and 512 of their own" in report["users"]["found"]
    assert "ref" in report["cpu"]["found"]
    assert re.match(r"\d\d\d? MiB of weights, 2.0 GiB of --kv-budget$", report["model"]["found"])
    text = lines(model_path)[1]
    assert [line.split()[0] for line in text] == ["ok" if line["ok"] else "warn" for line in report.values()]
    status, text = lines("--kv-budget", "1M", "--threads", "1000", "--grammar-library", "/none", model_path)
    assert status == 1 and {line.split()[1] for line in text if line.startswith("warn")} >= {"threads", "grammars", "users"}
    assert any(line.startswith("warn  users") and line.endswith("; raise --kv-budget") for line in text)
    assert any(line.startswith("warn  model") and "/none.gguf" in line for line in lines("/none.gguf")[1])
    found = [json.loads(line) for line in lines("--json", b"/none\xff.gguf")[1]]
    assert any(line["name"] == "model" and "/none\ufffd.gguf" in line["found"] for line in found)
