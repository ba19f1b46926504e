"""tokenizer.json: trained by PyPI `tokenizers` with each kind of normaliser and pre-tokenizer, and the same ids as theirs."""

import json
import random
import re

import gguf
import jinja2
import pytest
import write_hf
from published import NFC, PRE_TOKENIZERS, WHOLE_WORDS
from test_tokenizer import assert_same, comparable, pieces_of_patterns, same_unicode, texts, workload_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers_by_hand import tokenize_dump

REPLACE = normalizers.Replace(" ", "▁")
SPACED = {  # normaliser and pre-tokenizer of tokenizers after SentencePiece
    "llama2": (normalizers.Sequence([normalizers.Prepend("▁"), REPLACE]), None),
    "gemma": (REPLACE, pre_tokenizers.Split(" ", "merged_with_previous")),
    "first": (None, pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)),
    "always": (None, pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=False)),
    "never": (None, pre_tokenizers.Metaspace("▁", prepend_scheme="never", split=False)),
}
SPECIAL = ["<unk>", "<s>", "</s>"]
CORPUS = [t for t in texts(2500) if "\0" not in t] + workload_texts()[:300]


def train(kind):
    if kind in SPACED:
        tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if SPACED[kind][0]:
            tok.normalizer = SPACED[kind][0]
        if SPACED[kind][1]:
            tok.pre_tokenizer = SPACED[kind][1]
        special = SPECIAL + [f"<0x{i:02X}>" for i in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=special, limit_alphabet=900, show_progress=False)
    else:
        tok = Tokenizer(models.BPE(ignore_merges=kind in WHOLE_WORDS))
        if kind in NFC:
            tok.normalizer = normalizers.NFC()
        tok.pre_tokenizer = PRE_TOKENIZERS[kind]()
        tok.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tok.train_from_iterator(CORPUS, trainer)
    if kind in SPACED:  # bytes are words of the model, not special tokens
        fields = json.loads(tok.to_str())
        fields["added_tokens"] = fields["added_tokens"][: len(SPECIAL)]
        tok = Tokenizer.from_str(json.dumps(fields))
    tok.add_tokens([AddedToken(t, normalized=False) for t in ("<tool>", "<tool>x", "\n\n\n")])
    return tok


def write_folder(folder, tok, n_vocab=None, tokenizer_config=None, **config):
    """As much of a model as its tokenizer needs."""
    n_vocab = n_vocab or tok.get_vocab_size()
    folder.mkdir()
    fields = dict(architectures=["LlamaForCausalLM"], num_hidden_layers=1, hidden_size=1, intermediate_size=64, vocab_size=n_vocab,
                  max_position_embeddings=64, num_attention_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1,
                  eos_token_id=2)  # fmt: skip
    (folder / "config.json").write_text(json.dumps(fields | config))
    (folder / "tokenizer.json").write_text(tok if isinstance(tok, str) else tok.to_str())
    if tokenizer_config:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    embedding = ("BF16", [n_vocab, 1], bytes(2 * n_vocab))
    write_hf.write_safetensors(folder / "model.safetensors", {"model.embed_tokens.weight": embedding})
    return folder


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-r1-qwen", "tekken", *SPACED])
def test_same_ids(bin_dir, tmp_path, kind):
    tok = train(kind)
    folder = write_folder(tmp_path / "hf", tok, tok.get_vocab_size() + 7)
    special = set(SPECIAL)
    lines = [t for t in texts(6000) if kind not in NFC or same_unicode(t)]
    lines = [t for t in lines if not any(name in t for name in special)]  # ours are text, theirs are not
    lines += ["a<tool>xy <tool>  b", "<tool> x<tool>", " <tool>", "\n\n\n\n x\n\n\n", "▁a ▁▁ b", "a   b"]
    ours = tokenize_dump(bin_dir, folder, lines)
    assert_same(lines, ours, [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)])
    if kind in SPACED:
        return
    back = tokenize_dump(bin_dir, folder, ours, "--decode")
    assert back == tok.decode_batch(ours, skip_special_tokens=False)


@pytest.fixture(scope="module")
def byte_words():
    """A tokenizer that was trained once, in which steps are replaced."""
    return train("gpt-2")


@pytest.mark.parametrize("n", [100, pytest.param(4000, marks=pytest.mark.long)])
@pytest.mark.parametrize("pre", sorted(set(PRE_TOKENIZERS) - {"afmoe"}))  # whose steps are not known
def test_steps(bin_dir, tmp_path, byte_words, pre, n):
    """The steps of each kind of pre-tokenizer, as a folder has them."""
    tok = Tokenizer.from_str(byte_words.to_str())
    tok.pre_tokenizer = PRE_TOKENIZERS[pre]()
    if pre in NFC:
        tok.normalizer = normalizers.NFC()
    folder = write_folder(tmp_path / "hf", tok)
    lines = [t for t in texts(n) + pieces_of_patterns(n, 3) if comparable(pre, t)]
    lines = [t for t in lines if not any(name in t for name in SPECIAL)]
    assert_same(lines, tokenize_dump(bin_dir, folder, lines), [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)])


def test_info(chunkllama, tmp_path, byte_words):
    """A folder's steps have the name of a pre-tokenizer with the same ones, if there is one."""
    tok = Tokenizer.from_str(byte_words.to_str())
    names = {"deepseek-v3": "deepseek-v3", "gpt-2": "default", "tekken": "tokenizer.json"}  # where whole words come first
    for pre, name in names.items():
        tok.pre_tokenizer = PRE_TOKENIZERS[pre]()
        assert f"pre-tokenizer   {name}\n" in chunkllama("info", write_folder(tmp_path / pre, tok)).stdout


def test_what_is_between_is_removed(bin_dir, tmp_path, byte_words):
    """Some files remove what is between matches, where there is nothing."""
    tok = Tokenizer.from_str(byte_words.to_str())
    words = json.loads(PRE_TOKENIZERS["gpt-4o"]().__getstate__())["pretokenizers"][0]["pattern"]["Regex"]
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(words), behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])  # fmt: skip
    folder = write_folder(tmp_path / "hf", tok)
    lines = pieces_of_patterns(200, 5)
    assert_same(lines, tokenize_dump(bin_dir, folder, lines), [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)])


REFUSED_STEPS = {
    "expression": (lambda: pre_tokenizers.Split(Regex(r"\w+"), "isolated"), r"the step 'Split Isolated \w+' of pre_tokenizer"),
    "string": (lambda: pre_tokenizers.Split("a", "isolated"), "the step 'Split Isolated of a string'"),
    "behaviour": (lambda: pre_tokenizers.Split(Regex(r"\p{N}"), "merged_with_next"), r"the step 'Split MergedWithNext \p{N}'"),
    "between": (lambda: pre_tokenizers.Split(Regex(r"\p{N}"), "removed", invert=True), r"the step 'Split Removed \p{N}'"),
    "matches": (lambda: pre_tokenizers.Split(Regex(r"\p{N}"), "removed"), "the step 'Split Removed'"),
    "others": (lambda: pre_tokenizers.Split(Regex(r"\p{N}"), "isolated", invert=True), "the step 'Split inverted Isolated'"),
    "kind": (pre_tokenizers.WhitespaceSplit, "the step 'WhitespaceSplit'"),
    "prefix": (lambda: pre_tokenizers.ByteLevel(add_prefix_space=True), "the step 'ByteLevel with add_prefix_space'"),
    "long": (lambda: pre_tokenizers.Split(Regex("a" * 3000), "isolated"), "the step 'a Split of 3015 bytes'"),
}


@pytest.mark.parametrize("name", REFUSED_STEPS)
def test_unknown_steps(bin_dir, tmp_path, byte_words, name):
    step, message = REFUSED_STEPS[name]
    tok = Tokenizer.from_str(byte_words.to_str())
    tok.pre_tokenizer = pre_tokenizers.Sequence([step(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    with pytest.raises(AssertionError, match=re.escape(message)):
        tokenize_dump(bin_dir, write_folder(tmp_path / "hf", tok), ["a"])


@pytest.mark.parametrize("model, pre", [("gemma4", None), ("gpt2", "sarvam-moe")])
@pytest.mark.parametrize("n", [1000, pytest.param(8000, marks=pytest.mark.long)])
def test_merges_of_sentence_pieces(bin_dir, tmp_path, model, pre, n):
    """Gemma 4 in a GGUF, whose merges are of characters, with U+2581 for spaces."""
    tok = train("gemma")
    fields = json.loads(tok.to_str())
    tokens = sorted(tok.get_vocab(), key=tok.get_vocab().get)
    added = {t["content"]: 3 if t["special"] else 4 for t in fields["added_tokens"]} | {"<unk>": 2}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([added.get(t, 6 if re.fullmatch("<0x[0-9A-F]{2}>", t) else 1) for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in fields["model"]["merges"]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    lines = [t for t in texts(n) if not any(name in t for name in SPECIAL)]
    lines += ["a<tool>xy <tool>  b", " <tool>", "\n\n\n\n x\n\n\n", "▁a ▁▁ b", "a   b"]
    ours = tokenize_dump(bin_dir, tmp_path / "m.gguf", lines)
    assert_same(lines, ours, [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)])


LATE = ["<late>", "a b", " c", "▁d", "<té>", "<te\u0301>x", "日本", "<tool>xy", "the", "é", "x<"]


@pytest.mark.parametrize("kind", [*SPACED, "qwen2", "gpt-2", "llama-bpe"])
@pytest.mark.parametrize("trained", [False, True])
def test_normalized(bin_dir, tmp_path, kind, trained):
    """Added tokens that are searched for in normalised text, so not before those that are searched for as they are."""
    tok = train(kind)
    tok.add_tokens([AddedToken(t, normalized=True) for t in LATE if trained or tok.token_to_id(t) is None])
    folder = write_folder(tmp_path / "hf", tok)
    raw = kind in ("first", "always", "never")  # where spaces are replaced later, a space and U+2581 are not the same
    parts = [t for t in LATE if not (raw and ("▁" in t or " " in t))]
    parts += ["<tool>", " ", "  ", "a", "e\u0301", "\u0301", "ß", "c", "d", "<t"]
    rng = random.Random(11)
    lines = ["".join(rng.choices(parts, k=rng.randint(1, 7))) for _ in range(3000)]
    lines = [t for t in lines if not raw or "<tool>" not in t]  # one search for both there
    ours = tokenize_dump(bin_dir, folder, lines)
    assert_same(lines, ours, [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)])


@pytest.mark.parametrize("kind", ["llama2", "qwen2"])
def test_normalized_special(bin_dir, tmp_path, kind):
    """In a text, names of special tokens are text; in a template they are the tokens, whatever is beside them."""
    tok = train(kind)
    fields, n_vocab = json.loads(tok.to_str()), tok.get_vocab_size()
    chat = [{"role": "user", "content": "x<s>y"}]
    lines = ["a</s>b </s> c"]
    got = []
    for normalized in (False, True):
        for token in fields["added_tokens"][: len(SPECIAL)]:
            token["normalized"] = normalized
        config = {"chat_template": "{% for m in messages %}{{ '<|user|>\n' + m.content + eos_token }}{% endfor %}"}
        folder = write_folder(tmp_path / f"hf{normalized}", json.dumps(fields), n_vocab, tokenizer_config=config)
        got.append((tokenize_dump(bin_dir, folder, lines), tokenize_dump(bin_dir, folder, [chat], "--chat")))
    assert got[0] == got[1] and 2 not in got[0][0][0] and 2 in got[0][1][0]


UNKNOWN = ["日本語 𓀀𓀁 a", "\u0378x\u0378\u0379", "x\u0378", "naïve 日本\n\t", "e\u0301 \u0378\u0378<tool>\u0378"]


def without_bytes(kind, **model):
    """A tokenizer whose characters are words or unknown; fields of its model that are None are left out."""
    fields = json.loads(train(kind).to_str())
    fields["model"] |= {"byte_fallback": False} | model
    fields["model"] = {k: v for k, v in fields["model"].items() if v is not None}
    return Tokenizer.from_str(json.dumps(fields)), json.dumps(fields)


@pytest.mark.parametrize("kind", ["llama2", "gemma", "first"])
@pytest.mark.parametrize("fuse", [True, False, None])
def test_unknown(bin_dir, tmp_path, kind, fuse):
    """One for each character, or for a run of them."""
    tok, text = without_bytes(kind, fuse_unk=fuse)
    folder = write_folder(tmp_path / "hf", text, tok.get_vocab_size())
    expected = [e.ids for e in tok.encode_batch(UNKNOWN, add_special_tokens=False)]
    assert tokenize_dump(bin_dir, folder, UNKNOWN) == expected
    assert any(ids[i : i + 2] == [0, 0] for ids in expected for i in range(len(ids))) == (not fuse)


@pytest.mark.parametrize("kind", ["llama2", "gemma", "never"])
@pytest.mark.parametrize("byte", [False, True])
def test_no_unknown(bin_dir, tmp_path, kind, byte):
    """Characters without a token are left out, and what is beside them merges; with bytes there are none."""
    tok, text = without_bytes(kind, unk_token=None, byte_fallback=byte)
    folder = write_folder(tmp_path / "hf", text, tok.get_vocab_size())
    lines = [*UNKNOWN, "th\u0378e peo\u0378ple", "\u0378", "\u0378\u0379<tool>"]
    expected = [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)]
    assert tokenize_dump(bin_dir, folder, lines) == expected
    merged = [e.ids for e in tok.encode_batch(["the people", "th\u0378e peo\u0378ple"], add_special_tokens=False)]
    assert (merged[0] == merged[1]) == (not byte)


@pytest.mark.parametrize("kind", ["qwen2", "gemma"])
def test_merges_as_text(bin_dir, tmp_path, kind):
    """Older files have each merge as a string."""
    tok = train(kind)
    fields = json.loads(tok.to_str())
    fields["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in fields["model"]["merges"]]
    lines = ["The people would write about the day; their words are many.", "naïve 日本 \n\t", ""]
    for i, merges in enumerate((fields["model"]["merges"], [m.split(" ") for m in fields["model"]["merges"]])):
        fields["model"]["merges"] = merges
        folder = write_folder(tmp_path / f"hf{i}", json.dumps(fields), tok.get_vocab_size())
        ours = tokenize_dump(bin_dir, folder, lines)
        assert ours == [e.ids for e in tok.encode_batch(lines, add_special_tokens=False)]


@pytest.mark.parametrize("kind", SPACED)
def test_behind_special_tokens(bin_dir, tmp_path, kind):
    """A folder says which texts get a space, also behind Mistral's special tokens, whose templates write one."""
    tok = train(kind)
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("[INST]", "[/INST]")])
    template = "{% for m in messages %}{{ '[INST] ' + m.content + '[/INST]' + m.content + eos_token }}{% endfor %}"
    folder = write_folder(tmp_path / "hf", tok, tokenizer_config={"chat_template": template, "eos_token": "</s>"})
    chats = [[{"role": "user", "content": text}] for text in ("ab", " ab", "  ", "\n")]
    texts = [jinja2.Template(template, keep_trailing_newline=True).render(messages=c, eos_token="</s>") for c in chats]
    assert tokenize_dump(bin_dir, folder, chats, "--chat") == [tok.encode(t, add_special_tokens=False).ids for t in texts]


TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize("where", ["string", "list", "file"])
def test_chat_template(bin_dir, tmp_path, where):
    tok = train("qwen2")
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<|im_start|>", "<|im_end|>")])
    unknown = {"model_max_length": int(1e30)}  # as written where no limit is known; more than 64 bits
    config = {"string": {"chat_template": TEMPLATE} | unknown, "file": {"bos_token": None, "chat_template": "not used"},
              "list": {"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": TEMPLATE},
                                         {"name": "default", "template": "x"}]}}[where]  # fmt: skip
    folder = write_folder(tmp_path / "hf", tok, tokenizer_config=config)
    if where == "file":
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    chat = [{"role": "user", "content": "Hello <s> there"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    text = jinja2.Environment().from_string(TEMPLATE).render(messages=chat, add_generation_prompt=True)
    ours = tokenize_dump(bin_dir, folder, [chat], "--chat")[0]
    special = [tok.token_to_id(t) for t in ("<|im_start|>", "<|im_end|>")]
    assert sum(i in special for i in ours) == 7 and tok.token_to_id("<s>") not in ours
    assert tokenize_dump(bin_dir, folder, [ours], "--decode") == [text]


def test_tool_template(bin_dir, tmp_path):
    """Chats with tools are written by the template named tool_use, in the list or in a file."""
    tok = train("gpt-2")
    chat = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
    tool_use = "{{ tools[0].function.name }}: {{ messages[0].content }}{{ eos_token }}"
    both = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": tool_use}]
    listed = write_folder(tmp_path / "list", tok, tokenizer_config={"chat_template": both, "eos_token": {"content": "</s>"}})
    files = write_folder(tmp_path / "files", tok, tokenizer_config={"eos_token": "</s>"})
    (files / "chat_template.jinja").write_text(TEMPLATE)
    (files / "additional_chat_templates").mkdir()
    (files / "additional_chat_templates" / "tool_use.jinja").write_text(tool_use)
    for folder in (listed, files):
        with_tools, without = tokenize_dump(bin_dir, folder, [chat, chat["messages"]], "--chat")
        assert with_tools[-1] == tok.token_to_id("</s>")
        assert tokenize_dump(bin_dir, folder, [with_tools], "--decode") == ["f: Hi</s>"]
        assert tokenize_dump(bin_dir, folder, [without], "--decode") == [
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"]


def test_bos(bin_dir, tmp_path):
    """tokenizer_config.json says whether a prompt begins with BOS; where it does not, the post-processor does."""
    tok = train("gpt-2")
    zephyr = "{{ '<|user|>\n' + eos_token }}{{ '<|assistant|>' }}"
    chat = [{"role": "user", "content": "x"}]

    def first(name, **config):
        folder = write_folder(tmp_path / name, tok, tokenizer_config=config | {"chat_template": zephyr})
        return tokenize_dump(bin_dir, folder, [chat], "--chat")[0][0]

    assert first("silent") != 1
    assert first("asked", add_bos_token=True) == 1
    assert first("named", add_bos_token=True, bos_token={"content": "</s>"}) == 2
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    assert first("template") == 1
    assert first("refused", add_bos_token=False) != 1


AROUND = {
    "end": dict(single="$A </s>", special_tokens=[("</s>", 2)]),
    "both": dict(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]),
    "several": dict(single="<s> <unk> $A </s> <s>", special_tokens=[("<s>", 1), ("</s>", 2), ("<unk>", 0)]),
    "pieces": dict(single="<begin> $A </s>", special_tokens=[
        {"id": "<begin>", "ids": [1, 5, 6], "tokens": ["<s>", "x", "y"]}, {"id": "</s>", "ids": [2, 2], "tokens": ["</s>", "</s>"]}]),
    "types": dict(single="<s>:7 $A:1 </s>:3", pair="$A $B:1", special_tokens=[("<s>", 1), ("</s>", 2)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["gpt-2", "llama2"])
def test_post_processor(bin_dir, tmp_path, kind):
    """What a post-processor puts around a text, alone and behind another one, as models for embeddings have it."""
    tok = train(kind)
    lines = ["The people would write.", "", " x"]
    processes = {name: processors.TemplateProcessing(**fields) for name, fields in AROUND.items()}
    processes["sequence"] = processors.Sequence([processors.ByteLevel(trim_offsets=False), processes["several"]])
    processes["roberta"] = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    for name, process in processes.items():
        tok.post_processor = process
        config = {"eos_token": "</s>"} | ({"bos_token": "<s>"} if name == "both" else {})
        folder = write_folder(tmp_path / name, tok, tokenizer_config=config)
        assert tokenize_dump(bin_dir, folder, lines, "--around") == [e.ids for e in tok.encode_batch(lines)], name


def test_eos(bin_dir, tmp_path):
    """tokenizer_config.json may want EOS, beside what the post-processor says."""
    tok = train("llama2")
    text = tok.encode("a b", add_special_tokens=False).ids

    def around(name, **config):
        folder = write_folder(tmp_path / name, tok, tokenizer_config={"eos_token": "</s>", "bos_token": "<s>"} | config)
        return tokenize_dump(bin_dir, folder, ["a b"], "--around")[0]

    assert around("silent") == text
    assert around("eos", add_eos_token=True) == [*text, 2]
    assert around("both", add_eos_token=True, add_bos_token=True) == [1, *text, 2]
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    assert around("template", add_bos_token=True) == [1, *text, 2]
    assert around("once", add_eos_token=True) == [*text, 2]


def test_added_tokens_of_older_files(bin_dir, tmp_path):
    """A GGUF of a SentencePiece model to which tokens were added, as Hugging Face's tokenizer of that model splits texts."""
    words = ["▁", *"userabc.", "us", "er", "user", "▁user", "▁a", "▁b", "ab"]
    added = ["<|im_start|>", "<|im_end|>", "<x>"]
    merges = [("u", "s"), ("e", "r"), ("us", "er"), ("▁", "user"), ("▁", "a"), ("▁", "b"), ("a", "b")]
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)], *words, *added]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = SPACED["llama2"][0]
    tok.add_tokens([AddedToken(t, normalized=False) for t in added])
    scores = [0.0] * len(tokens)
    for rank, (left, right) in enumerate(merges):
        scores[tokens.index(left + right)] = -1.0 - rank
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([s or -100.0 for s in scores])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words) + [4] * len(added))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    rng = random.Random(5)
    parts = [*added, " ", "  ", "user", "a", "b", ".", "\n", "▁"]
    lines = ["".join(rng.choices(parts, k=rng.randint(1, 7))) for _ in range(500)] + ["<|im_start|>user\na<|im_end|>"]
    assert_same(lines, tokenize_dump(bin_dir, tmp_path / "m.gguf", lines), [e.ids for e in tok.encode_batch(lines)])


@pytest.mark.long
def test_large_vocabulary(bin_dir, tmp_path):
    """Larger than Gemma's: 457,000 tokens and as many merges. To read them would take more than LIMIT_S if it were quadratic."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*SPECIAL, *letters] + [a + b for a in letters for b in letters]
    merges = [[a, b] for a in letters for b in letters]
    pairs = words[len(SPECIAL) + 26 :]
    words += [a + b for a in pairs for b in pairs]
    merges += [[a, b] for a in pairs for b in pairs]
    model = {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": merges, "byte_fallback": True, "unk_token": "<unk>"}
    fields = {"added_tokens": [], "normalizer": json.loads(train("gemma").to_str())["normalizer"], "pre_tokenizer": None, "model": model}
    folder = write_folder(tmp_path / "hf", json.dumps(fields), len(words))
    ours = tokenize_dump(bin_dir, folder, ["abcdzzzz"])
    tok = Tokenizer.from_str(json.dumps(fields))
    assert ours == [tok.encode("abcdzzzz").ids]
