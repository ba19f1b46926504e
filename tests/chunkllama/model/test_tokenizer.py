"""Token ids against PyPI `tokenizers` and `sentencepiece`, on text of every kind."""

import functools
import json
import pathlib
import random
import unicodedata

import gguf
import pytest
import sentencepiece
from today import DAY
from tokenizers import normalizers, pre_tokenizers
from published import NFC, PRE_TOKENIZERS, PUNCTUATION
from tokenizers_by_hand import byte_level, from_gguf, tokenize_dump

SEED = 20240215
WORKLOADS = pathlib.Path(__file__).resolve().parents[3] / "bench/workloads"

WORDS = "the of and chunk attention prefix don't we'll it's I'm you've they're he'd SHE'S naïve Straße façade Ελληνικά русский"
WORDS = (WORDS + " עברית العربية हिन्दी ไทย 日本語 한국어 中文 emoji 👩‍👩‍👧‍👦 🇩🇪 x_1 3.14159 1,000,000 0xFF 2024-02-15").split()
CODE = [
    "for (int i = 0; i < n; i++) {\n\ta[i] = b[i] * 2;\n}\n",
    "def f(x):\n    return x**2  # square\n\n\n",
    "SELECT * FROM t WHERE a<>'b' -- c\r\n",
    '{"key": [1, 2.5e-3, null], "s": "\\u00e9\\n"}',
    "https://example.org/a/b?c=d&e=%20f#g",
    "<|im_start|>user\n<|im_end|></s><s>",
]


def assigned():
    """Characters by category, of all planes, without surrogates and unassigned code points."""
    by_category = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn"):
            by_category.setdefault(category, []).append(chr(code))
    return by_category


def texts(n, seed=SEED):
    """n texts, which the seed determines."""
    rng = random.Random(seed)
    by_category = assigned()
    categories = sorted(by_category)
    planes = [[c for cs in by_category.values() for c in cs if ord(c) >> 16 == p] for p in (0, 1, 2, 3, 14, 15, 16)]
    spaces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u180e", "\u200b", "\u0085", "\u2028", "\x1c", "\v"]

    def any_category():
        return "".join(rng.choice(by_category[rng.choice(categories)]) for _ in range(rng.randint(1, 24)))

    def any_plane():
        return "".join(rng.choice(rng.choice(planes)) for _ in range(rng.randint(1, 16)))

    def words():
        return "".join(rng.choice(WORDS) + rng.choice(spaces + [" "] * 20) for _ in range(rng.randint(1, 30)))

    def blanks():
        return "".join(rng.choice([rng.choice(spaces) * rng.randint(1, 6), rng.choice(WORDS), "."]) for _ in range(12))

    def digits():
        return "".join(rng.choice("0123456789 .,-٣४५½Ⅷ²") for _ in range(rng.randint(1, 30)))

    def apostrophes():
        return "".join(rng.choice(["'", "’", "s", "S", "t", "re", "RE", "ve", "ll", "Ll", "d", "m", "ſ", " ", "a"]) for _ in range(16))

    def runs():
        return rng.choice(["a", "ab", "=", " ", "\n", "é", "日", "🙂", "1", "\u0301"]) * rng.randint(1, 300)

    def mixed():
        return rng.choice(CODE) + any_category() + words() + rng.choice(CODE) + digits()

    def marks():
        """Bases and marks in any order, also precomposed and Korean: what normalisation is about."""
        bases = "aeiouAEIOU\u03b1\u03c9\u0915\u1100\u1161\u11a8\uac00\u00e9\u01d5\u0390\u1fa2\u212b\u2126\ufb1d\u0958"
        return "".join(rng.choice(bases) + "".join(rng.choice(by_category["Mn"][:300]) for _ in range(rng.randint(0, 5))) for _ in range(8))

    kinds = [any_category, any_plane, words, blanks, digits, apostrophes, runs, mixed, marks]
    out = [""] + CODE + [c for cs in by_category.values() for c in rng.sample(cs, min(len(cs), 40))]
    # Every character around each kind of neighbour that a pattern can look at.
    out += [f"a{c} {c}1{c}\n {c}{c} b" for cs in by_category.values() for c in rng.sample(cs, min(len(cs), 40))]
    while len(out) < n:
        out.append(kinds[len(out) % len(kinds)]())
    return out


def workload_texts():
    """Every string in the bundled workloads."""
    found = []

    def walk(value):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, (list, dict)):
            for v in value.values() if isinstance(value, dict) else value:
                walk(v)

    for path in sorted(WORKLOADS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            walk(json.loads(line))
    return sorted(set(found))


def assert_same(lines, ours, theirs):
    assert len(ours) == len(lines) == len(theirs)
    bad = [(line, a, b) for line, a, b in zip(lines, ours, theirs) if a != b]
    assert not bad, f"CATTN_TEST_DAY={DAY}: {len(bad)} of {len(lines)} differ, the first: text, ours, theirs: {bad[0]!r}"


@pytest.mark.parametrize("n, seed", [(2500, SEED + DAY), pytest.param(12000, SEED, marks=pytest.mark.long)])
def test_smollm2(bin_dir, model_path, n, seed):
    lines = texts(n, seed) + workload_texts()
    ours = tokenize_dump(bin_dir, model_path, lines)
    theirs = from_gguf(model_path)
    assert_same(lines, ours, [e.ids for e in theirs.encode_batch(lines)])


@pytest.fixture(scope="module")
def vocabulary(model_path):
    fields = gguf.GGUFReader(model_path).fields
    return [fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type")]


def write_byte_level(path, tokens, merges, types, pre):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_decode_gives_the_text_back(bin_dir, model_path, vocabulary):
    """All of it but the bytes that the vocabulary lacks, some control characters, which `tokenizers` leaves out too."""
    lines = texts(12000)
    ids = tokenize_dump(bin_dir, model_path, lines)
    lacking = {b for b in range(128) if byte_character(b) not in vocabulary[0]}
    held = [bytes(b for b in line.encode() if b not in lacking).decode() for line in lines]
    assert sum(a == b for a, b in zip(lines, held)) > 11000
    assert tokenize_dump(bin_dir, model_path, ids, "--decode") == held


def byte_character(byte):
    """How byte-level BPE writes an ASCII character."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(chr(byte))[0][0]


def same_unicode(text):
    """Whether `tokenizers`, whose tables of characters are older, normalises it as Unicode does now."""
    return normalizers.NFC().normalize_str(text) == unicodedata.normalize("NFC", text)


def test_long_runs_of_marks(bin_dir, vocabulary, tmp_path):
    """Two million marks in descending classes, whose ordering would take hours if it were quadratic, and some in any order."""
    path = tmp_path / "model.gguf"
    tokens, merges, types = vocabulary
    write_byte_level(path, tokens, merges, types, "qwen2")
    marks = sorted((chr(c) for c in range(0x300, 0x370)), key=unicodedata.combining, reverse=True)
    some = random.Random(SEED).choices(marks, k=3000)
    lines = ["a" + "".join(marks) * 18000, "e" + "".join(some)]
    back = tokenize_dump(bin_dir, path, tokenize_dump(bin_dir, path, lines), "--decode")
    assert back == [unicodedata.normalize("NFC", line) for line in lines]


@functools.cache
def newer_punctuation():
    """Signs that `tokenizers`' Punctuation does not know yet."""
    signs = [c for category, cs in assigned().items() if category[0] == "P" for c in cs]
    removed = pre_tokenizers.Punctuation("removed").pre_tokenize_str("".join(signs))
    return {c for piece, _ in removed for c in piece}


def comparable(pre, text):
    """Whether `tokenizers` has the same tables for the characters of a text."""
    if pre in PUNCTUATION and not newer_punctuation().isdisjoint(text):
        return False
    return pre not in NFC or same_unicode(text)


NUMBERS = ["1234567", "12", "½", "²", "٣٤٥", "१२३४", "0001", "3", "3" * 20]
PARTS = [*NUMBERS, "a", "Ab", "wORLD", "HELLO", "'s", "'LL", "漢", "字", "々", "한국", "ก", "é", "e\u0301", "ǅ", "ªº", "_", "/", "。", "-", "!",
         " ", "  ", " " * 5, "\t", "\n", " \n", "\r\n", "\u3000", "<sentinel:12>", "IMGIMGABZ"]  # fmt: skip


def pieces_of_patterns(n, seed):
    """What the patterns of pre-tokenizers look at, in any order, and runs of spaces of each length that JAIS 2 knows."""
    rng = random.Random(seed)
    lines = ["".join(rng.choices(PARTS, k=rng.randint(1, 25))) for _ in range(n)]
    lengths = [m + d for m in (1, 2, 4, 8, 16, 32, 64, 512, 1024) for d in (-1, 0, 1)]
    return lines + [f"{' ' * k}{end}" for k in lengths for end in ("x", "", "1", "\n \n ")]


@pytest.mark.parametrize("n", [300, pytest.param(4000, marks=pytest.mark.long)])
@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_pre_tokenizers(bin_dir, vocabulary, tmp_path, pre, n):
    """Each kind of pre-tokenizer, over the same merges, with added tokens that are text."""
    tokens, merges, types = vocabulary
    added = ["<tool>", "<tool>x", "    ", "ünï"] if n > 300 else []
    tokens, types = tokens + added, types + [gguf.TokenType.USER_DEFINED] * len(added)
    path = tmp_path / "model.gguf"
    write_byte_level(path, tokens, merges, types, pre)
    lines = random.Random(DAY).sample(texts(5000), n) + pieces_of_patterns(n, SEED + DAY)
    lines += ["a<tool>xy <tool>  b", "\n    \n        x", "ünïünï ünïx"]
    lines = [t for t in lines if comparable(pre, t)]
    ours = tokenize_dump(bin_dir, path, lines)
    assert_same(lines, ours, [e.ids for e in byte_level(tokens, merges, types, pre).encode_batch(lines)])


def write_sentence_pieces(path, model, symbols, dummy_prefix):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    ids = range(model.vocab_size())
    writer.add_token_list([model.id_to_piece(i) for i in ids])
    writer.add_token_scores([model.get_score(i) for i in ids])
    writer.add_token_types([piece_type(model, i, symbols) for i in ids])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_add_space_prefix(dummy_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train_sentence_pieces(folder, symbols, dummy_prefix):
    """A small SentencePiece BPE model with byte fallback, and the same in a GGUF."""
    corpus = folder / "corpus.txt"
    words = [t for t in texts(3000) if "\n" not in t and "\0" not in t] + workload_texts()[:400]
    corpus.write_text("\n".join(line for text in words for line in text.splitlines()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "m"), model_type="bpe", vocab_size=2400, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=dummy_prefix, split_digits=True, allow_whitespace_only_pieces=True, user_defined_symbols=symbols,
        max_sentence_length=20000, minloglevel=2, num_threads=1,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))
    write_sentence_pieces(folder / "m.gguf", model, symbols, dummy_prefix)
    return model, folder / "m.gguf"


# As Llama has it, and as Gemma: nothing before the text, and runs of spaces and line ends among the added symbols.
SENTENCE_PIECES = {
    "llama": (["<tool>", "<tool>x"], True),
    "gemma": (["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<td>", "<tool>x"], False),
}


@pytest.fixture(scope="module", params=SENTENCE_PIECES)
def sentence_pieces(request, tmp_path_factory):
    symbols, dummy_prefix = SENTENCE_PIECES[request.param]
    return *train_sentence_pieces(tmp_path_factory.mktemp("spm"), symbols, dummy_prefix), dummy_prefix


def piece_type(model, i, symbols):
    if model.is_unknown(i):
        return gguf.TokenType.UNKNOWN
    if model.is_control(i):
        return gguf.TokenType.CONTROL
    if model.is_byte(i):
        return gguf.TokenType.BYTE
    return gguf.TokenType.USER_DEFINED if model.id_to_piece(i) in symbols else gguf.TokenType.NORMAL


def test_sentence_pieces(bin_dir, sentence_pieces):
    model, path, dummy_prefix = sentence_pieces
    lines = [t for t in texts(8000) if "\0" not in t] + workload_texts() + ["<tool>x<tool> a<tool>", " <tool>", "▁a ▁▁ b"]
    lines += ["a   b", "  x", "a ▁▁  ▁b", "\n \n\n\n\n\n  \n", "<td>  <td> x"]
    ours = tokenize_dump(bin_dir, path, lines)
    assert_same(lines, ours, [model.encode(line) for line in lines])
    back = tokenize_dump(bin_dir, path, ours, "--decode")
    prefix = " " if dummy_prefix else ""
    assert back == [prefix + line.replace("▁", " ") if line else "" for line in lines]
