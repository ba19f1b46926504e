"""The tokenizers under test as PyPI `tokenizers` builds them from a GGUF's vocabulary, and the program that runs ours."""

import json
import subprocess

import gguf
from published import NFC, PRE_TOKENIZERS, WHOLE_WORDS
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from waiting import LIMIT_S

CONTROL, USER_DEFINED = 3, 4

def byte_level(tokens, merges, types, pre):
    """A `tokenizers.Tokenizer` of the vocabulary; control tokens only when special=True, added ones always."""
    vocab = {text: i for i, text in enumerate(tokens)}
    model = models.BPE(vocab, [tuple(m.split(" ")) for m in merges], ignore_merges=pre in WHOLE_WORDS)
    tok = Tokenizer(model)
    if pre in NFC:
        tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tok.decoder = decoders.ByteLevel()
    tok.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == USER_DEFINED])
    return tok


def from_gguf(path, special=False):
    """As byte_level, from a file; with `special`, the names of control tokens in a text stand for them."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    tok = byte_level(tokens, fields["tokenizer.ggml.merges"].contents(), types, fields["tokenizer.ggml.pre"].contents())
    if special:
        tok.add_special_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == CONTROL])
    return tok


def tokenize_dump(bin_dir, model, lines, *options):
    """Each line through tests/chunkllama/model/tokenize_dump.c."""
    done = subprocess.run(
        [bin_dir / "tokenize_dump", model, *options],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]
