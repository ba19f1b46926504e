"""The pre-tokenizers of `tokenizer.ggml.pre`, as the models' own tokenizer.json files define them."""

from tokenizers import Regex, pre_tokenizers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s+(?!\S)|\s+"
LINES = r"|\s*[\r\n]+" + SPACES
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + SPACES


def words(digits, contractions=CONTRACTIONS + "|"):
    return contractions + r"[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"


def cased(end, digits, lines="[\\r\\n/]*", but=""):
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{end}|{lead}{upper}+{lower}*{end}|{digits}" + r"| ?[^\s\p{L}\p{N}]+" + lines + LINES


def deepseek(lines):
    return (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
        + "\r\n"
        + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
        + lines
        + SPACES
    )


LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-"
    "\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-"
    "\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-"
    "\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2"
    "\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
CJK_AFMOE = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
CJK_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    "[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CJK_WIDE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BYTE_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGIT = pre_tokenizers.Digits(individual_digits=True)


def split(*steps):
    """Steps in a Sequence; texts are expressions of a Split. At the end, bytes are written as characters."""
    made = [pre_tokenizers.Split(Regex(s), behavior="isolated") if isinstance(s, str) else s for s in steps]
    return pre_tokenizers.Sequence([*made, BYTES])


THOUSANDS = pre_tokenizers.Split(Regex(r"(?=(\d{3})+(?!\d))"), behavior="merged_with_next")
JAIS = words(r"\p{N}{1,3}") + r"|\s*[\r\n]+" + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}"
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + LINES
SEED = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" + "\r\n]+|\\s*[\r\n]+" + SPACES
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]" + SPACES
EXAONE = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]" + SPACES
KIMI = r"[\p{Han}]+|" + cased(CONTRACTIONS + "?", r"\p{N}{1,3}", r"[\r\n]*", r"&&[^\p{Han}]")

# The steps by which each kind of pre-tokenizer cuts a text, under one of its names. AFMoE's own tokenizer file was not
# available, so its digits are cut as llama.cpp cuts them.
PRE_TOKENIZERS = {
    "gpt-2": lambda: BYTE_WORDS,
    "mpt": lambda: BYTE_WORDS,
    "smollm": lambda: pre_tokenizers.Sequence([DIGIT, BYTE_WORDS]),
    "command-r": lambda: pre_tokenizers.Sequence([DIGIT, BYTE_WORDS]),
    "llama-bpe": lambda: split(words(r"\p{N}{1,3}") + LINES),
    "smaug-bpe": lambda: split(words(r"\p{N}{1,3}") + LINES),
    "glm4": lambda: split(words(r"\p{N}{1,3}") + LINES),
    "jais-2": lambda: split(JAIS),
    "minicpm5": lambda: split(r"\p{N}{1,3}", words(r"\p{N}+") + LINES),
    "qwen2": lambda: split(words(r"\p{N}") + LINES),
    "deepseek-r1-qwen": lambda: split(words(r"\p{N}") + LINES),
    "qwen35": lambda: split(QWEN35),
    "ufakzeka": lambda: split(words(r"\p{N}", "") + LINES),
    "seed-coder": lambda: split(SEED),
    "bailingmoe": lambda: split(BAILING),
    "exaone-moe": lambda: split(EXAONE),
    "laguna": lambda: split("[^\n]+|[\n]+", words(r"\p{N}") + LINES),
    "tekken": lambda: split(cased("", r"\p{N}")),
    "gpt-4o": lambda: split(cased(CONTRACTIONS + "?", r"\p{N}{1,3}")),
    "granite-embed-multi-97m": lambda: split(cased(CONTRACTIONS + "?", r"\p{N}{1,3}")),
    "tiny_aya": lambda: split(r"\d{1,3}(?=(?:\d{3})*\b)", cased(CONTRACTIONS + "?", r"\p{N}{1,3}")),
    "kimi-k2": lambda: split(KIMI),
    "youtu": lambda: split(CJK_YOUTU, cased(CONTRACTIONS + "?", r"\p{N}")),
    "deepseek-llm": lambda: split("[\r\n]", rf"\s?[{LETTERS}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                                  r"\s+$", CJK_WIDE, DIGIT),
    "deepseek-coder": lambda: split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_WIDE, DIGIT),
    "deepseek-v3": lambda: split(r"\p{N}{1,3}", CJK, deepseek("[\r\n]*|\\s*[\r\n]+")),
    "spark2_5": lambda: split(r"\p{N}{1,3}", CJK, deepseek("|[\r\n]"), r"\p{N}"),
    "afmoe": lambda: split(r"\p{Nd}+", THOUSANDS, CJK_AFMOE, deepseek("[\r\n]*|\\s*[\r\n]+")),
    "falcon": lambda: pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), BYTE_WORDS, pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated")]),
    "bloom": lambda: split(BLOOM),
    "viking": lambda: split(BLOOM, r"\p{N}"),
    "superbpe": lambda: split(r"\p{N}+", THOUSANDS),
    "chameleon": lambda: pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(s), behavior="isolated")
          for s in ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\t\n]|    |  )")),
        DIGIT, pre_tokenizers.Punctuation("isolated"), BYTE_WORDS]),
}  # fmt: skip
WHOLE_WORDS = {"llama-bpe", "glm4", "minicpm5", "tekken", "granite-embed-multi-97m", "youtu"}
NFC = {"mpt", "command-r", "qwen2", "qwen35", "tiny_aya"}
PUNCTUATION = {"falcon", "chameleon"}
